"""References of a JSON schema, none of which leads out of it: nothing is ever fetched."""

from typing import Any, TypeGuard
from urllib.parse import unquote

from adapter.languages.json_schema.schema import Schema, SchemaError, walk


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
    elif not based:
        refuse_elsewhere(reference)


def refuse_elsewhere(reference: str) -> None:
    """Refuse a reference that leads nowhere in the schema, if it would have to be fetched.

    Raises:
        SchemaError: it is one.
    """
    if not reference.startswith("#"):
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


def are_paths(schema: Schema) -> bool:
    """Whether all references are paths from the root, which check_reference() has followed."""
    nodes = list(walk(schema))
    return not any(
        "$dynamicRef" in node
        or "$recursiveRef" in node
        or ("$ref" in node and not is_local(node["$ref"]))
        or (node is not schema and ("$id" in node or "id" in node))
        for node in nodes
    )
