"""The parts of a report, and how they read in a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its title."""

    title: str
    png: bytes
    """The content of a PNG file, drawn for a white ground."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column is text, the others are numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Each as long as the header."""
    note: str = ""
    """What stands above it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    text: Sequence[str] = ()
    """Paragraphs, plain text."""
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; the first is text, the others are numbers."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |"
        for line in [header, ruler, *rows]
    )


def as_text(sections: Iterable[Section]) -> str:
    """Sections for a terminal, their pictures left out."""
    parts = []
    for section in sections:
        parts.append(f"## {section.title}")
        if section.text:
            parts.append("\n".join(section.text))
        for grid in section.grids:
            if grid.note:
                parts.append(grid.note)
            parts.append(table(grid.header, grid.rows))
    return "\n\n".join(parts)
