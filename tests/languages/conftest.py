"""The libraries, for what the texts written here mean to them."""

from tests.guided.conftest import libraries

__all__ = ["libraries"]
