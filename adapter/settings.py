"""The plugin's own settings: flags of adapter.serve, or environment variables elsewhere."""

import os
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

PREFIX = "COMPLETION_V2_"


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting as an operator gives it: a flag, or the environment variable of that name."""

    name: str
    help: str
    default: str | None
    """As it is written on a command line."""
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    allows: Callable[[Any], bool] = lambda _: True
    """Whether a value of the type may be."""
    bounds: str = ""
    """What `allows` asks for, in words behind "must be"."""
    setting: Callable[[Any], Any] = lambda value: value
    """The setting that a value means."""

    @property
    def dest(self) -> str:
        """Its attribute of parsed arguments."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.dest.upper()

    def add_to(self, group: Any) -> None:
        """Add it to a group of a parser's. Its default comes from the environment."""
        default = os.environ.get(self.variable, self.default)
        if self.default is None:
            default = default or None  # an empty variable is no value
        group.add_argument(
            self.name,
            type=self.type,
            choices=self.choices or None,
            default=default,
            help=self.help,
        )

    def check(self, value: Any) -> None:
        """Refuse a value that cannot be.

        Raises:
            ValueError: it names the flag and the variable.
        """
        if self.choices and value not in self.choices:
            raise self.wrong(f"must be {' or '.join(self.choices)}, not {value}")
        if not self.allows(value):
            raise self.wrong(f"must be {self.bounds}, not {value}")

    def wrong(self, what: str) -> ValueError:
        """The error of a wrong value."""
        return ValueError(f"{self.name}, or the environment variable {self.variable}, {what}")


def _positive(value: int) -> bool:
    return value >= 1


def _none_or_positive(value: int | None) -> bool:
    return value is None or value >= 1


def _set_by(*row: Any, **more: Any) -> Any:
    """A field that is set by the Flag of this row, whose default is the field's."""
    flag = Flag(*row, **more)
    default = None if flag.default is None else flag.setting(flag.type(flag.default))
    return field(default=default, metadata={"flag": flag})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose, each by a flag."""

    reject_unknown_fields: bool = _set_by(
        "--unknown-fields",
        "What to do with fields that the contract does not know: accept the request and name "
        "them in the response header x-ignored-fields, or refuse it with 400.",
        "report",
        choices=("report", "reject"),
        setting=lambda value: value == "reject",
    )
    max_choices: int = _set_by(
        "--max-choices",
        "How many texts one request may ask for: its prompts times n or best_of.",
        "2048",
        int,
        allows=_positive,
        bounds="at least 1",
    )
    max_prompts: int = _set_by(
        "--max-prompts",
        "How many prompts one request may have.",
        "2048",
        int,
        allows=_positive,
        bounds="at least 1",
    )
    max_prompt_tokens: int | None = _set_by(
        "--max-prompt-tokens",
        "How many tokens all prompts of one request may have together: 1048576, or the model's "
        "context where that is longer.",
        None,
        int,
        allows=_none_or_positive,
        bounds="at least 1",
    )
    max_body_mb: int = _set_by(
        "--max-body-mb",
        "Megabytes that the body of one request may have.",
        "16",
        int,
        allows=lambda value: 1 <= value <= 1024,
        bounds="from 1 to 1024",
    )
    request_timeout: float | None = _set_by(
        "--request-timeout",
        "Seconds that one request may take, from its body to the last byte of its answer. No "
        "limit by default.",
        None,
        float,
        allows=lambda value: value is None or 0 < value < float("inf"),
        bounds="above 0",
    )
    infill_template: str | None = _set_by(
        "--infill-template",
        "How the model is asked to fill the gap before a suffix: a text with {prefix} and "
        "{suffix}. Found from the tokenizer for the common families.",
        None,
    )
    guided_timeout: float = _set_by(
        "--guided-timeout",
        "Seconds of CPU time that compiling one guided decoding constraint may take; one that "
        "needs more is refused.",
        "5",
        float,
        allows=lambda value: 0 < value <= 600,
        bounds="from 0 to 600",
    )
    """Seconds that compiling one constraint may take."""
    guided_cache_mb: int = _set_by(
        "--guided-cache-mb",
        "Megabytes of compiled constraints that each API server keeps.",
        "256",
        int,
        allows=_positive,
        bounds="at least 1",
    )
    guided_fallback: str = _set_by(
        "--guided-fallback",
        "What backend auto does with a JSON schema that no backend can hold as a whole: hold "
        "what can be held and check the finished text, or refuse the request.",
        "check",
        choices=("check", "refuse"),
    )
    """What auto does with a schema that no backend can hold: "check" the text, or "refuse" it."""
    guided_documents: str | None = _set_by(
        "--guided-documents",
        "A folder of documents that JSON schemas may refer to: what https://host/path refers to is "
        "the file host/path in it. Nothing is ever fetched.",
        None,
        allows=lambda folder: folder is None or Path(folder).is_dir(),
        bounds="a folder",
    )
    guided_retries: int = _set_by(
        "--guided-retries",
        "How many times a text that failed that check is made again, before the request fails.",
        "5",
        int,
        allows=lambda value: 0 <= value <= 100,
        bounds="from 0 to 100",
    )


def _flag(setting: "Field[Any]") -> Flag:
    flag: Flag = setting.metadata["flag"]
    return flag


def for_llm_engine() -> bool:
    """Whether the server stands behind LLM Engine's gateway, which asks on another path."""
    return os.environ.get(f"{PREFIX}LLM_ENGINE", "0") == "1"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags, under one heading of --help. Their defaults come from the environment."""
    flags = [_flag(setting) for setting in fields(Settings)]
    # vLLM's --help lists the groups alone, so the group's own line names its flags.
    names = ", ".join(flag.name for flag in flags)
    group = parser.add_argument_group("CompletionV2", f"The /v2/completions route: {names}.")
    for flag in flags:
        flag.add_to(group)


def settings_from(args: Any) -> Settings:
    """The settings of a server started by adapter.serve, or by vLLM's own command.

    Raises:
        ValueError: a value that cannot be; the message names the flag and the variable.
    """
    flags = {setting.name: _flag(setting) for setting in fields(Settings)}
    defaults = _defaults(flags.values())
    values = {}
    for name, flag in flags.items():
        value = getattr(args, flag.dest, getattr(defaults, flag.dest))
        flag.check(value)
        values[name] = flag.setting(value)
    return Settings(**values)


def _defaults(flags: Iterable[Flag]) -> Namespace:
    """What the environment says, or the flags themselves.

    Raises:
        ValueError: a variable has a value that its flag cannot read.
    """
    parser = ArgumentParser(exit_on_error=False)
    add_flags(parser)
    try:
        return parser.parse_args([])
    except ArgumentError as error:
        (flag,) = (flag for flag in flags if flag.name == error.argument_name)
        raise flag.wrong(f"is wrong: {error.message}") from None
