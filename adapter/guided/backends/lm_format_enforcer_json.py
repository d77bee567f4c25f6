"""JSON by lm-format-enforcer's parsers, mended, as an automaton that is made as it is walked."""

import importlib.util
import json
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from lmformatenforcer import (
    CharacterLevelParserConfig,
    SequenceParser,
    StringParser,
    UnionParser,
)

from adapter.guided.backends.lm_format_enforcer_regex import MOST_MASKS
from adapter.guided.backends.lm_format_enforcer_shapes import Shapes
from adapter.guided.matcher import Mask
from adapter.guided.token_trie import UNFINISHED, TokenRuns

_Bools = npt.NDArray[np.bool_]

_MOST_STATES = 5_000  # some 20 Python objects each
_MOST_CHECKS = 250  # tokens of one mask, up to 50 microseconds each: it is the engine's step


# --- the library's JSON parsers, mended ---


def _private_copy() -> Any:
    """The module once more, for us to mend: whoever else imports the library has the original."""
    spec = importlib.util.find_spec("lmformatenforcer.jsonschemaparser")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_lib = _private_copy()
_Stage = _lib.ObjectParsingStage


class _String(_lib.StringParsingState):  # type: ignore[misc, name-defined]
    """Blanks and escapes of an enum's strings are compared as they are written."""

    def add_character(self, new_character: str) -> Any:
        inside = self.seen_opening_quote and not self.seen_closing_quote
        if not inside or not self.require_closing_quote:
            return super().add_character(new_character)
        if new_character == "\\" and not self.allowed_strings:
            return super().add_character(new_character)
        new = self._clone()
        if new_character == '"' and self.parsed_string in (
            self.allowed_strings or [self.parsed_string]
        ):
            new.seen_closing_quote = True
            return new
        new.parsed_string += new_character
        if self.allowed_strings:
            new.allowed_strings = [
                text for text in self.allowed_strings if text.startswith(new.parsed_string)
            ]
        return new


class _List(_lib.ListParsingState):  # type: ignore[misc, name-defined]
    """The library counts some items twice: the guard counts."""

    def get_allowed_control_characters(self) -> str:
        return ",]"


class _Object(_lib.ObjectParsingState):  # type: ignore[misc, name-defined]
    """Names beside the declared ones are possible, unless the schema forbids them."""

    def __init__(self, schema_object: Any, root: Any) -> None:
        super().__init__(schema_object, root)
        self.is_dictionary = schema_object.additionalProperties is not False

    def add_character(self, new_character: str) -> Any:
        if self.current_stage != _Stage.PARSING_KEY_VALUE_SEPARATOR or new_character != ":":
            return super().add_character(new_character)
        name = self.root.context.active_parser.last_parsed_string
        known = self.clone()
        if name in (self.schema_object.properties or {}):
            known.is_dictionary = False
        elif "\\" in name:
            # The library does not keep what was escaped, so this may be any name.
            known.schema_object = _lib.JsonSchemaParser.ANY_JSON_OBJECT_SCHEMA
        new = super(_Object, known).add_character(new_character)
        new.schema_object, new.is_dictionary = self.schema_object, self.is_dictionary
        # Of other names the guard knows that they came, and fewer states are sooner known.
        new.existing_keys = [n for n in new.existing_keys if n in self.schema_object.required]
        return new


_lib.StringParsingState, _lib.ListParsingState, _lib.ObjectParsingState = _String, _List, _Object


# --- when two parsers are in the same state ---

_DIGITS = str.maketrans("23456789\t\n\r", "11111111   ")


def _key(parser: Any) -> Hashable:
    """Equal for parsers that allow the same texts from here on."""
    if isinstance(parser, _lib.JsonSchemaParser):
        stack = parser.object_stack
        return ("json", *map(_stacked_key, stack, [None, *stack]))
    if isinstance(parser, UnionParser):
        return ("union", frozenset(map(_key, parser.parsers)))
    if isinstance(parser, SequenceParser):
        return ("sequence", *map(_key, parser.parsers))
    if isinstance(parser, StringParser):
        return ("text", parser.target_str)
    return _stacked_key(parser, None)


