"""adapter/guided/compile/cache.py: bounded by bytes, and nothing kept longer than it may be."""

from pathlib import Path

from adapter.guided.compile.cache import ConstraintCache
from adapter.guided.constraint import Constraint, Kind
from adapter.guided.program import Part


def named(text: str) -> Constraint:
    return Constraint("guided_regex", Kind.REGEX, text, "outlines")


def index(path: Path) -> Part:
    """A part whose index of 100 bytes was compiled into a file."""
    path.write_bytes(bytes(100))
    return Part("outlines", "regex", "a", str(path), 100)


def test_the_least_recently_used_goes() -> None:
    """Beyond the limit the outcome goes that was asked for longest ago."""
    cache = ConstraintCache[str](2500)
    cache.put(named("a"), "A", 500)
    cache.put(named("b"), "B", 500)
    assert cache.get(named("a")) == "A"
    cache.put(named("c"), "C", 500)
    assert [cache.get(named(text)) for text in "abc"] == ["A", None, "C"]


def test_one_larger_than_the_limit_is_kept() -> None:
    """A single outcome is kept, however large."""
    cache = ConstraintCache[str](10)
    cache.put(named("a"), "A", 500)
    assert cache.get(named("a")) == "A"


def test_time_limit() -> None:
    """An outcome whose time is over is not known any more."""
    cache = ConstraintCache[str](10_000)
    cache.put(named("long"), "A", 1, seconds=60)
    cache.put(named("over"), "A", 1, seconds=-1)
    assert (cache.get(named("long")), cache.get(named("over"))) == ("A", None)
    assert cache.get(named("over")) is None


def test_a_shared_file_goes_with_its_last_user(tmp_path: Path) -> None:
    """The file of a compiled part stays as long as some outcome needs it."""
    path = tmp_path / "index"
    cache = ConstraintCache[str](1700)
    cache.put(named("a"), "A", 0, parts=[index(path)])
    cache.put(named("b"), "B", 0, parts=[index(path)])
    cache.put(named("c"), "C", 500)
    assert cache.get(named("a")) is None
    assert path.exists()
    cache.put(named("d"), "D", 1000)
    assert not path.exists()
