"""The page of a report: whole in itself, and plain text stays text."""

import base64
import re
from html.parser import HTMLParser

from benchmarks.reporting.report import Grid, Picture, Section, page

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
NASTY = """<script>alert("1")</script> & 'more'"""

SECTIONS = [
    Section(
        "Speed",
        ["It is fast.", "Very."],
        [Grid(["load", "us"], [["64 streams", "7"], ["1", "119"]], "CPU.")],
        [Picture("Bars", PNG, "a note")],
    ),
    Section("Nothing"),
]


class Elements(HTMLParser):
    """The elements of a page with their attributes, its text, and what was left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def test_a_page_needs_nothing_else() -> None:
    text = page("Report", ["machine: any"], SECTIONS)
    elements = Elements(text)
    assert elements.open == []
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in elements.elements}
    places = [
        str(attributes[name])
        for _, attributes in elements.elements
        for name in ("src", "href")
        if name in attributes
    ]
    assert places
    assert all(place.startswith(("data:image/png;base64,", "#")) for place in places)
    assert "//" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "url(" not in text


def test_links_lead_to_sections() -> None:
    elements = Elements(page("Report", [], SECTIONS))
    targets = {f"#{attributes['id']}" for attributes in elements.all("section")}
    assert {str(attributes["href"]) for attributes in elements.all("a")} == targets
    assert len(targets) == len(SECTIONS)


def test_a_picture_is_in_the_page() -> None:
    (image,) = Elements(page("Report", [], SECTIONS)).all("img")
    _, _, data = str(image["src"]).partition("base64,")
    assert base64.b64decode(data) == PNG
    assert image["alt"] == "Bars"


def test_plain_text_is_never_taken_for_html() -> None:
    grid = Grid([NASTY, "b"], [[NASTY, NASTY]], NASTY)
    section = Section(NASTY, [NASTY], [grid], [Picture(NASTY, PNG, NASTY)])
    elements = Elements(page(NASTY, [NASTY], [section]))
    assert elements.all("script") == []
    # Title twice, fact, link, heading, paragraph, note, header, two cells, caption with its note.
    assert "".join(elements.texts).count(NASTY) == 12
    assert elements.all("img")[0]["alt"] == NASTY


def test_every_cell_of_a_table_is_there_and_tables_scroll() -> None:
    elements = Elements(page("Report", [], SECTIONS))
    assert len(elements.all("th")) == 2
    assert len(elements.all("td")) == 4
    assert {"class": "scroll", "tabindex": "0"} in elements.all("div")


def test_a_page_reads_in_light_and_dark() -> None:
    text = page("Report", [], [])
    assert "color-scheme: light dark" in text
    assert "prefers-color-scheme: dark" in text
