"""adapter/serve.py: the command line, and what it starts vLLM with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapter import serve, vllm_version
from adapter.builtin_model import model as default_model
from adapter.serve import installed_plugins, plugins_to_load


@pytest.mark.parametrize(
    ("chosen", "installed", "names"),
    [
        pytest.param(None, [], "completion_v2", id="unset, none installed"),
        pytest.param(None, ["b", "a"], "a,b,completion_v2", id="unset"),
        pytest.param(None, ["completion_v2", "a"], "a,completion_v2", id="unset, installed"),
        pytest.param("", ["a"], "completion_v2", id="empty"),
        pytest.param("x", ["a"], "x,completion_v2", id="others"),
        pytest.param("completion_v2", ["a"], "completion_v2", id="ours"),
        pytest.param("x,completion_v2,y", ["a"], "x,completion_v2,y", id="among others"),
    ],
)
def test_plugins_to_load(chosen: str | None, installed: list[str], names: str) -> None:
    """This plugin is added, and no plugin that would have been loaded is left out."""
    environment = {} if chosen is None else {"VLLM_PLUGINS": chosen}
    assert plugins_to_load(environment, installed) == names


def test_installed_plugins_know_our_own() -> None:
    """The general plugins that are installed are found, ours among them."""
    assert serve.PLUGIN in installed_plugins()


def test_missing_vllm_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vLLM the command ends with what to install, and no traceback."""
    monkeypatch.setattr(vllm_version, "installed", lambda: None)
    with pytest.raises(SystemExit, match="vLLM is not installed"):
        serve.main([])


# --- with vLLM's parser -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parser() -> Any:
    """vLLM's parser with our flags."""
    from adapter.vllm_api import ServeSubcommand

    return serve.make_parser(ServeSubcommand())


@pytest.mark.needs_vllm
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], True),
        (["--port", "9000"], True),
        (["--unknown-fields", "reject"], True),
        (["--served-model-name", "mine"], True),
        (["some/model"], False),
        (["--model", "some/model"], False),
        (["some/model", "--port", "9000"], False),
        (["--port", "9000", "some/model"], False),
    ],
    ids=str,
)
def test_names_no_model(parser: Any, arguments: list[str], expected: bool) -> None:
    """The built-in model is served exactly where the command line names no model."""
    assert serve.names_no_model(parser, arguments) is expected


@pytest.mark.needs_vllm
def test_model_of_a_configuration_file_counts(parser: Any, tmp_path: Path) -> None:
    """A model that a configuration file names is a model."""
    config = tmp_path / "config.yaml"
    config.write_text("model: some/model\n", "utf-8")
    assert not serve.names_no_model(parser, ["--config", str(config)])
    config.write_text("port: 9000\n", "utf-8")
    assert serve.names_no_model(parser, ["--config", str(config)])


@pytest.fixture
def built_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for the built-in model; nothing is fetched."""
    monkeypatch.setattr(default_model, "ensure_default_model", lambda: tmp_path)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    return tmp_path


@pytest.mark.needs_vllm
def test_built_in_model_comes_with_its_settings(parser: Any, built_in: Path) -> None:
    """The built-in model is served under its name, and to this machine only."""
    args = parser.parse_args(["serve", *serve.with_built_in_model([])])
    assert args.model_tag == str(built_in)
    assert args.served_model_name == [default_model.MODEL_NAME]
    assert args.host == "127.0.0.1"


@pytest.mark.needs_vllm
@pytest.mark.parametrize(
    "flags",
    [["--host", "0.0.0.0"], ["--host=0.0.0.0"]],
    ids=["blank", "equals"],
)
def test_flags_override_the_built_in_settings(
    parser: Any, built_in: Path, flags: list[str]
) -> None:
    """A flag of the user's counts more than the built-in model's settings."""
    arguments = serve.with_built_in_model([*flags, "--served-model-name", "mine"])
    args = parser.parse_args(["serve", *arguments])
    assert (args.host, args.served_model_name) == ("0.0.0.0", ["mine"])
    assert args.model_tag == str(built_in)


@pytest.mark.needs_vllm
def test_flags_of_both(parser: Any) -> None:
    """One command line takes vLLM's flags and ours."""
    args = parser.parse_args(
        ["serve", "m", "--max-model-len", "128", "--unknown-fields", "reject", "--max-choices", "3"]
    )
    assert (args.max_model_len, args.unknown_fields, args.max_choices) == (128, "reject", 3)


@pytest.mark.needs_vllm
@pytest.mark.parametrize(("flags", "seconds"), [([], 3), (["--shutdown-timeout", "0"], 0)])
def test_last_words_have_time(parser: Any, flags: list[str], seconds: int) -> None:
    """What runs at SIGTERM has some time, unless the user wants none."""
    assert parser.parse_args(["serve", "m", *flags]).shutdown_timeout == seconds


@pytest.mark.needs_vllm
def test_help_shows_both_flags(
    monkeypatch: pytest.MonkeyPatch, parser: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """--help names this command, our flags, and vLLM's where all of its are asked for."""
    # vLLM looks at sys.argv for the kind of help that was asked for.
    monkeypatch.setattr(sys, "argv", ["adapter.serve", "serve", "--help=all"])
    with pytest.raises(SystemExit):
        parser.parse_args(["serve", "--help=all"])
    shown = capsys.readouterr().out
    assert "python -m adapter.serve [MODEL] [options]" in shown
    assert all(flag in shown for flag in ("--max-model-len", "--unknown-fields", "--max-choices"))


@pytest.mark.live
def test_help_of_the_command() -> None:
    """python -m adapter.serve --help shows our flags and vLLM's groups, and ends well."""
    done = subprocess.run(
        [sys.executable, "-m", "adapter.serve", "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "--unknown-fields" in done.stdout
    assert "ModelConfig" in done.stdout
