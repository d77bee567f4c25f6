"""The engine's side, where programs are loaded: shared, bounded, and nobody waits on a thread."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from adapter.guided.engine_side import loader as loader_module
from adapter.guided.engine_side.loader import ProgramLoader
from adapter.guided.matcher import Guide
from adapter.guided.program import Part, Program
from tests.guided.texts import ENDS, VOCABULARY, takes


class Slow:
    """A library whose work the test lets go on, or fail."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.compiled: list[str] = []
        self.fault: BaseException | None = None

    def compile(self, part: Part) -> Any:
        self.compiled.append(part.text)
        if part.text == "slow":
            self.release.wait(10)
        if self.fault is not None:
            raise self.fault
        return Anything


class Anything:
    """Allows every token."""

    def narrow(self, mask: Any) -> None: ...

    def advance(self, token: int) -> bool:
        return True

    def rollback(self, count: int) -> None: ...

    def can_end(self) -> bool:
        return True


def program(text: str, *libraries: Any) -> Program:
    return Program(tuple(Part(each, "json", text) for each in libraries), eos_token_ids=ENDS)


@pytest.fixture
def loader() -> Iterator[ProgramLoader]:
    """One over the small vocabulary."""
    made = ProgramLoader(lambda: VOCABULARY)
    yield made
    made.close()


@pytest.fixture
def slow(loader: ProgramLoader) -> Slow:
    """Takes the place of outlines."""
    library = Slow()
    loader._libraries_with("guidance")._loaded["outlines"] = library
    return library


def got(guide: "Future[Guide]") -> Guide:
    return guide.result(10)


def test_a_guide_holds_all_parts(loader: ProgramLoader) -> None:
    """A text has to satisfy each of them."""
    both = Program(
        (Part("guidance", "regex", "[a-c]+"), Part("guidance", "regex", "[b-d]+")),
        eos_token_ids=ENDS,
    )
    guide = got(loader.load(both))
    assert takes(guide, [*b"bc"])
    assert not takes(guide, [*b"ab"], exact=False)


def test_others_do_not_wait_for_a_slow_constraint(loader: ProgramLoader, slow: Slow) -> None:
    """Many texts of one slow constraint take one thread, and it is compiled once."""
    waiting = [loader.load(program("slow", "outlines")) for _ in range(12)]
    got(loader.load(program("quick", "outlines")))
    assert not any(guide.done() for guide in waiting)
    slow.release.set()
    assert len({id(got(guide)) for guide in waiting}) == 12
    assert slow.compiled.count("slow") == 1


class Panic(BaseException):
    """As a Rust library raises it."""


@pytest.mark.parametrize("fault", [ValueError("no"), Panic("no")])
def test_a_failure_is_told_to_all_and_tried_again(
    loader: ProgramLoader, slow: Slow, fault: BaseException
) -> None:
    """What fails leaves no request waiting, and nothing is kept of it."""
    slow.fault = fault
    guard, own = Part("guidance", "json", "{}"), Part("outlines", "json", "slow")
    guides = [loader.load(Program((guard, own), eos_token_ids=ENDS)) for _ in range(3)]
    slow.release.set()
    for guide in guides:
        with pytest.raises(type(fault)):
            got(guide)
    slow.fault = None
    got(loader.load(program("slow", "outlines")))


def test_memory_is_bounded(
    loader: ProgramLoader, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least used is compiled again."""
    monkeypatch.setattr(loader_module, "_CACHE_BYTES", 3 * 2**16)
    for text in ("a", "b", "a", "c", "a", "b"):
        got(loader.load(program(text, "outlines")))
    assert slow.compiled == ["a", "b", "c", "b"]


def test_a_closed_loader_refuses(loader: ProgramLoader) -> None:
    """A request that comes while the engine ends fails, and does not wait for ever."""
    got(loader.load(program("{}", "guidance")))
    loader.close()
    with pytest.raises(RuntimeError):
        got(loader.load(program('{"type": "null"}', "guidance")))
