"""adapter/guided/program.py: what is written is read again."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from adapter.guided.backends.registry import LIBRARIES
from adapter.guided.program import Library, Members, Part, Program, Shape, Whitespace
from adapter.guided.whitespace import DEFAULT

# Python's JSON keeps lone surrogates; no constraint has them, since no request can.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PARTS = st.builds(
    Part,
    st.sampled_from(get_args(Library)),
    st.sampled_from(["json", "regex", "lark", "ebnf"]),
    TEXT,
    st.none() | TEXT,
)
WHITESPACE = st.builds(
    Whitespace,
    st.lists(st.tuples(*[st.integers(-1, 9)] * 4)).map(tuple),
    st.lists(st.booleans()).map(tuple),
)
PLACE = st.none() | st.integers(0, 9)
SHAPES = st.builds(
    Shape,
    st.lists(st.tuples(TEXT, PLACE)).map(tuple),
    PLACE,
    PLACE,
    *[st.booleans()] * 4,
)
MEMBERS = st.builds(Members, st.lists(SHAPES, max_size=3).map(tuple), st.booleans())
PROGRAMS = st.builds(
    Program,
    st.lists(PARTS, max_size=3).map(tuple),
    st.none() | WHITESPACE | st.just(DEFAULT),
    st.none() | MEMBERS,
    st.lists(st.integers(0, 2**31)).map(tuple),
    st.booleans(),
)


@given(program=PROGRAMS)
def test_round_trip(program: Program) -> None:
    """A program that was written and read is equal, and as good a key of a cache."""
    read = Program.loads(program.dumps())
    assert read == program
    assert hash(read) == hash(program)


def test_every_library_has_its_place() -> None:
    """What a part can name is what can be loaded."""
    assert set(LIBRARIES) == set(get_args(Library))
