"""References of a JSON schema, none of which leads out of it: nothing is ever fetched."""

from typing import Any, TypeGuard
from urllib.parse import unquote

from adapter.languages.json_schema.schema import Schema, SchemaError, as_schema, rewrite


def with_short_references(schema: Schema) -> Schema:
    """References by the schema's own `$id`, which stand for `#`, written so."""
    own = schema.get("$id") if isinstance(schema, dict) else None
    if not isinstance(own, str) or not own.rstrip("#"):
        return schema
    base = own.rstrip("#")

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = node.get("$ref")
        if isinstance(name, str) and name.partition("#")[0] == base:
            return node | {"$ref": "#" + name.partition("#")[2]}
        return node

    return as_schema(rewrite(schema, change))


def check_reference(reference: Any, root: Schema, based: bool) -> None:
    """Refuse a reference that leads nowhere, or out of the schema: nothing is ever fetched.

    based: there is an `$id` inside, which changes what references count from; the libraries judge.

    Raises:
        SchemaError: it is such a reference.
    """
    if not isinstance(reference, str):
        raise SchemaError("$ref must be a string.")
    if reference.startswith("#"):
        if reference[1:2] in ("", "/") and not based:
            resolve(reference, root)
    elif not based and not (isinstance(root, dict) and ("$id" in root or "id" in root)):
        raise SchemaError(
            f'$ref "{reference[:200]}" leads out of the schema, and nothing is fetched: put what '
            "it stands for under $defs."
        )


def resolve(reference: str, root: Any) -> Any:
    """What a local reference (`#`, `#/$defs/name`) stands for: a JSON pointer as a URI's fragment.

    Raises:
        SchemaError: there is nothing at that place.
    """
    node = root
    for token in unquote(reference[1:]).split("/")[1:]:
        try:
            node = _member(node, token.replace("~1", "/").replace("~0", "~"))
        except (KeyError, IndexError, ValueError, TypeError):
            raise SchemaError(f'$ref "{reference[:200]}" leads to nothing.') from None
    return node


def _member(node: Any, key: str) -> Any:
    return node[int(key)] if isinstance(node, list) and key.isdigit() else node[key]


def is_local(reference: Any) -> TypeGuard[str]:
    """Whether it names a place in the schema by a path, for `resolve`."""
    return isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
