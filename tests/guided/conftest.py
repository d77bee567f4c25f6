"""The libraries over one small vocabulary, loaded once for all tests."""

import pytest

from adapter.guided.backends.registry import Libraries
from adapter.guided.compile.compiler import ConstraintCompiler
from tests.guided.texts import VOCABULARY


@pytest.fixture(scope="session")
def libraries() -> Libraries:
    """All libraries."""
    return Libraries(VOCABULARY)


@pytest.fixture(scope="session")
def compiler(libraries: Libraries, tmp_path_factory: pytest.TempPathFactory) -> ConstraintCompiler:
    """What compiles for them."""
    return ConstraintCompiler(libraries, tmp_path_factory.mktemp("indexes"))
