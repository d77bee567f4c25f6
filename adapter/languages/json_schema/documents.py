"""References of all kinds as paths: `$id`, `$anchor`, `$dynamicRef`, `$recursiveRef`, metaschemas.

A dynamic reference means what the references on the way to it make it mean. So each schema that is
referred to is copied under `$defs`, once for each such meaning, and refers to its copies in turn.
How references are resolved is the referencing library's. Nothing is ever fetched: the metaschemas
of all drafts are there, and what an operator put into a folder.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema_specifications import REGISTRY

from adapter.languages.exact_json import loads_decimals
from adapter.languages.json_schema.references import is_local, refuse_elsewhere
from adapter.languages.json_schema.schema import Schema, SchemaError, walk, with_children

_MOST_COPIES = 2000
"""Schemas that are referred to, each counted once for each of its meanings."""

_DYNAMIC = frozenset(("$dynamicRef", "$recursiveRef"))
_REFERENCES = ("$ref", *sorted(_DYNAMIC))
_PLACES = frozenset(("$anchor", "$dynamicAnchor", "$id", "$recursiveAnchor", "id"))
"""What only says where a schema is found."""

_UNFOUND = (
    referencing.exceptions.Unresolvable,
    referencing.exceptions.NoSuchAnchor,
    referencing.exceptions.PointerToNowhere,
)


Documents = referencing.Registry[Any]
"""What schemas may refer to beside themselves, by its URI."""

METASCHEMAS: Documents = REGISTRY


def documents_in(folder: Path) -> Documents:
    """The metaschemas and the files of a folder: of https://host/path it is folder/host/path."""
    root = folder.resolve()

    def retrieve(uri: str) -> Any:
        parts = urlsplit(uri)
        path = (root / parts.netloc / unquote(parts.path).lstrip("/")).resolve()
        if parts.scheme not in ("http", "https") or not path.is_relative_to(root):
            raise referencing.exceptions.NoSuchResource(uri)
        try:
            contents = _read(path, path.stat().st_mtime_ns)
        except (OSError, ValueError):
            raise referencing.exceptions.NoSuchResource(uri) from None
        return referencing.Resource.from_contents(contents, referencing.jsonschema.DRAFT202012)

    empty: Documents = referencing.Registry(retrieve=retrieve)  # type: ignore[call-arg]  # by attrs
    return empty.with_resources(METASCHEMAS.items())


@lru_cache(1000)
def _read(path: Path, _changed: int) -> Any:
    """A document, which is the same object each time that it is referred to: copies go by that."""
    return loads_decimals(path.read_text("utf-8"))


def with_local_references(schema: Schema, documents: Documents = METASCHEMAS) -> Schema:
    """The same schema, in which every reference is `#` or a path from there.

    A schema that mixes drafts is left as it is.

    Raises:
        SchemaError: a reference leads nowhere, or out of the schema.
    """
    nodes = list(walk(schema))
    if isinstance(schema, bool) or not any(_needs_copies(node, node is schema) for node in nodes):
        return schema
    drafts = {node["$schema"] for node in nodes if isinstance(node.get("$schema"), str)}
    if len(drafts) > 1 or (drafts and "$schema" not in schema):
        return schema
    return _Copies(schema, documents).of_all()


def _needs_copies(node: dict[str, Any], is_root: bool) -> bool:
    if "$ref" in node and not isinstance(node["$ref"], str):
        raise SchemaError("$ref must be a string.")
    elsewhere = "$ref" in node and not is_local(node["$ref"])
    based = not is_root and isinstance(node.get("$id", node.get("id")), str)
    return elsewhere or based or not _DYNAMIC.isdisjoint(node)


def _may_be_dynamic(node: dict[str, Any]) -> bool:
    """Whether it is a dynamic reference, or leads to a document that may have some."""
    return not _DYNAMIC.isdisjoint(node) or not str(node.get("$ref", "#")).startswith("#")


class _Copies:
    """The copies of one document's schemas."""

    def __init__(self, schema: dict[str, Any], documents: Documents) -> None:
        self._schema = schema
        self._specification = _specification(schema)
        self._documents = documents
        self._resource = self._specification.create_resource(schema)
        self._is_dynamic = any(map(_may_be_dynamic, walk(schema)))
        self._prefix = _prefix(schema.get("$defs"))
        self._copies: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._waiting: list[tuple[str, Any, Any]] = []

    def of_all(self) -> Schema:
        try:
            uri = self._resource.id() or ""
            registry = self._documents.with_resource(uri, self._resource).crawl()
            root: dict[str, Any] = self._copy(self._schema, registry.resolver(uri))
            while self._waiting:
                name, contents, resolver = self._waiting.pop()
                self._copies[name] = self._copy(contents, resolver)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"its references cannot be read: {error}") from None
        return root | {"$defs": {**root.get("$defs", {}), **self._copies}}

    def _inner(self, schema: Any, resolver: Any) -> Any:
        """The copy of a schema inside one whose references the resolver resolves."""
        if not isinstance(schema, dict):
            return schema
        resource = self._specification.create_resource(schema)
        return self._copy(schema, resolver.in_subresource(resource))

    def _copy(self, schema: Any, resolver: Any) -> Any:
        """The copy of a schema whose references the resolver resolves."""
        if not isinstance(schema, dict):
            return schema
        kept = {name: value for name, value in schema.items() if name not in _PLACES}
        copied = with_children(kept, lambda inner: self._inner(inner, resolver))
        references = [
            {"$ref": self._reference(schema, name, resolver)}
            for name in _REFERENCES
            if name in schema
        ]
        for name in _REFERENCES:
            copied.pop(name, None)
        if len(references) > 1:
            return copied | {"allOf": [*copied.get("allOf", []), *references]}
        return copied | dict(*references)

    def _reference(self, schema: dict[str, Any], keyword: str, resolver: Any) -> str:
        """A path to the copy of what a reference stands for here."""
        reference = schema[keyword]
        try:
            if keyword == "$recursiveRef":
                found = referencing.jsonschema.lookup_recursive_ref(resolver)
            else:
                found = resolver.lookup(reference)
        except _UNFOUND:
            refuse_elsewhere(reference)
            raise SchemaError(f'$ref "{reference[:200]}" leads to nothing.') from None
        key = id(found.contents), self._scope(found.resolver)
        if key not in self._names:
            if len(self._names) == _MOST_COPIES:
                raise SchemaError(f"more than {_MOST_COPIES} references to different schemas.")
            self._names[key] = f"{self._prefix}{len(self._names)}"
            self._waiting.append((self._names[key], found.contents, found.resolver))
        return f"#/$defs/{self._names[key]}"

    def _scope(self, resolver: Any) -> tuple[str, ...]:
        """The documents that led here, the first ones first: they decide what a dynamic reference
        means."""
        if not self._is_dynamic:
            return ()
        uris = [uri for uri, _ in resolver.dynamic_scope()]
        return tuple(dict.fromkeys(reversed(uris)))


def _prefix(taken: Any) -> str:
    """How names begin that are none of those that are taken."""
    prefix = "r"
    while isinstance(taken, dict) and any(name.startswith(prefix) for name in taken):
        prefix += "r"
    return prefix


def _specification(schema: dict[str, Any]) -> Any:
    """The draft that a schema names, else the latest that reads it."""
    lists = any(isinstance(node.get("items"), list) for node in walk(schema))
    default = referencing.jsonschema.DRAFT7 if lists else referencing.jsonschema.DRAFT202012
    return referencing.jsonschema.specification_with(schema.get("$schema", ""), default=default)
