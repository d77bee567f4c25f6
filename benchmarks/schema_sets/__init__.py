"""JSON schemas with instances, for the guided benchmarks: `suite` is here, `bench` is fetched.

A row is {id, schema, tests?: [{data, valid, format?}], keyword?, remote?}. README.md says where the
schemas come from.
"""

import json
import lzma
import os
import random
from pathlib import Path
from typing import Any

from benchmarks.schema_sets.real import CACHE, real_schemas, with_instances

SUITE, BENCH = "suite", "bench"

_DOCUMENTS_FILE = Path(__file__).parent / "suite_documents.jsonl.xz"
_SUITE_FILE = Path(__file__).parent / "suite.jsonl.xz"

Row = dict[str, Any]


def read_set(name: str, folder: Path | None = None, limit: int | None = None) -> list[Row]:
    """The rows of `bench` or `suite`.

    folder: of NAME.jsonl, in place of the project's own.
    limit: only so many, from all over the set, in its order.

    Raises:
        BenchmarkError: bench cannot be fetched.
        OSError: the folder has no such file.
    """
    if folder is not None:
        return sample(_rows((folder / f"{name}.jsonl").read_text(encoding="utf-8")), limit)
    if name == SUITE:
        return sample(_rows(lzma.decompress(_SUITE_FILE.read_bytes()).decode()), limit)
    return [with_instances(row) for row in sample(real_schemas(), limit)]


def suite_documents() -> Path:
    """A folder of the documents that groups of the suite refer to, for --guided-documents."""
    folder = CACHE / "suite-documents"
    for row in _rows(lzma.decompress(_DOCUMENTS_FILE.read_bytes()).decode()):
        path = folder / row["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # whole at once: several processes may do this
            new = path.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(row["contents"]), encoding="utf-8")
            new.replace(path)
    return folder


def sample(rows: list[Row], limit: int | None) -> list[Row]:
    """So many rows from all over the list, in its order; the same ones each time."""
    if limit is None or limit >= len(rows):
        return rows
    places = random.Random(0).sample(range(len(rows)), limit)
    return [rows[place] for place in sorted(places)]


def _rows(text: str) -> list[Row]:
    # Not splitlines: a JSON text may hold other characters that end lines.
    return [json.loads(line) for line in text.split("\n") if line]
