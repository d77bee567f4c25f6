"""Strict schemas of the custom resources: what the API server knows, and nothing beside it."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.deploy.manifests import Manifest

# Beside the repository, not in it. A file a kind: {"group/version": openAPIV3Schema}.
CRDS = Path(__file__).parents[3] / "shared" / "crds"


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
    schemas = json.loads((CRDS / f"{kind}.json").read_text(encoding="utf-8"))
    if version not in schemas:
        return None
    schema = strict(schemas[version])
    # metadata is the API server's own; the schemas of custom resources leave it to it.
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(schema)


def faults(manifest: Manifest) -> list[str]:
    """What is wrong with a custom resource. The test is skipped where its schema is not there."""
    kind, version = manifest["kind"], manifest["apiVersion"]
    if not (CRDS / f"{kind}.json").exists():
        pytest.skip(f"no schema of {kind} in {CRDS.name}/ beside the repository")
    validator = _validator(kind, version)
    if validator is None:
        return [f"{kind} has no version {version}"]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]
