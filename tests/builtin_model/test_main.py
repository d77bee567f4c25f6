"""python -m adapter.builtin_model."""

from pathlib import Path

import pytest

from adapter.builtin_model import __main__ as command
from adapter.builtin_model.reporting import DefaultModelError


class TestCommandLine:
    def test_last_line_is_the_folder(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """stdout is the folder's path and no more."""
        monkeypatch.setattr(command, "ensure_default_model", lambda: Path("/folder"))
        assert command.main([]) == 0
        assert capsys.readouterr().out == "/folder\n"

    def test_failure_is_one_line_on_stderr(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A failure is one line on stderr and status 1."""

        def fail() -> Path:
            raise DefaultModelError("no network")

        monkeypatch.setattr(command, "ensure_tiny_model", fail)
        assert command.main(["--tiny"]) == 1
        assert capsys.readouterr() == ("", "error: no network\n")
