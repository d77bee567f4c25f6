"""Patterns as JSON Schema has them: found anywhere in a text, in the dialect of ECMA 262.

Where that and Python's differ, a text has to satisfy both.
"""

import re
import unicodedata
from functools import cache
from itertools import groupby

from adapter.languages.characters import Ranges, complement, union
from adapter.languages.escapes import bracketed, python_escape
from adapter.languages.regex.items import Item, series
from adapter.languages.regex.parse import read
from adapter.languages.regex.tree import ANY_TEXT, Node, PatternError


def search_tree(pattern: str) -> Node:
    """The texts in which a pattern is found, as re.search finds it.

    `$` is the end of the text alone, and not what is before a newline there.

    Raises:
        PatternError: as `parse` does; or there is a property of characters that is no category.
    """
    return read(_as_python(pattern), _anywhere, strict_end=True)


def _anywhere(item: Item) -> Item:
    return series([ANY_TEXT, item, ANY_TEXT])


# What ECMA 262 writes otherwise than Python.

_OTHERWISE = re.compile(
    r"\\(?P<negation>[pP])\{(?P<category>[^{}]*)\}"
    r"|\\u\{(?P<point>[0-9a-fA-F]{1,6})\}"
    r"|\\(?P<escaped>.)"
    r"|(?P<bracket>[\[\]])"
    r"|\(\?<(?P<name>[A-Za-z_]\w*)>",
    re.DOTALL,
)


def _as_python(pattern: str) -> str:
    """As Python writes it: properties, code points in braces, and names of groups."""
    inside = False

    def written(match: re.Match[str]) -> str:
        nonlocal inside
        if match["category"] is not None:
            ranges = _category(match["category"])
            ranges = complement(ranges) if match["negation"] == "P" else ranges
            text = bracketed(ranges, _escape)
            return text[1:-1] if inside else text
        if match["bracket"]:
            inside = match["bracket"] == "["
        if match["point"]:
            return f"\\U{int(match['point'], 16):08x}"
        return f"(?P<{match['name']}>" if match["name"] else match[0]

    return _OTHERWISE.sub(written, pattern)


def _escape(point: int) -> str:
    return python_escape(point) if point < 0x100 else f"\\U{point:08x}"


@cache
def _category(name: str) -> Ranges:
    """The characters of a general category, such as Lu, or of all that begin so, such as L."""
    wanted = name.removeprefix("gc=").removeprefix("General_Category=")
    wanted = _LONG_NAMES.get(wanted, wanted)
    if not wanted or not any(each.startswith(wanted) for each in _categories()):
        raise PatternError(f"the property \\p{{{name[:40]}}} is not supported")
    return union(*(_categories()[each] for each in _categories() if each.startswith(wanted)))


@cache
def _categories() -> dict[str, Ranges]:
    """The characters of each general category, which takes a third of a second to find."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, run in groupby(range(0x110000), lambda point: unicodedata.category(chr(point))):
        points = list(run)
        found.setdefault(name, []).append((points[0], points[-1]))
    return {name: tuple(ranges) for name, ranges in found.items()}


_LONG_NAMES = {
    "Letter": "L",
    "Lowercase_Letter": "Ll",
    "Uppercase_Letter": "Lu",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
}
