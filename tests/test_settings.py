"""adapter/settings.py: flags, environment variables and their defaults."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from adapter.settings import PREFIX, Settings, add_flags, settings_from


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without settings of this package's."""
    names = ["UNKNOWN_FIELDS", "MAX_CHOICES"]
    for name in (*names, "GUIDED_TIMEOUT", "GUIDED_CACHE_MB", "GUIDED_FALLBACK"):
        monkeypatch.delenv(f"{PREFIX}{name}", raising=False)


def parsed(*arguments: str) -> Settings:
    """The settings of a server started with our flags."""
    parser = ArgumentParser()
    add_flags(parser)
    return settings_from(parser.parse_args(arguments))


def test_defaults() -> None:
    """Unknown fields are reported, and a request may ask for 2048 choices."""
    assert parsed() == settings_from(Namespace())
    assert parsed().reject_unknown_fields is False
    assert parsed().max_choices == 2048


def test_flags() -> None:
    """Each flag sets its setting."""
    assert parsed("--unknown-fields", "reject").reject_unknown_fields is True
    assert parsed("--max-choices", "8").max_choices == 8


@pytest.mark.parametrize("args", [Namespace(), Namespace(model="m")], ids=["none", "vLLM's"])
def test_environment(monkeypatch: pytest.MonkeyPatch, args: Namespace) -> None:
    """Where vLLM's own command has no such flags, the environment sets them."""
    monkeypatch.setenv(f"{PREFIX}UNKNOWN_FIELDS", "reject")
    monkeypatch.setenv(f"{PREFIX}MAX_CHOICES", "8")
    settings = settings_from(args)
    assert (settings.reject_unknown_fields, settings.max_choices) == (True, 8)


def test_flags_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag counts more than the environment."""
    monkeypatch.setenv(f"{PREFIX}UNKNOWN_FIELDS", "reject")
    monkeypatch.setenv(f"{PREFIX}MAX_CHOICES", "8")
    settings = parsed("--unknown-fields", "report", "--max-choices", "9")
    assert (settings.reject_unknown_fields, settings.max_choices) == (False, 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UNKNOWN_FIELDS", "ignore"),
        ("MAX_CHOICES", "many"),
        ("GUIDED_TIMEOUT", "soon"),
        ("GUIDED_TIMEOUT", "nan"),
        ("GUIDED_TIMEOUT", "601"),
        ("GUIDED_CACHE_MB", "0"),
        ("GUIDED_CACHE_MB", "1.5"),
        ("GUIDED_FALLBACK", "ignore"),
    ],
    ids=str,
)
def test_wrong_variable_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A variable with a value that the flag would not take stops the start, and is named."""
    monkeypatch.setenv(f"{PREFIX}{name}", value)
    with pytest.raises(ValueError, match=value) as caught:
        settings_from(Namespace())
    assert f"{PREFIX}{name}" in str(caught.value)


def test_wrong_flag_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag with a wrong value ends with the parser's message."""
    with pytest.raises(SystemExit):
        parsed("--unknown-fields", "ignore")
    assert "--unknown-fields" in capsys.readouterr().err


def guided(settings: Settings) -> tuple[float, int, str]:
    return (settings.guided_timeout, settings.guided_cache_mb, settings.guided_fallback)


def test_guided_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guided decoding has a time limit, a cache and a fallback: flags before the environment."""
    assert guided(parsed()) == guided(settings_from(Namespace())) == (5, 256, "check")
    flags = ["--guided-timeout", "0.5", "--guided-cache-mb", "8", "--guided-fallback", "refuse"]
    assert guided(parsed(*flags)) == (0.5, 8, "refuse")
    monkeypatch.setenv(f"{PREFIX}GUIDED_TIMEOUT", "2.5")
    monkeypatch.setenv(f"{PREFIX}GUIDED_CACHE_MB", "9")
    monkeypatch.setenv(f"{PREFIX}GUIDED_FALLBACK", "refuse")
    assert guided(settings_from(Namespace(model="m"))) == (2.5, 9, "refuse")
    assert guided(parsed("--guided-fallback", "check")) == (2.5, 9, "check")


def test_texts_made_again_and_documents(tmp_path: Path) -> None:
    """How often a text is made again, and where documents lie, none of which is none."""
    assert (parsed().guided_retries, parsed().guided_documents) == (5, None)
    settings = parsed("--guided-retries", "0", "--guided-documents", str(tmp_path))
    assert (settings.guided_retries, settings.guided_documents) == (0, str(tmp_path))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--guided-timeout", "0"),
        ("--guided-timeout", "-1"),
        ("--guided-timeout", "inf"),
        ("--guided-cache-mb", "0"),
        ("--guided-cache-mb", "-1"),
        ("--guided-retries", "-1"),
        ("--guided-documents", "/no-such-folder"),
    ],
)
def test_guided_limits_have_bounds(flag: str, value: str) -> None:
    """A limit that would refuse everything, or bound nothing, stops the start."""
    with pytest.raises(ValueError, match=value) as caught:
        parsed(f"{flag}={value}")
    assert flag in str(caught.value)
