"""Constraints as a request's fields, and what tells whether a text is what they ask for.

What tells is nobody's here: re, regex's partial matches, jsonschema, pydantic's partial JSON, lark.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jsonschema
import lark
import regex
from pydantic_core import from_json

from tests.live.server import strict_json

BACKENDS = ("auto", "guidance", "xgrammar", "outlines", "lm-format-enforcer")
WITH_GRAMMARS = ("auto", "guidance", "xgrammar", "outlines")

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {"k": {"type": "string", "maxLength": 5}, "v": {"type": "integer"}},
    "required": ["k", "v"],
    "additionalProperties": False,
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked:
    """A constraint, and what tells whether a finished text, or the beginning of one, holds it."""

    fields: dict[str, Any]
    holds: Callable[[str], bool]
    begins: Callable[[str], bool]
    backends: tuple[str, ...] = BACKENDS

    def check(self, choices: Iterable[dict[str, Any]]) -> None:
        """Finished texts hold the constraint, cut ones begin one that does."""
        for choice in choices:
            text, reason = choice["text"], choice["finish_reason"]
            right = self.holds(text) if reason == "stop" else self.begins(text)
            assert right, f"{text!r} ({reason}) for {str(self.fields)[:300]}"


def by_regex(pattern: str) -> Asked:
    """guided_regex: Python's own fullmatch, and regex's partial one."""
    return Asked(
        {"guided_regex": pattern},
        lambda text: re.fullmatch(pattern, text) is not None,
        lambda text: regex.fullmatch(pattern, text, partial=True) is not None,
    )


def by_choice(*choices: str) -> Asked:
    """guided_choice: a member of the list, or the beginning of one."""
    return Asked(
        {"guided_choice": list(choices)},
        lambda text: text in choices,
        lambda text: any(choice.startswith(text) for choice in choices),
    )


def by_schema(schema: Any, field: str = "guided_json") -> Asked:
    """A JSON schema in guided_json or in response_format; jsonschema judges."""
    named = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    value = schema if field == "guided_json" else named
    return Asked({field: value}, lambda text: satisfies(schema, text), begins_json)


def by_object() -> Asked:
    """response_format json_object."""
    value = {"type": "json_object"}
    return Asked(
        {"response_format": value},
        lambda text: isinstance(strict_json(text), dict),
        lambda text: begins_json(text) and text.lstrip()[:1] in ("", "{"),
    )


def by_grammar(grammar: str, as_lark: str, begins: str) -> Asked:
    """guided_grammar: lark judges, by the same grammar in its form; `begins` is the same language
    as a regular expression, for cut texts."""
    parser = lark.Lark(as_lark)
    return Asked(
        {"guided_grammar": grammar},
        lambda text: _parses(parser, text),
        lambda text: regex.fullmatch(begins, text, partial=True) is not None,
        WITH_GRAMMARS,
    )


def _parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def satisfies(schema: Any, text: str) -> bool:
    """Whether a text is strict JSON that the schema allows."""
    try:
        jsonschema.validate(strict_json(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def begins_json(text: str) -> bool:
    """Whether more text could make it a JSON value."""
    try:
        # In a list, so that a cut word or number at the top may be cut too.
        from_json(f"[{text}", allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return False
    return True


# A string that the text's end cuts is a token too.
_JSON_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[-+.0-9eE]+|true|false|null|[\[\]{}:,]', re.DOTALL
)


def blank_runs(text: str, *, finished: bool) -> list[str]:
    """What stands between the tokens of a JSON text; of a cut text, without its last piece."""
    runs = []
    position = 0
    for token in _JSON_TOKEN.finditer(text):
        runs.append(text[position : token.start()])
        position = token.end()
    return [*runs, text[position:]] if finished else runs


def at_once(calls: Sequence[Callable[[], _T]], workers: int = 64) -> list[_T]:
    """The results of calls that run at the same time, in order; all failures together."""
    with ThreadPoolExecutor(min(len(calls), workers)) as pool:
        tasks = [pool.submit(call) for call in calls]
    failures = [error for task in tasks if (error := task.exception())]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(calls)} failed", failures)
    return [task.result() for task in tasks]


def on_each(backends: Iterable[str], call: Callable[[str], _T]) -> dict[str, _T]:
    """What a call gives for each backend, all in the engine at the same time."""

    def named(backend: str) -> _T:
        try:
            return call(backend)
        except BaseException as error:
            error.add_note(f"with guided_decoding_backend {backend}")
            raise

    names = list(backends)
    results = at_once([partial(named, name) for name in names])
    return dict(zip(names, results, strict=True))


def sums(dialect: str) -> Asked:
    """Sums of small numbers, in a dialect of guided_grammar."""
    as_lark = 'start: num ("+" num)*\nnum: /[0-9]{1,2}/'
    ebnf = 'root ::= sum\nsum ::= num ("+" num)*\nnum ::= [0-9] [0-9]?'
    return by_grammar(ebnf if dialect == "ebnf" else as_lark, as_lark, r"[0-9]{1,2}(\+[0-9]{1,2})*")
