"""The formats of strings whose texts are known, as languages.

Each is a part of what RFC 3339, 1123, 4122, 4291, 5321 and 3986 allow that the common validators
and readers take as well: calendar dates there are, no leap seconds, capital T and Z, ASCII.
"""

from functools import cache

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Node

_YEAR = r"(?:\d{3}[1-9]|\d{2}[1-9]0|\d[1-9]00|[1-9]000)"
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = rf"{_CLOCK}:[0-5]\d(?:\.\d{{1,6}})?(?:Z|[+\-]{_CLOCK})"
_N = r"\d{1,9}"
_DAYS = rf"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"
_HOURS = rf"(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?\^_`{|}~\-]+"
_HEX = r"[0-9a-fA-F]"
_H16 = rf"{_HEX}{{1,4}}"
_IPV6 = "|".join(
    [
        rf"(?:{_H16}:){{7}}{_H16}",
        rf"(?:{_H16}:){{6}}{_IPV4}",
        *(
            rf"(?:{_H16}(?::{_H16}){{0,{before}}})?::(?:{_H16}(?::{_H16}){{0,{5 - before}}})?"
            for before in range(6)
        ),
    ]
)
_UNRESERVED = r"[A-Za-z0-9\-._~!$&'()*+,;=:@]"
_SEGMENT = rf"(?:{_UNRESERVED}|%{_HEX}{{2}})"

_PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}T{_TIME}",
    "duration": rf"P(?:{_N}W|{_DAYS}(?:T{_HOURS})?|T{_HOURS})",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL}){{0,2}}\.[A-Za-z]{{2,24}}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "uri": rf"[A-Za-z][A-Za-z0-9+\-.]{{0,15}}:(?://{_HOST}(?::\d{{1,4}})?|{_SEGMENT}+)(?:/{_SEGMENT}*)*"
    rf"(?:\?(?:{_SEGMENT}|[/?])*)?(?:\#(?:{_SEGMENT}|[/?])*)?",
}


@cache
def format_tree(name: str) -> Node | None:
    """The texts of a format, None where the format is only a note."""
    pattern = _PATTERNS.get(name)
    return None if pattern is None else parse(pattern)
