"""Random trees with intersections and complements, and what they match, from first principles."""

from dataclasses import dataclass
from functools import cache
from itertools import product

from hypothesis import strategies as st

from adapter.languages.characters import TEXT, only
from adapter.languages.regex import tree
from adapter.languages.regex.tree import Chars, Node

LETTERS = 'ab"\n'
"""The characters of the texts that trees are asked about; b and what is beside them are alike."""

SHORT_TEXTS = ["".join(text) for length in range(5) for text in product(LETTERS, repeat=length)]


@dataclass(frozen=True)
class Sketch:
    """A tree as it was drawn, before any of it was simplified."""

    kind: str
    inner: "tuple[Sketch, ...]" = ()
    letters: str = ""
    low: int = 0
    high: int | None = None

    def ends(self, text: str, start: int) -> frozenset[int]:
        """Where what matches from a place in a text may end."""
        return _ends(self, text, start)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return len(text) in self.ends(text, 0)

    def node(self) -> Node:
        """The tree, made by the functions that simplify."""
        inner = [sketch.node() for sketch in self.inner]
        match self.kind:
            case "chars":
                return Chars(only(self.letters) if self.letters else TEXT)
            case "repeat":
                return tree.repeat(inner[0], self.low, self.high)
            case "not":
                return tree.negation(inner[0])
        makers = {"sequence": tree.sequence, "choice": tree.choice, "all": tree.every}
        return makers[self.kind](inner)


@cache
def _ends(sketch: Sketch, text: str, start: int) -> frozenset[int]:
    everywhere = frozenset(range(start, len(text) + 1))
    ends = [inner.ends(text, start) for inner in sketch.inner]
    match sketch.kind:
        case "chars":
            met = start < len(text) and (not sketch.letters or text[start] in sketch.letters)
            return frozenset({start + 1} if met else {})
        case "not":
            return everywhere - ends[0]
        case "all":
            return everywhere.intersection(*ends)
        case "choice":
            return frozenset[int]().union(*ends)
        case "sequence":
            return _in_turn(sketch.inner, text, frozenset({start}))
    return _rounds(sketch, text, start)


def _in_turn(parts: tuple[Sketch, ...], text: str, at: frozenset[int]) -> frozenset[int]:
    for part in parts:
        at = frozenset[int]().union(*(part.ends(text, start) for start in at))
    return at


def _rounds(sketch: Sketch, text: str, start: int) -> frozenset[int]:
    at, found = frozenset({start}), set[int]()
    # More rounds than characters only go round on the spot.
    most = sketch.low + len(text) + 1 if sketch.high is None else sketch.high
    for count in range(most + 1):
        found |= at if count >= sketch.low else set()
        at = _in_turn(sketch.inner, text, at)
    return frozenset(found)


_COUNTS = st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (1, 2), (0, 3), (2, None)])


def _larger(inner: st.SearchStrategy[Sketch]) -> st.SearchStrategy[Sketch]:
    several = st.lists(inner, min_size=0, max_size=3).map(tuple)
    repeats = st.builds(
        lambda one, counts: Sketch("repeat", (one,), low=counts[0], high=counts[1]), inner, _COUNTS
    )
    return st.one_of(
        st.builds(Sketch, st.sampled_from(["sequence", "choice", "all"]), several),
        st.builds(Sketch, st.just("all"), st.tuples(inner, inner)),
        st.builds(lambda one: Sketch("not", (one,)), inner),
        repeats,
    )


_LEAVES = st.sampled_from(["a", "b", "ab", 'a"', "\n", 'b"\n', ""])
SKETCHES = st.recursive(
    st.builds(lambda letters: Sketch("chars", letters=letters), _LEAVES), _larger, max_leaves=8
)
