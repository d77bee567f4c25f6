"""The libraries, for what the texts written here mean to them; and a bound on refusals."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck

from tests.guided.conftest import libraries

__all__ = ["libraries"]

COUNTED = [HealthCheck.function_scoped_fixture]
"""Suppressed where `share` is asked for: all examples of a test are to be counted together."""


@dataclass(slots=True)
class Share:
    """How many of a test's examples were looked at: the others were refused."""

    taken: int = 0
    every: int = 0

    def count(self, example: object) -> None:
        """Count what was made of an example, which is None where it was refused."""
        self.taken += example is not None
        self.every += 1


@pytest.fixture
def share() -> Iterator[Share]:
    """A test's share, which has to be more than half."""
    share = Share()
    yield share
    assert 2 * share.taken > share.every, f"{share.taken} of {share.every} were not refused"
