"""Fixtures of the built-in model's tests: its cache, and what stands for its tokenizer."""

from pathlib import Path

import pytest

from adapter.builtin_model import huggingface
from adapter.builtin_model.cache import CACHE_VARIABLE


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, used instead of the user's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the tokenizer's files: writing the real ones needs a real vocabulary."""

    def write(_gguf_file: Path, _max_length: int, folder: Path) -> None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(huggingface, "write_tokenizer", write)
