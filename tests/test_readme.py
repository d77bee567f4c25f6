"""What README says is what the code does. `python -m tests.test_readme` rewrites its table."""

import re
from pathlib import Path

from adapter.contract.request import CompletionV2Request
from adapter.planning.fields import FIELDS

README = Path(__file__).parent.parent / "README.md"
BEGIN = (
    "<!-- fields: written by `python -m tests.test_readme` from adapter/planning/fields.py -->\n"
)
END = "<!-- end of fields -->"


def rendered_table() -> str:
    """The table of all fields, in FIELDS' order."""
    rows = [f"| `{name}` | {field.words} |\n" for name, field in FIELDS.items()]
    return "| field | what happens |\n|---|---|\n" + "".join(rows)


def with_table(text: str) -> str:
    """README with the table as the code has it."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + rendered_table() + END + rest.split(END)[1]


def test_readme_table_is_the_code() -> None:
    """README's table is generated from the code and was not forgotten."""
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text


def test_readme_lists_every_field_of_the_contract() -> None:
    """Each of the contract's fields has one row."""
    rows = re.findall(r"^\| `(\w+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(CompletionV2Request.model_fields)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
