"""One server for all live tests: the built-in model in float32, as exact as the oracles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.default_model import MODEL_NAME, ensure_default_model
from tests.live.server import Server, start, stop

KEY = "live-tests-key"

FIRST_SERVER = pytest.StashKey[Server]()


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The built-in model's folder."""
    return ensure_default_model()


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The built-in model, started as a user would, in float32."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    names = ["--served-model-name", MODEL_NAME, "second-name"]
    running = start([*names, "--dtype", "float32", "--api-key", KEY], log, key=KEY)
    request.config.stash[FIRST_SERVER] = running
    yield running
    stop(running)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that stop the first server run last, whatever order was asked for."""
    items.sort(key=lambda item: "second_server" in item.nodeid)
