"""adapter/reading: a body is read to the same end wherever it is read."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.errors import ApiError, BodyTooLarge, Unavailable
from adapter.reading import reader as reader_module
from adapter.reading.read import Reading, read
from adapter.reading.reader import SMALL, BodyReader, is_small
from tests.planning.plans import FACTS

SECONDS = 60
HI = {"model": "m", "prompt": "x"}
FILL = {"unknown": [1] * SMALL}
"""Makes any body a large one."""

BODIES: list[Any] = [
    HI,
    HI | {"prompt": [5, 6]},
    HI | {"prompt": [[5], [6, 7]], "n": 2, "user": "u"},
    HI | {"guided_json": {"enum": [1.5, 12345678901234567890.5]}},
    HI | {"stop": ["a"], "logit_bias": {"5": -3}, "temperature": 0},
    HI | {"use_beam_search": True, "n": 2},
    HI | {"prompt": [5, 101, 9999]},
    HI | {"n": 0},
    HI | {"user": "\ud800"},
    HI | {"min_p": 2},
    {"prompt": "x"},
]


@pytest.fixture
def reader() -> Iterator[BodyReader]:
    made = BodyReader(FACTS)
    yield made
    made.close()


def described(outcome: Reading | ApiError) -> Any:
    """An outcome that can be compared."""
    if isinstance(outcome, Reading) and isinstance(outcome.outcome, ApiError):
        return outcome.unknown, outcome.n, described(outcome.outcome)
    if isinstance(outcome, ApiError):
        return type(outcome), outcome.status, outcome.message, outcome.param, outcome.code
    return outcome


def here(body: bytes) -> Reading | ApiError:
    try:
        return read(body, FACTS)
    except ApiError as error:
        return error


async def there(reader: BodyReader, body: bytes) -> Reading | ApiError:
    try:
        async with asyncio.timeout(SECONDS):
            return await reader.read(body)
    except ApiError as error:
        return error


def test_both_ways_end_the_same(reader: BodyReader) -> None:
    """What is read in another process is what would have been read here: plans, refusals."""
    bodies = [json.dumps(body | FILL).encode() for body in BODIES]
    bodies += [bodies[0][:-1], bodies[0] + b"x", b"[" * (SMALL + 1), bodies[0][:-1] + b',"u":NaN}']
    assert not any(map(is_small, bodies))

    async def all_of_them() -> list[Any]:
        return [described(await there(reader, body)) for body in bodies]

    assert asyncio.run(all_of_them()) == [described(here(body)) for body in bodies]


@pytest.mark.parametrize(
    ("body", "small"),
    [
        (b"x" * SMALL, True),
        (b"," * SMALL, True),
        (b"x" * (SMALL + 1), True),
        (b"," * (SMALL + 1), False),
        (b"[" * (SMALL + 1), False),
        (b"{" * (SMALL + 1), False),
        (b"x" * 2**20, True),
        (b"x" * (2**20 + 1), False),
    ],
)
def test_which_bodies_are_small(body: bytes, small: bool) -> None:
    """A body is read at once where it is short, or longer and of few values."""
    assert is_small(body) == small


def test_process_that_ends_over_a_body(reader: BodyReader) -> None:
    """A body that ends its process is refused, and the next one gets another process."""
    body = json.dumps(HI | {"u": [[]] * 500_000}).encode()

    async def ended() -> tuple[Any, Any]:
        await there(reader, body)
        (worker,) = reader._idle
        asyncio.get_running_loop().call_later(0.05, os.kill, worker._process.pid, signal.SIGKILL)
        return await there(reader, body), await there(reader, body)

    lost, read_again = asyncio.run(ended())
    assert isinstance(lost, BodyTooLarge)
    assert (lost.status, lost.code) == (413, "body_too_large")
    assert isinstance(read_again, Reading)


def test_caller_who_leaves_ends_the_process(reader: BodyReader) -> None:
    """Nobody goes on reading what nobody waits for, and the next body is read."""
    body = json.dumps(HI | {"u": [[]] * 500_000}).encode()

    async def left() -> Any:
        await there(reader, body)
        (worker,) = reader._idle
        task = asyncio.create_task(reader.read(body))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        again = await there(reader, body)
        for _ in range(100):
            if not worker.is_alive():
                return again
            await asyncio.sleep(0.05)
        raise AssertionError("the process still runs")

    assert isinstance(asyncio.run(left()), Reading)


def test_too_many_wait(reader: BodyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that wait for a process are bounded by their bytes."""
    body = json.dumps(HI | FILL).encode()
    monkeypatch.setattr(reader_module, "MAX_WAITING", 2 * len(body))

    async def three() -> list[Any]:
        return await asyncio.gather(*(there(reader, body) for _ in range(3)))

    outcomes = asyncio.run(three())
    assert [type(outcome) for outcome in outcomes] == [Reading, Reading, Unavailable]
    assert reader._waiting == 0
