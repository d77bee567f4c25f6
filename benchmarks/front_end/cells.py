"""What is measured, and what came out: cells of the matrix, their runs, both as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from benchmarks.reporting.result import Spread, paired_ratio, spread
from benchmarks.running.load import LoadResult
from benchmarks.running.server import Route

MODEL = "tiny"
PROMPT = "A short story about a lighthouse keeper who found a letter in a bottle. It was a"
TOP_LOGPROBS = 5

# A run is long enough to measure and short enough to repeat: it makes at most so many tokens.
_RUN_TOKENS = 16384
_MOST_TOKENS_PER_CHOICE = 256
_MOST_REQUESTS_PER_STREAM = 4

MICRO = 1e6
MILLI = 1e3


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load. Each of its streams is a connection with one request at a time."""

    streams: int
    n: int
    logprobs: bool
    streamed: bool
    max_tokens: int
    """Each choice has exactly so many tokens."""
    requests_per_stream: int

    @property
    def completion_tokens(self) -> int:
        """Of a whole run."""
        return self.streams * self.requests_per_stream * self.n * self.max_tokens

    @property
    def counts_requests(self) -> bool:
        """True where a request is next to nothing but what each request costs."""
        return self.max_tokens == 1 and not self.streamed

    @property
    def key(self) -> str:
        """A short name for programs: `64`, `64_n4_logprobs`."""
        choices = f"_n{self.n}" if self.n > 1 else ""
        return f"{self.streams}{choices}{'_logprobs' if self.logprobs else ''}"

    @property
    def label(self) -> str:
        """A name for people."""
        logprobs = ", logprobs" if self.logprobs else ""
        return f"{self.streams} streams, n {self.n}{logprobs}, {self.max_tokens} tokens"

    def body(self) -> dict[str, Any]:
        """The request's body, of fields that both routes have and take to mean the same."""
        body: dict[str, Any] = {
            "model": MODEL,
            "prompt": PROMPT,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "n": self.n,
            # Greedy is the engine's cheapest; vLLM refuses it for several choices.
            "temperature": 0 if self.n == 1 else 1,
            "stream": self.streamed,
        }
        if self.logprobs:
            body["logprobs"] = TOP_LOGPROBS
        if self.streamed:
            body["stream_options"] = {"include_usage": True}
        return body


def sized_cell(streams: int, n: int, *, logprobs: bool, streamed: bool) -> Cell:
    """A cell whose requests are as long as a run of bearable length allows."""
    choices = streams * n
    # Both make the engine slower: it samples at random for n, and sorts for logprobs.
    run_tokens = _RUN_TOKENS // (2 if n > 1 or logprobs else 1)
    max_tokens = min(_MOST_TOKENS_PER_CHOICE, run_tokens // choices)
    requests = min(_MOST_REQUESTS_PER_STREAM, run_tokens // (choices * max_tokens))
    return Cell(streams, n, logprobs, streamed, max_tokens, requests)


STREAMING_CELL = sized_cell(64, 1, logprobs=False, streamed=True)
REQUEST_CELL = Cell(
    streams=16, n=1, logprobs=False, streamed=False, max_tokens=1, requests_per_stream=300
)


def quick_cells() -> list[Cell]:
    """One cell for tokens, one for requests."""
    return [STREAMING_CELL, REQUEST_CELL]


STREAMS = (1, 16, 64, 256)


def all_cells(streams: Sequence[int] = STREAMS) -> list[Cell]:
    """The matrix, or its part with so many streams."""
    return [*_matrix(streams), REQUEST_CELL]


def _matrix(stream_counts: Sequence[int]) -> Iterator[Cell]:
    for streamed, logprobs, n, streams in product(
        (True, False), (False, True), (1, 4), stream_counts
    ):
        yield sized_cell(streams, n, logprobs=logprobs, streamed=streamed)


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one route."""

    cpu_seconds: float
    """Of the API server process, while the load ran."""
    load: LoadResult

    @property
    def us_per_token(self) -> float:
        """CPU microseconds for each generated token, its share of the request's cost included."""
        return self.cpu_seconds * MICRO / self.load.completion_tokens

    @property
    def us_per_request(self) -> float:
        """CPU microseconds for each request, its tokens' cost included."""
        return self.cpu_seconds * MICRO / self.load.requests

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of wall time, of all streams together."""
        return self.load.completion_tokens / self.load.seconds

    @property
    def first_ms(self) -> float:
        """Median milliseconds to the first event, or to the whole answer."""
        return self.load.first * MILLI

    @property
    def tokens_per_event(self) -> float:
        """Above 1 where the server joined tokens because it could not keep up."""
        return self.load.completion_tokens / self.load.events if self.load.events else 0.0


@dataclass(frozen=True, slots=True)
class CellResult:
    """The runs of one cell, interleaved: v1, v2, v1, v2 and so on."""

    cell: Cell
    v1: list[Run]
    v2: list[Run]

    def spread(self, route: Route, figure: str) -> Spread:
        """Of a figure of Run, by its name, on one route."""
        return spread(self._figures(route, figure))

    def ratio(self, figure: str) -> Spread:
        """v2 over v1 of a figure of Run, by its name."""
        return paired_ratio(self._figures("v2", figure), self._figures("v1", figure))

    def _figures(self, route: Route, figure: str) -> list[float]:
        return [getattr(run, figure) for run in (self.v1 if route == "v1" else self.v2)]

    def as_json(self) -> dict[str, Any]:
        """For a file; from_json reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "CellResult":
        """The result that as_json wrote."""
        return cls(Cell(**value["cell"]), _runs(value["v1"]), _runs(value["v2"]))


def merged(results: Iterable[CellResult]) -> list[CellResult]:
    """One result for each cell, with the runs of all of its results."""
    whole: dict[Cell, CellResult] = {}
    for result in results:
        before = whole.get(result.cell, CellResult(result.cell, [], []))
        whole[result.cell] = CellResult(result.cell, before.v1 + result.v1, before.v2 + result.v2)
    return list(whole.values())


def _runs(values: list[dict[str, Any]]) -> list[Run]:
    return [Run(value["cpu_seconds"], LoadResult(**value["load"])) for value in values]
