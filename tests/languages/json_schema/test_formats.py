"""Formats as languages: all that is written is read by the common readers."""

import ipaddress
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from random import Random
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator
from pydantic import AnyUrl, TypeAdapter

from adapter.languages.json_schema.formats import format_tree
from adapter.languages.regex.language import Language
from adapter.languages.regex.tree import Chars, Choice, Node, Repeat, Sequence

READERS: dict[str, list[Callable[[str], object]]] = {
    "date": [date.fromisoformat],
    "time": [time.fromisoformat],
    "date-time": [datetime.fromisoformat, TypeAdapter(datetime).validate_python],
    "duration": [],
    "email": [],
    "hostname": [lambda text: text.encode("idna")],
    "ipv4": [ipaddress.IPv4Address],
    "ipv6": [ipaddress.IPv6Address],
    "uuid": [uuid.UUID],
    "uri": [urlsplit],
}

GOOD = {
    "date": ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31"],
    "time": ["23:59:59Z", "00:00:00.5+14:00"],
    "date-time": ["2024-01-02T03:04:05Z", "1999-12-31T23:59:59.123456-23:59"],
    "duration": ["P1D", "PT5M", "P3Y6M4DT12H30M5S", "P2W", "PT1H"],
    "email": ["john.doe+tag@example.com", "o'neil@a-b.co.uk"],
    "hostname": ["localhost", "www.example.com", "a-1.b"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "127.0.0.1"],
    "ipv6": ["::", "::1", "fe80::1:2", "2001:db8:0:0:0:0:0:1", "1:2:3:4:5:6:1.2.3.4"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://example.com/a/b?x=1#y", "mailto:a@b.c", "urn:isbn:12", "http://h:8080/"],
}
BAD = {
    "date": ["2023-02-29", "1900-02-29", "0000-01-01", "2023-04-31", "2023-13-01", "2023-1-1", ""],
    "time": ["24:00:00Z", "23:59:60Z", "12:00Z", "12:00:00", "12:00:00z"],
    "date-time": ["2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"],
    "duration": ["P", "PT", "P1H", "1D", "P1D2W", "P1Y2D"],
    "email": ["a", "a@", "@b.cc", ".a@b.cc", "a..b@c.dd", "a@b"],
    "hostname": ["-a", "a-", "a_b", "a..b", "", "a" * 64],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4"],
    "ipv6": ["1::2::3", ":::", "12345::", "1:2:3:4:5:6:7:8:9", "::g"],
    "uuid": ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"],
    "uri": ["example.com", "//a.b/c", "http://a b", ":a", ""],
}
NAMES = sorted(READERS)


def word(node: Node, random: Random) -> str:
    """A word of a tree without intersections and complements."""
    match node:
        case Chars(ranges):
            low, high = random.choice(ranges)
            return chr(random.choice([low, high, random.randint(low, high)]))
        case Sequence(parts):
            return "".join(word(part, random) for part in parts)
        case Choice(options):
            return word(random.choice(options), random)
        case Repeat(inner, low, high):
            most = low + 3 if high is None else high
            count = random.choice([low, min(most, low + 1), random.randint(low, most)])
            return "".join(word(inner, random) for _ in range(count))
    raise AssertionError(node)


@pytest.mark.parametrize("name", NAMES)
def test_words_are_read(name: str) -> None:
    """By jsonschema's own check, and by the standard library or pydantic."""
    tree = format_tree(name)
    assert tree is not None
    random = Random(name)
    for _ in range(500):
        text = word(tree, random)
        assert text.isascii()
        assert not {'"', "\\"} & set(text)
        assert Draft202012Validator.FORMAT_CHECKER.conforms(text, name), text
        for read in READERS[name]:
            read(text)


@pytest.mark.parametrize("name", NAMES)
def test_common_values(name: str) -> None:
    """Those that people write are in it, and what is no such value is not."""
    tree = format_tree(name)
    assert tree is not None
    language = Language(tree)
    assert [text for text in GOOD[name] if not language.matches(text)] == []
    assert [text for text in BAD[name] if language.matches(text)] == []


def test_urls_are_urls() -> None:
    """As pydantic reads them, where they have a host."""
    for text in GOOD["uri"]:
        if "//" in text:
            TypeAdapter(AnyUrl).validate_python(text)


def test_other_formats_are_notes() -> None:
    """They have no language."""
    assert format_tree("color") is None
