"""A report: its parts, how they read in a terminal, and as an HTML page that needs nothing else."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape


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


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #d5d9de; --quiet: #5a626b; --stripe: #f4f6f8; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --line: #3b4149; --quiet: #a3abb5; --stripe: #1f2327; }}
}}
body {{
  font: 1rem/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: anywhere;
}}
h2 {{ margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }}
p {{ white-space: pre-wrap; }}
.facts, .note, figcaption {{ color: var(--quiet); }}
.scroll {{ overflow-x: auto; overflow-wrap: normal; margin-bottom: 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{
  border-bottom: 1px solid var(--line); padding: 0.25rem 0.75rem; text-align: right;
  vertical-align: top; white-space: nowrap;
}}
th {{ vertical-align: bottom; white-space: normal; }}
th:first-child, td:first-child {{ text-align: left; }}
tr:nth-child(even) td {{ background: var(--stripe); }}
figure {{ margin: 1rem 0; }}
img {{ max-width: 100%; height: auto; background: #fff; border-radius: 4px; }}
</style>
</head>
"""


def page(title: str, facts: Sequence[str], sections: Sequence[Section]) -> str:
    """An HTML document.

    facts: plain lines under the title, such as the machine and the versions.
    """
    parts = [_HEAD.format(title=escape(title)), "<body>", f"<h1>{escape(title)}</h1>"]
    parts += [f'<p class="facts">{escape(fact)}</p>' for fact in facts]
    parts.append("<nav><ul>")
    parts += [
        f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
        for number, section in enumerate(sections)
    ]
    parts.append("</ul></nav>")
    for number, section in enumerate(sections):
        parts += _section(number, section)
    return "\n".join([*parts, "</body>", "</html>", ""])


def _section(number: int, section: Section) -> Iterator[str]:
    yield f'<section id="section-{number}">'
    yield f"<h2>{escape(section.title)}</h2>"
    yield from (f"<p>{escape(paragraph)}</p>" for paragraph in section.text)
    for grid in section.grids:
        yield from _grid(grid)
    for picture in section.pictures:
        yield from _picture(picture)
    yield "</section>"


def _grid(grid: Grid) -> Iterator[str]:
    if grid.note:
        yield f'<p class="note">{escape(grid.note)}</p>'
    # The keyboard scrolls what can have its focus.
    yield '<div class="scroll" tabindex="0"><table>'
    yield f"<thead><tr>{_cells('th', grid.header)}</tr></thead>"
    yield "<tbody>"
    yield from (f"<tr>{_cells('td', row)}</tr>" for row in grid.rows)
    yield "</tbody></table></div>"


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _picture(picture: Picture) -> Iterator[str]:
    data = base64.b64encode(picture.png).decode("ascii")
    yield f'<figure><img alt="{escape(picture.title)}" src="data:image/png;base64,{data}">'
    note = f": {picture.note}" if picture.note else ""
    yield f"<figcaption>{escape(picture.title + note)}</figcaption></figure>"
