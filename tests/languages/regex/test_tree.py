"""A tree is in its normal form."""

from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import EMPTY, positions


def test_nested_stars_are_one() -> None:
    """Repeats of repeats become one where no count is left out."""
    assert parse("(((((a*)*)*)*)*)*") == parse("a*")
    assert parse("(a?){3,5}") == parse("a{0,5}") == parse("((a|){0,5}){1}")
    assert parse("(a+){2,3}") == parse("a{2,}")
    assert parse("(?:aa){2,3}") != parse("(?:a){4,6}")
    assert parse("(a{2}){0,2}") != parse("a{0,4}")
    assert parse("(|)*") == parse("a{0}") == parse("") == EMPTY
    assert positions(parse("((a|b){0,60}c){0,60}")) == 61 * 60