def _stacked_key(parser: Any, below: Any) -> Hashable:
    if isinstance(parser, _String):
        return _string_key(parser, below)
    if isinstance(parser, _Object):
        return (id(parser.schema_object), parser.current_stage, *sorted(parser.existing_keys))
    if isinstance(parser, _List):
        return (id(parser.list_member_type), parser.seen_list_opener, parser.seen_list_closer)
    if isinstance(parser, _lib.NumberParsingState):
        return _number_key(parser)
    if isinstance(parser, _lib.ForceStopParser):
        return "stop"
    return _key(parser)


def _string_key(parser: Any, below: Any) -> Hashable:
    read = parser.parsed_string
    if not parser.allowed_strings:
        # Only of a name does it matter what was read, and only what a declared name begins with.
        is_name = isinstance(below, _Object) and (
            below.current_stage == _Stage.PARSING_KEY_VALUE_SEPARATOR
        )
        names = (below.schema_object.properties or ()) if is_name else ()
        if is_name and "\\" in read:
            read = "\\"
        elif not any(name.startswith(read) for name in names):
            read = '"'
    return (
        *(read, tuple(parser.allowed_strings or ()), parser.require_closing_quote),
        *(parser.seen_opening_quote, parser.seen_closing_quote),
    )


def _number_key(parser: Any) -> Hashable:
    read = parser.parsed_string.translate(_DIGITS)
    return (
        *(read if len(read) < 3 else read[-1:].replace("0", "1") * 3, parser.allow_floating_point),
        *(parser.seen_decimal_point, parser.seen_exponent, parser.seen_digit),
        parser.seen_whitespace_after_digits,
    )


# --- JSON schemas ---


class JsonAutomaton:
    """A JSON schema; its states are made when a text or a token first comes to them."""

    def __init__(self, tokens: TokenRuns, schema: str) -> None:
        shapes = Shapes(json.loads(schema))
        context = _lib.JsonSchemaParser._Context()
        context.model_class = shapes.of([shapes.root])
        # Characters that the schema does not write are all alike.
        self.written = frozenset(shapes.written)
        self.other = next(c for c in map(chr, range(0xE000, 0xF000)) if c not in self.written)
        alphabet = "".join(map(chr, range(0x20, 0x80))) + "".join(self.written) + self.other
        context.alphabet_without_quotes = alphabet.replace('"', "")
        context.regex_parser_cache = {}
        config = CharacterLevelParserConfig(
            alphabet=alphabet,
            max_consecutive_whitespaces=1 << 62,
            force_json_field_order=False,
            max_json_array_length=0,
        )
        self.tokens = tokens
        self._states: dict[Hashable, _State] = {}
        self._masked: deque[_State] = deque()
        self.start = self.state(_lib.JsonSchemaParser(context, config))

    def state(self, parser: Any, pending: bytes = b"") -> "_State":
        """The one state for all parsers that allow the same."""
        parsers = {_key(each): each for each in _forks(parser)}
        key = (frozenset(parsers) if len(parsers) > 1 else next(iter(parsers), None), pending)
        if (found := self._states.get(key)) is None:
            if len(self._states) >= _MOST_STATES:
                for state in self._states.values():
                    state.next.clear()
                self._states.clear()
            found = self._states[key] = _State(self, list(parsers.values()), pending)
        return found

    def narrow(self, state: "_State", mask: Mask) -> None:
        if state.allowed is None:
            self._masked.append(state)
            if len(self._masked) > MOST_MASKS:
                self._masked.popleft().forget()
        state.narrow(mask)

    def after(self, state: "_State", text: bytes) -> "_State | None":
        return state.after(text)

    def ends(self, state: "_State") -> bool:
        return state.ends


def _forks(parser: Any) -> Iterator[Any]:
    if isinstance(parser, UnionParser):
        for each in parser.parsers:
            yield from _forks(each)
    else:
        yield parser


