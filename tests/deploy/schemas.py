"""Strict schemas of the custom resources: what the API server knows, and nothing beside it."""

import functools
import json
import lzma
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.deploy.manifests import Manifest

# A file a kind: {"group/version": openAPIV3Schema}.
CRDS = Path(__file__).parents[1] / "data" / "crds"


def strict(schema: Any) -> Any:
    """A schema of Kubernetes' kind as JSON Schema that refuses unknown properties."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        # Under this key stand names of properties, which may be words of a schema too.
        key: {name: strict(inner) for name, inner in value.items()}
        if key == "properties"
        else strict(value)
        for key, value in schema.items()
    }
    # The words of Kubernetes; everything else means the same in JSON Schema.
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    open_to_all = made.pop("x-kubernetes-preserve-unknown-fields", False)
    if "properties" in made and not open_to_all:
        made.setdefault("additionalProperties", False)
    if made.pop("nullable", False):
        made = {"anyOf": [made, {"type": "null"}]}
    return made


@functools.cache
def _validator(kind: str, version: str) -> Draft202012Validator | None:
    schemas = json.loads(lzma.decompress((CRDS / f"{kind}.json.xz").read_bytes()))
    if version not in schemas:
        return None
    schema = strict(schemas[version])
    # metadata is the API server's own; the schemas of custom resources leave it to it.
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(schema)


def faults(manifest: Manifest) -> list[str]:
    """What is wrong with a custom resource.

    Raises:
        FileNotFoundError: the data has no schema of its kind.
    """
    kind, version = manifest["kind"], manifest["apiVersion"]
    validator = _validator(kind, version)
    if validator is None:
        return [f"{kind} has no version {version}"]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]
