"""One server for all live tests: the built-in model in float32, as exact as the oracles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.default_model import MODEL_NAME, ensure_default_model
from tests.live.server import Server, start, stop

KEY = "live-tests-key"


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The built-in model's folder."""
    return ensure_default_model()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The built-in model, started as a user would, in float32."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    names = ["--served-model-name", MODEL_NAME, "second-name"]
    running = start([*names, "--dtype", "float32", "--api-key", KEY], log, key=KEY)
    yield running
    stop(running)