class _State:
    """A place in the texts that a schema allows: parsers, and the bytes of an unfinished character.

    What is allowed is found out token by token, and only for those that a mask asks for.
    """

    __slots__ = (
        "_characters",
        "_checked",
        "_free",
        "_owner",
        "_parser",
        "_pending",
        "allowed",
        "ends",
        "next",
    )

    def __init__(self, owner: JsonAutomaton, parsers: list[Any], pending: bytes) -> None:
        self._owner = owner
        self._parser = parsers[0] if len(parsers) == 1 else UnionParser(parsers)
        self._pending = pending
        self._characters = self._parser.get_allowed_characters()
        self._free = not pending and any(parser.shortcut_key() for parser in parsers)
        self.ends = not pending and bool(self._parser.can_end())
        self.next: dict[int, _State | None] = {}
        self.allowed: Mask | None = None
        self._checked: Mask = owner.tokens.textless

    def forget(self) -> None:
        """Give up the mask."""
        self.allowed = None
        self._checked = self._owner.tokens.textless

    def after(self, text: bytes) -> "_State | None":
        """The state after these bytes, None where they are not allowed."""
        state = self
        for byte in text:
            try:
                following = state.next[byte]
            except KeyError:
                following = state.next[byte] = state._step(byte)
            if following is None:
                return None
            state = following
        return state

    def _step(self, byte: int) -> "_State | None":
        text = self._pending + bytes((byte,))
        try:
            character = text.decode()
        except UnicodeDecodeError as error:
            unfinished = error.reason == UNFINISHED and self._may_become(text)
            return self._owner.state(self._parser, text) if unfinished else None
        if byte >= 0x80 and character not in self._owner.written:
            character = self._owner.other
        if character not in self._characters:
            return None
        return self._owner.state(self._parser.add_character(character))

    def _may_become(self, start: bytes) -> bool:
        """Whether an allowed character begins with these bytes. With any, all others are."""
        return self._owner.other in self._characters or any(
            character.encode().startswith(start)
            for character in self._characters
            if character > "\x7f"
        )

    def narrow(self, mask: Mask) -> None:
        """Clear what may not come next."""
        tokens = self._owner.tokens
        if self.allowed is None:
            self.allowed = tokens.json_text.copy() if self._free else np.zeros_like(mask)
            self._checked = tokens.textless | self.allowed
        unknown = mask & ~self._checked
        if unknown.any():
            some = _ids(unknown)[:_MOST_CHECKS]
            self._allow(self.allowed, some)
            now = np.zeros_like(mask)
            _set(now, some)
            self._checked = self._checked | now
            unknown &= ~now
        # What was not looked at yet is the guard's alone, and is looked at when it is taken.
        np.bitwise_and(mask, self.allowed | unknown, out=mask)

    def _allow(self, mask: Mask, ids: npt.NDArray[np.int64]) -> None:
        """Set the bits of those of these tokens that may come next."""
        tokens = self._owner.tokens
        likely = ids[self._first_bytes()[tokens.first[ids]]].tolist()
        _set(mask, np.array([i for i in likely if self.after(tokens.texts[i])], np.int64))

    def _first_bytes(self) -> _Bools:
        possible = np.zeros(256, np.bool_)
        possible[[ord(c) for c in self._characters if c < "\x80" and not self._pending]] = True
        possible[0x80:] = self._pending != b"" or max(self._characters, default="") >= "\x80"
        return possible


def _set(mask: Mask, ids: npt.NDArray[np.int64]) -> None:
    """Set the bits of these tokens."""
    numbers = ids.astype(np.uint32)
    np.bitwise_or.at(mask.view(np.uint32), numbers >> 5, np.uint32(1) << (numbers & 31))


def _ids(mask: Mask) -> npt.NDArray[np.int64]:
    """The tokens of a mask, quickly where they are few."""
    words = np.flatnonzero(mask)
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").view(np.bool_)
    found: npt.NDArray[np.int64] = (words[:, None] * 32 + np.arange(32)).reshape(-1)[bits]
    return found
