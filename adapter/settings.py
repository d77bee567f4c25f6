"""The plugin's own settings: flags of adapter.serve, or environment variables elsewhere."""

import os
from argparse import ArgumentError, ArgumentParser
from dataclasses import dataclass
from typing import Any

PREFIX = "COMPLETION_V2_"


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose."""

    reject_unknown_fields: bool
    max_choices: int
    infill_template: str | None = None
    guided_timeout: float = 5.0
    """Seconds that compiling one constraint may take."""
    guided_cache_mb: int = 256
    guided_fallback: str = "check"
    """What auto does with a schema that no backend can hold: "check" the text, or "refuse" it."""


def for_llm_engine() -> bool:
    """Whether the server stands behind LLM Engine's gateway, which asks on another path."""
    return os.environ.get(f"{PREFIX}LLM_ENGINE", "0") == "1"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags, under one heading of --help. Their defaults come from the environment."""
    group = parser.add_argument_group("CompletionV2")
    group.add_argument(
        "--unknown-fields",
        choices=["report", "reject"],
        default=os.environ.get(f"{PREFIX}UNKNOWN_FIELDS", "report"),
        help="What to do with fields that the contract does not know: accept the request and name "
        "them in the response header x-ignored-fields, or refuse it with 400.",
    )
    group.add_argument(
        "--max-choices",
        type=int,
        default=os.environ.get(f"{PREFIX}MAX_CHOICES", "2048"),
        help="How many texts one request may ask for: its prompts times n or best_of.",
    )
    group.add_argument(
        "--infill-template",
        default=os.environ.get(f"{PREFIX}INFILL_TEMPLATE") or None,
        help="How the model is asked to fill the gap before a suffix: a text with {prefix} and "
        "{suffix}. Found from the tokenizer for the common families.",
    )
    group.add_argument(
        "--guided-timeout",
        type=float,
        default=os.environ.get(f"{PREFIX}GUIDED_TIMEOUT", "5"),
        help="Seconds of CPU time that compiling one guided decoding constraint may take; one that "
        "needs more is refused.",
    )
    group.add_argument(
        "--guided-cache-mb",
        type=int,
        default=os.environ.get(f"{PREFIX}GUIDED_CACHE_MB", "256"),
        help="Megabytes of compiled constraints that each API server keeps.",
    )
    group.add_argument(
        "--guided-fallback",
        choices=["check", "refuse"],
        default=os.environ.get(f"{PREFIX}GUIDED_FALLBACK", "check"),
        help="What backend auto does with a JSON schema that no backend can hold as a whole: hold "
        "what can be held and check the finished text, or refuse the request.",
    )
    # vLLM's --help lists the groups alone, so the group's own line names its flags.
    names = ", ".join(action.option_strings[0] for action in group._group_actions)
    group.description = f"The /v2/completions route: {names}."


def settings_from(args: Any) -> Settings:
    """The settings of a server started by adapter.serve, or by vLLM's own command.

    Raises:
        ValueError: a value that cannot be; the message names the flag and the variable.
    """
    parser = ArgumentParser(exit_on_error=False)
    add_flags(parser)
    try:
        values = parser.parse_args([])
    except ArgumentError as error:
        raise _wrong(str(error.argument_name), f"is wrong: {error.message}") from None
    for name in vars(values):
        setattr(values, name, getattr(args, name, getattr(values, name)))
    if values.unknown_fields not in ("report", "reject"):
        raise _wrong("--unknown-fields", f"must be report or reject, not {values.unknown_fields}")
    if values.max_choices < 1:
        raise _wrong("--max-choices", f"must be at least 1, not {values.max_choices}")
    if values.guided_fallback not in ("check", "refuse"):
        raise _wrong("--guided-fallback", f"must be check or refuse, not {values.guided_fallback}")
    if not 0 < values.guided_timeout <= 600:
        raise _wrong("--guided-timeout", f"must be from 0 to 600, not {values.guided_timeout}")
    if values.guided_cache_mb < 1:
        raise _wrong("--guided-cache-mb", f"must be at least 1, not {values.guided_cache_mb}")
    return Settings(
        reject_unknown_fields=values.unknown_fields == "reject",
        max_choices=values.max_choices,
        infill_template=values.infill_template,
        guided_timeout=values.guided_timeout,
        guided_cache_mb=values.guided_cache_mb,
        guided_fallback=values.guided_fallback,
    )


def _wrong(flag: str, what: str) -> ValueError:
    variable = PREFIX + flag.strip("-").replace("-", "_").upper()
    return ValueError(f"{flag}, or the environment variable {variable}, {what}")
