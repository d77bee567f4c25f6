"""From a constraint to what the libraries run, and whether they can.

It runs in a process that can be stopped, since some libraries take seconds, or for ever, over some
constraints. What comes out was compiled once and is known to work.

JSON schemas rest on one fact: llguidance never lets a text through that the schema forbids, and
the other libraries do. So llguidance stands guard over each of the others, which narrow what it
allows as far as they can follow the schema.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path

import numpy as np

from adapter.errors import one_line
from adapter.guided.backends.outlines_schema import regex_of_schema
from adapter.guided.backends.registry import Libraries, Maker, Preparing
from adapter.guided.compile import validation
from adapter.guided.compile.cost import affordable_beginnings, expected_seconds
from adapter.guided.compile.fit import check_names_are_counted
from adapter.guided.constraint import (
    AUTO,
    GUIDANCE,
    LM_FORMAT_ENFORCER,
    OUTLINES,
    XGRAMMAR,
    Constraint,
    Kind,
)
from adapter.guided.program import Members, Part, Program, Shape, Whitespace
from adapter.guided.structure import structure_of
from adapter.guided.whitespace import DEFAULT
from adapter.json_language.grammar.places import Place
from adapter.json_language.grammar.write import Held, TooLargeError, held
from adapter.languages import exact_json
from adapter.languages.budget import BudgetExceededError
from adapter.languages.grammar.write import as_ebnf, as_lark
from adapter.languages.json_schema.documents import METASCHEMAS, Documents
from adapter.languages.json_schema.read import read_schema, without_formats, without_unknown_draft
from adapter.languages.json_schema.references import are_paths
from adapter.languages.json_schema.schema import Schema, SchemaError
from adapter.languages.regex.choices import choices
from adapter.languages.regex.language import is_empty
from adapter.languages.regex.parse import parse, parse_part
from adapter.languages.regex.tree import Node, PatternError, is_plain, plain_superset
from adapter.languages.regex.whitespace import json_whitespace, whitespace_automaton
from adapter.languages.regex.write import to_ebnf, to_lark_terminal, to_python, to_rust


@dataclass(frozen=True, slots=True)
class Compiled:
    """A constraint as libraries enforce it."""

    program: Program
    backend: str
    """The backend that does it, for the caller."""
    checked: bool = False
    """The libraries hold less than the schema says: the finished text has to be validated."""


class Refused(ValueError):
    """A constraint that cannot be served."""

    def __init__(self, message: str, field: str | None = None) -> None:
        """field: the request's field at fault where it is not the constraint's own."""
        super().__init__(message)
        self.message = message
        self.field = field


_NAMES = Members()
"""No name twice in an object."""

# How many times as long as it may take an estimate has to be, to be sure.
_FAR = 1.5

# Seconds that a named library may take over texts to choose from; the guard holds more of them.
_QUICK = 0.3

# States of a whitespace pattern: each costs the engine two masks.
_MOST_RUNS = 256


class ConstraintCompiler:
    """Compiles constraints for one vocabulary."""

    def __init__(
        self, libraries: Libraries, folder: Path, documents: Documents = METASCHEMAS
    ) -> None:
        """folder: where compiled indexes are left for the engine.

        documents: what schemas may refer to beside themselves.
        """
        self.documents = documents
        self._libraries = libraries
        self._folder = folder
        self._made: dict[Part, Maker] = {}
        """What was compiled for the constraint at hand."""
        self._knows_format = cache(self._try_format)

    def compile(self, constraint: Constraint, *, relaxed: bool, seconds: float = inf) -> Compiled:
        """The program of a constraint, which its libraries are known to run.

        relaxed: a schema that no library can hold may be served by a check of the finished text.
        seconds: what it may take; what would surely take longer is refused at once.

        Raises:
            Refused: with a message for the caller.
        """
        self._made.clear()
        try:
            return self._compile_kind(constraint, relaxed, seconds)
        except Refused:
            raise
        except ValueError as error:  # of the caller's text, or of a library
            raise Refused(f"{constraint.field}: {_line(str(error))}.") from None

    def _compile_kind(self, constraint: Constraint, relaxed: bool, seconds: float) -> Compiled:
        if constraint.kind is Kind.JSON:
            return self._json(constraint, relaxed)
        if constraint.kind is Kind.JSON_OBJECT:
            return self._json_object(constraint)
        if constraint.kind is Kind.GRAMMAR:
            return self._first(constraint, _grammar_parts(constraint))
        if constraint.kind is Kind.CHOICE:
            return self._choice(constraint, json.loads(constraint.text), seconds)
        return self._regex(constraint, seconds)

    def _choice(self, constraint: Constraint, texts: list[str], seconds: float) -> Compiled:
        node, backend = choices(texts), constraint.backend
        if expected_seconds(backend, node) < _QUICK or "\0" in "".join(texts):
            return self._first(constraint, _regex_parts(constraint, node, seconds))
        # What the guard holds already, the library need not be told as a whole.
        guard = Part("guidance", "regex", to_rust(node))
        told = affordable_beginnings(backend, texts, _QUICK)
        parts = [guard, *_regex_parts(constraint, told, seconds)]
        return self._from_parts(list(map(self._prepared, parts)), backend, None)

    def _regex(self, constraint: Constraint, seconds: float) -> Compiled:
        node = parse(constraint.text)
        if is_plain(node):
            return self._first(constraint, _regex_parts(constraint, node, seconds))
        try:
            if is_empty(node):
                raise PatternError("no text matches it")
        except BudgetExceededError:
            raise PatternError("its look-around is too large") from None
        parts = _guarded_parts(constraint, node, seconds)
        backend = GUIDANCE if constraint.backend == AUTO else constraint.backend
        return self._from_parts(list(map(self._prepared, parts)), backend, None)

    # --- JSON

    def _json_object(self, constraint: Constraint) -> Compiled:
        """Any JSON object. Two libraries read that too narrowly, or wrongly: llguidance does it."""
        guard = Part("guidance", "json", constraint.text)
        if constraint.backend != XGRAMMAR:
            return self._from_parts([guard], GUIDANCE, _whitespace(constraint), _NAMES)
        own = Part("xgrammar", "json", constraint.text)
        return self._from_parts([guard, own], XGRAMMAR, _whitespace(constraint), _NAMES)

    def _json(self, constraint: Constraint, relaxed: bool) -> Compiled:
        try:
            return self._read_json(
                constraint, read_schema(constraint.text, self.documents), relaxed
            )
        except (TypeError, AttributeError, ArithmeticError, KeyError):
            fault = validation.schema_fault(exact_json.loads(constraint.text))
            raise SchemaError(f"it is not a JSON schema: {fault}") from None

    def _read_json(self, constraint: Constraint, schema: Schema, relaxed: bool) -> Compiled:
        known = without_formats(schema, self._knows_format)
        guard, members, checked = self._guard(constraint, schema, known, relaxed)
        whitespace = _whitespace(constraint)
        if constraint.backend in (AUTO, GUIDANCE):
            compiled = self._from_parts([guard], GUIDANCE, whitespace, members)
            return replace(compiled, checked=checked)
        try:
            own = self._own_json(constraint, known)
            return self._from_parts([guard, own], constraint.backend, whitespace, members)
        except ValueError as error:
            message = error.message if isinstance(error, Refused) else _line(str(error))
            raise Refused(
                f"{constraint.field}: {constraint.backend} cannot hold this schema: {message}. "
                f"guidance can: name it, or leave out guided_decoding_backend."
            ) from None

    def _guard(
        self, constraint: Constraint, schema: Schema, known: Schema, relaxed: bool
    ) -> tuple[Part, Members, bool]:
        """What holds the schema, and whether the finished text has to be checked as well.

        known: the schema as llguidance's own reader is given it, which follows some references that
        the normal form does not, and takes schemas that are too large for it.
        """
        part = Part("guidance", "json", exact_json.dumps(without_unknown_draft(known)))
        try:
            own = self._held(schema)
        except SchemaError:
            if fault := validation.schema_fault(schema):
                raise Refused(f"{constraint.field} is not a JSON schema: {_line(fault)}.") from None
            self._raise_closer_reason(part)
            raise
        if own is not None and own.complete:
            return Part("guidance", "lark", own.lark), _members(own.places), False
        try:
            self._compile_part(part)
            check_names_are_counted(schema)
        except ValueError as error:
            if fault := validation.schema_fault(schema):
                raise Refused(f"{constraint.field} is not a JSON schema: {_line(fault)}.") from None
            if constraint.backend != AUTO or not relaxed:
                raise Refused(_cannot(constraint, str(error), relaxed)) from None
        else:
            return part, _NAMES, False
        if fault := validation.check_fault(known):
            raise Refused(f"{constraint.field}: {fault}.")
        lenient = Part("guidance", "json-lenient", part.text)
        if own is None or not are_paths(known):
            self._compile_part(lenient)  # which follows all references
        if own is None:
            return lenient, _NAMES, True
        return Part("guidance", "lark", own.lark), _members(own.places), True

    def _raise_closer_reason(self, part: Part) -> None:
        """llguidance says more closely what of a schema cannot be satisfied, where it reads it."""
        try:
            self._compile_part(part)
        except ValueError as error:
            if "Unsatisfiable" in str(error):
                raise

    def _held(self, schema: Schema) -> Held | None:
        """The schema's own grammar; None where it, or what llguidance makes of it, is too large.

        Raises:
            SchemaError: no text satisfies the schema, or it is none.
        """
        try:
            own = held(schema)
        except TooLargeError:
            return None
        try:
            self._compile_part(Part("guidance", "lark", own.lark))
        except ValueError:
            return None
        return own

    def _own_json(self, constraint: Constraint, schema: Schema) -> Part:
        """What the named library makes of the schema."""
        if constraint.backend == LM_FORMAT_ENFORCER:
            return Part("lm-format-enforcer", "json", exact_json.dumps(schema))
        if constraint.backend == OUTLINES:
            pattern = _whitespace_pattern(constraint)
            whitespace = None if pattern is None else f"(?:{to_rust(pattern)})"
            regex = regex_of_schema(schema, whitespace)
            return self._prepared(Part("outlines", "regex", regex))
        return Part("xgrammar", "json", exact_json.dumps(structure_of(schema)))

    def _try_format(self, name: str) -> bool:
        part = Part("guidance", "json", json.dumps({"type": "string", "format": name}))
        try:
            self._libraries.compile(part)
        except ValueError:
            return False
        return True

    # --- all kinds

    def _compile_part(self, part: Part) -> Maker:
        if part not in self._made:
            self._made[part] = self._libraries.compile(part)
        return self._made[part]

    def _first(self, constraint: Constraint, parts: Sequence[Part]) -> Compiled:
        """The first of several ways that a library can go."""
        faults = []
        for part in parts:
            try:
                return self._from_parts([self._prepared(part)], part.library, None)
            except ValueError as error:
                faults.append(f"{part.library}: {_line(str(error))}")
        raise Refused(f"{constraint.field} cannot be held by {'; '.join(faults)}.")

    def _prepared(self, part: Part) -> Part:
        """The part with what its library compiled, where that can be handed on to the engine."""
        backend = self._libraries.backend(part.library)
        if part.form != "regex" or not isinstance(backend, Preparing):
            return part
        name = hashlib.sha256(part.text.encode()).hexdigest()
        path = self._folder / f"{name}.{part.library}"
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            new = path.with_suffix(f".{os.getpid()}")
            backend.prepare(part.text, new)
            size = new.stat().st_size
            new.replace(path)
        return replace(part, artifact=str(path), artifact_bytes=size)

    def _from_parts(
        self,
        parts: Sequence[Part],
        backend: str,
        whitespace: Whitespace | None,
        members: Members | None = None,
    ) -> Compiled:
        """These parts, each compiled, and together able to begin a text.

        Raises:
            ValueError: a library cannot do its part.
        """
        program = Program(tuple(parts), whitespace, members)
        guide = self._libraries.guide(program, [self._compile_part(part) for part in parts])
        guide.fill(np.zeros(self._libraries.vocabulary.words, np.int32))
        if guide.failure is not None:
            raise ValueError("no text satisfies it")
        return Compiled(program, backend)


def _members(places: Sequence[Place]) -> Members:
    shapes = (
        Shape(
            members=tuple(place.members.items()),
            others=place.others,
            items=place.items,
            unique=place.unique,
            containers=place.containers,
            bounded_names=place.bounded_names,
            bounded_items=place.bounded_items,
        )
        for place in places
    )
    return Members(tuple(shapes))


def _guarded_parts(constraint: Constraint, node: Node, seconds: float) -> list[Part]:
    """What llguidance alone can hold, and beside it what a named library can hold of it."""
    guard = Part("guidance", "lark", f"start: T\nT: {to_lark_terminal(node)}\n")
    if constraint.backend in (AUTO, GUIDANCE):
        return [guard]
    return [guard, *_regex_parts(constraint, plain_superset(node), seconds)]


def _regex_parts(constraint: Constraint, node: Node, seconds: float) -> list[Part]:
    """The libraries that hold a regular expression exactly, the fastest first.

    Raises:
        Refused: the named library would take far longer than it may.
    """
    backend = constraint.backend
    expected = expected_seconds(backend, node)
    if expected > _FAR * seconds:
        raise Refused(
            f"{constraint.field}: {backend} would take some {expected:.0f} s to compile it, and "
            f"{seconds:g} s are allowed. guidance is quick: name it, or leave out "
            "guided_decoding_backend."
        )
    ways = {
        GUIDANCE: lambda: Part("guidance", "regex", to_rust(node)),
        XGRAMMAR: lambda: Part("xgrammar", "ebnf", to_ebnf(node)),
        OUTLINES: lambda: Part("outlines", "regex", to_rust(node)),
        LM_FORMAT_ENFORCER: lambda: Part("lm-format-enforcer", "regex", to_python(node)),
    }
    names = (GUIDANCE, XGRAMMAR) if backend == AUTO else (backend,)
    return [ways[name]() for name in names]


def _grammar_parts(constraint: Constraint) -> list[Part]:
    """Outlines itself has no grammars of its own and serves them by llguidance; so do we."""
    lark = as_lark(constraint.text)
    ebnf = as_ebnf(constraint.text)
    guidance = Part("guidance", "lark", lark)
    xgrammar = Part("xgrammar", "lark", lark) if ebnf is None else Part("xgrammar", "ebnf", ebnf)
    if constraint.backend == AUTO:
        return [guidance, xgrammar]
    return [xgrammar if constraint.backend == XGRAMMAR else guidance]


def _whitespace_pattern(constraint: Constraint) -> Node | None:
    if constraint.whitespace is None:
        return None
    try:
        return json_whitespace(parse_part(constraint.whitespace))
    except PatternError as error:
        raise Refused(
            f"guided_whitespace_pattern: {_line(str(error))}.", field="guided_whitespace_pattern"
        ) from None


def _whitespace(constraint: Constraint) -> Whitespace:
    """The automaton of the whitespace between tokens."""
    pattern = _whitespace_pattern(constraint)
    if pattern is None:
        return DEFAULT
    try:
        moves, accepts = whitespace_automaton(pattern, _MOST_RUNS)
    except PatternError as error:
        raise Refused(
            f"guided_whitespace_pattern: {_line(str(error))}.", field="guided_whitespace_pattern"
        ) from None
    return Whitespace(tuple((a, b, c, d) for a, b, c, d in moves), tuple(accepts))


def _cannot(constraint: Constraint, why: str, relaxed: bool) -> str:
    named = "" if constraint.backend == AUTO else f"{constraint.backend} cannot hold this schema: "
    way = (
        ' "auto" can: it checks the finished text for the rest.'
        if relaxed and constraint.backend != AUTO
        else ""
    )
    return f"{constraint.field}: {named}{_line(why)}.{way}"


def _line(text: str) -> str:
    """A library's message, to go on in the same sentence."""
    return one_line(text).rstrip(".")
