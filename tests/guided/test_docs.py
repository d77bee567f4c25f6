"""The tables of docs/guided-decoding.md are what the code does.

`python -m tests.guided.test_docs` writes them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adapter.guided.constraint import (
    AUTO,
    BACKENDS,
    LM_FORMAT_ENFORCER,
    Constraint,
    Kind,
)
from tests.guided.faults import FAULTS
from tests.guided.keyword_rows import ROWS

DOCS = Path(__file__).parents[2] / "docs" / "guided-decoding.md"

SAMPLES = {
    Kind.JSON: ("JSON schema", '{"type": "integer"}'),
    Kind.JSON_OBJECT: ("json_object", '{"type": "object"}'),
    Kind.REGEX: ("regex", "[a-z]{3}"),
    Kind.CHOICE: ("choice", '["a", "ab"]'),
    Kind.GRAMMAR: ("grammar", 'root ::= "a" root | "b"'),
}


@contextmanager
def a_compiler() -> Iterator[Any]:
    """What compiles for a vocabulary of all bytes."""
    from adapter.guided.backends.registry import Libraries
    from adapter.guided.compile.compiler import ConstraintCompiler
    from tests.guided.test_faults import BYTES

    with TemporaryDirectory() as folder:
        yield ConstraintCompiler(Libraries(BYTES), Path(folder))


def keywords_table(compiler: Any) -> str:
    """What becomes of each keyword of JSON Schema under auto."""
    lines = ["| keyword | for example | |", "|---|---|---|"]
    for row in ROWS:
        example = json.dumps(row.schema).replace("|", "\\|")
        lines.append(f"| {row.what} | `{example}` | {_outcome(compiler, row.schema)} |")
    return "\n".join(lines)


def _outcome(compiler: Any, schema: Any) -> str:
    from adapter.guided.compile.compiler import Refused

    try:
        compiled = compiler.compile(
            Constraint("f", Kind.JSON, json.dumps(schema), AUTO), relaxed=True
        )
    except Refused:
        return "refused"
    return "checked at the end" if compiled.checked else "held"


def kinds_table(compiler: Any) -> str:
    """Which library holds each kind of constraint, for each backend that may be named."""
    lines = [
        "| `guided_decoding_backend` | " + " | ".join(name for name, _ in SAMPLES.values()) + " |",
        "|---" * (len(SAMPLES) + 1) + "|",
    ]
    for backend in BACKENDS:
        cells = []
        for kind, (_, text) in SAMPLES.items():
            if kind is Kind.GRAMMAR and backend == LM_FORMAT_ENFORCER:
                cells.append("refused")
                continue
            compiled = compiler.compile(Constraint("f", kind, text, backend), relaxed=True)
            cells.append(" + ".join(dict.fromkeys(part.library for part in compiled.program.parts)))
        lines.append(f"| `{backend}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def faults_table() -> str:
    """What the plain libraries get wrong, and what becomes of it."""
    lines = ["| library | what it does alone | schema | text | here |", "|---|---|---|---|---|"]
    for fault in FAULTS:
        text = fault.text if len(fault.text) < 30 else f"{fault.text[:12]}…"
        verb = "rejects" if fault.rejects else "accepts"
        cells = (
            fault.backend,
            fault.what,
            f"`{json.dumps(fault.schema)}`",
            f"{verb} `{json.dumps(text)[1:-1] if chr(9) in text else text}`",
            fault.outcome,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The document with its tables as the code has them."""
    with a_compiler() as compiler:
        tables = {
            "kinds": kinds_table(compiler),
            "keywords": keywords_table(compiler),
            "faults": faults_table(),
        }
    for name, table in tables.items():
        start = text.index(f"<!-- {name}: ")
        start = text.index("-->\n", start) + len("-->\n")
        end = text.index(f"<!-- end of {name} -->")
        text = f"{text[:start]}{table}\n{text[end:]}"
    return text


def test_tables_are_the_code() -> None:
    """The document says what the code does."""
    text = DOCS.read_text("utf-8")
    assert text == written(text), "run python -m tests.guided.test_docs"


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text("utf-8")), "utf-8")
