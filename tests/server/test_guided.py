"""The route, in this process: constraints are compiled before the engine is asked."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from adapter.errors import ApiError, NotSatisfied, NotSupported, Unavailable
from adapter.guided.compile.service import CompiledConstraint, CompileService
from adapter.guided.constraint import Constraint
from adapter.guided.program import Part, Program
from tests.asgi_client import Exchange, exchange, run
from tests.conftest import Server
from tests.fake_engine import Candidate, FakeEngineClient, Held, Output, Table, said
from tests.server.conftest import HI, Serve, ask
from tests.tiny_tokenizer import byte_ids

pytestmark = pytest.mark.needs_vllm

EOS = 2
PROGRAM = Program((Part("guidance", "regex", "a+"),))


class Admits(Protocol):
    """What the engine asks about constraints."""

    async def compile(self, constraint: Constraint) -> CompiledConstraint: ...
    async def check(self, schema: str, text: str) -> None: ...


class FakeCompileService:
    """Admits every constraint without compiling it, unless it is told what to raise."""

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary
        self.schema: str | None = None
        """What finished texts have to be checked against."""
        self.refusal: ApiError | None = None
        self.faults: list[ApiError] = []
        """Of the texts that are checked, one after the other; the others have none."""
        self.held: Held | None = None
        """Where it waits while it compiles."""
        self.asked: list[Constraint] = []
        self.checked: list[tuple[str, str]] = []

    async def compile(self, constraint: Constraint) -> CompiledConstraint:
        self.asked.append(constraint)
        if self.held is not None:
            self.held.reached.set()
            await self.held.release.wait()
        if self.refusal is not None:
            raise self.refusal
        return CompiledConstraint(PROGRAM, "guidance", self.schema)

    async def check(self, schema: str, text: str) -> None:
        self.checked.append((schema, text))
        if self.faults:
            raise self.faults.pop(0)


if TYPE_CHECKING:
    _compile_service: type[Admits] = CompileService
    _fake_service: type[Admits] = FakeCompileService


@pytest.fixture
def service(server: Server) -> FakeCompileService:
    """What admits the server's constraints."""
    return fake_service(server)


def fake_service(server: Server) -> FakeCompileService:
    engine = server.plugin._endpoints[0]._server.engine
    engine._compile_service = FakeCompileService(engine._compile_service.vocabulary)
    fake: FakeCompileService = engine._compile_service
    return fake


def retries_counted() -> float:
    from prometheus_client import REGISTRY

    return REGISTRY.get_sample_value("completion_v2_guided_retries_total") or 0.0


def programs(client: FakeEngineClient) -> list[Program | None]:
    """What the engine was given to hold."""
    given = [call.params.structured_outputs for call in client.calls]
    assert all(params is None or params._backend == "completion_v2" for params in given)
    return [params and Program.loads(params.grammar) for params in given]


@pytest.mark.parametrize("stream", [False, True])
def test_constraint_reaches_the_engine(
    server: Server, client: FakeEngineClient, service: FakeCompileService, stream: bool
) -> None:
    """Each prompt's call carries the compiled program, and the caller is told who holds it."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    client.will_answer(said("a", 100, EOS, finish="stop"))
    got = ask(server, prompt=["hi", "x"], guided_regex="a+", stream=stream)
    assert (got.status, got.headers["x-guided-decoding"]) == (200, "guidance")
    assert programs(client) == [Program(PROGRAM.parts, eos_token_ids=(EOS,))] * 2
    assert [(one.field, one.text, one.backend) for one in service.asked] == [
        ("guided_regex", "a+", "auto")
    ]


def test_request_without_a_constraint(
    server: Server, client: FakeEngineClient, service: FakeCompileService
) -> None:
    """A request without a constraint, or with nulls for one, asks nobody."""
    for fields in ({}, {"guided_json": None, "response_format": {"type": "text"}}):
        client.will_answer(said("a", 100, finish="length"))
        assert "x-guided-decoding" not in ask(server, **fields).headers
    assert programs(client) == [None, None]
    assert service.asked == []


@pytest.mark.parametrize("ignore", [None, False, True])
def test_ignore_eos_of_a_constrained_text(
    server: Server, client: FakeEngineClient, service: FakeCompileService, ignore: bool | None
) -> None:
    """With ignore_eos a constrained text ends where it cannot go on: vLLM's own flag is not set."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    ask(server, guided_regex="a+", ignore_eos=ignore)
    (program,) = programs(client)
    assert program is not None
    assert program.eos_last == bool(ignore)
    assert client.calls[0].params.ignore_eos is False


@pytest.mark.parametrize("schema", [None, "{}"])
def test_nothing_generated_is_not_constrained(
    server: Server, client: FakeEngineClient, service: FakeCompileService, schema: str | None
) -> None:
    """With max_tokens 0 a constraint is compiled or refused, and the engine is given none."""
    service.schema = schema
    client.will_answer(said("", finish="length"))
    fields = {"guided_regex": "a+", "max_tokens": 0}
    got = ask(server, **fields, echo=True, logprobs=1)
    assert (got.status, programs(client)) == (200, [None])
    assert (ask(server, **fields).status, len(client.calls)) == (200, 1)
    service.refusal = NotSupported("guided_regex: no.", param="guided_regex")
    assert ask(server, **fields).status == 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        NotSupported("guided_regex: no.", param="guided_regex"),
        Unavailable("busy", code="engine_overloaded"),
    ],
    ids=["refused", "busy"],
)
def test_refused_constraint(
    server: Server,
    client: FakeEngineClient,
    service: FakeCompileService,
    stream: bool,
    refusal: ApiError,
) -> None:
    """A constraint that is not compiled is an HTTP error, and the engine is not asked."""
    service.refusal = refusal
    got = ask(server, guided_regex="a+", stream=stream)
    assert (got.status, got.json()) == (refusal.status, refusal.body())
    assert client.calls == []


def test_constraint_that_no_library_is_asked_about(
    server: Server, client: FakeEngineClient, service: FakeCompileService
) -> None:
    """What is wrong with a constraint by itself is refused before it is compiled."""
    got = ask(server, guided_regex="a+", guided_choice=["a"], stream=True)
    assert (got.status, got.error()["param"]) == (400, "guided_choice")
    assert service.asked == []
    assert client.calls == []


@pytest.mark.parametrize("stream", [False, True])
def test_finished_text_is_checked(
    server: Server, client: FakeEngineClient, service: FakeCompileService, stream: bool
) -> None:
    """A text for which the libraries hold less than the schema is checked as it was made."""
    service.schema = "{}"
    client.will_answer(said("[1]", *byte_ids(b"[1]"), EOS, finish="stop"))
    got = ask(server, guided_json={}, stream=stream, echo=True)
    assert (got.status, got.headers["x-guided-decoding"]) == (200, "guidance; checked")
    assert service.checked == [("{}", "[1]")]
    assert client.calls[0].params.output_kind.name == "FINAL_ONLY"


@pytest.mark.parametrize("stream", [False, True])
def test_text_that_fails_its_check(
    server: Server, client: FakeEngineClient, service: FakeCompileService, stream: bool
) -> None:
    """A finished text that is not what was asked for is no answer but an error, and never shown."""
    service.schema = "{}"
    service.faults = [NotSatisfied("no")] * 6
    for _ in range(6):
        client.will_answer(said("1", 52, EOS, finish="stop"))
    got = ask(server, guided_json={}, stream=stream)
    assert (got.status, got.error()["code"]) == (500, "constraint_not_satisfied")
    assert len(client.calls) == 6


@pytest.mark.parametrize("retries", [0, 2])
def test_how_often_a_text_is_made_again(
    serve: Serve, client: FakeEngineClient, retries: int
) -> None:
    """As often as the operator allows."""
    server = serve(guided_retries=retries)
    service = fake_service(server)
    service.schema = "{}"
    service.faults = [NotSatisfied("no")] * (retries + 1)
    for _ in range(retries + 1):
        client.will_answer(said("1", 52, EOS, finish="stop"))
    assert ask(server, guided_json={}).status == 500
    assert len(client.calls) == retries + 1


@pytest.mark.parametrize("fails", [False, True])
def test_beams_are_checked(
    server: Server, client: FakeEngineClient, service: FakeCompileService, fails: bool
) -> None:
    """Each text that a search found is checked, and none of them is made again."""
    service.schema = "{}"
    service.faults = [NotSatisfied("no")] * fails
    digits = Table().add((52, -0.5, "1"), (52, -0.5, "1"), (53, -1.5, "2"))
    ends = Table().add((EOS, -0.5, None), (EOS, -0.5, None), (53, -1.5, "2"))
    for table in (digits, digits, ends, ends):
        client.will_answer(Output([Candidate(finish_reason="length", logprobs=table)]))
    got = ask(server, guided_json={}, use_beam_search=True, max_tokens=4)
    assert (service.checked, len(client.calls)) == ([("{}", "1")], 4)
    if fails:
        assert (got.status, got.error()["code"]) == (500, "constraint_not_satisfied")
    else:
        assert (got.status, got.json()["choices"][0]["text"]) == (200, "1")
        assert got.headers["x-guided-decoding"] == "guidance; checked"


@pytest.mark.parametrize("stream", [False, True])
def test_text_that_is_made_again(
    server: Server, client: FakeEngineClient, service: FakeCompileService, stream: bool
) -> None:
    """What failed is not shown but counted, and the caller is told how often."""
    before = retries_counted()
    service.schema = "{}"
    service.faults = [NotSatisfied("no"), NotSatisfied("no")]
    for letter in (52, 53, 54):
        client.will_answer(said(chr(letter - 3), letter, EOS, finish="stop"))
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    got = ask(server, guided_json={}, stream=stream, seed=5, temperature=0.5, **usage)
    assert (got.status, got.headers["x-guided-decoding"]) == (200, "guidance; checked; retries=2")
    assert retries_counted() == before + 2
    assert "x-adjusted-fields" not in got.headers
    chunk, count = got.events() if stream else (got.json(), got.json())
    assert [choice["text"] for choice in chunk["choices"]] == ["3"]
    assert count["usage"]["completion_tokens"] == 6
    seeds = [call.params.seed for call in client.calls]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3


def test_greedy_text_that_is_made_again(
    server: Server, client: FakeEngineClient, service: FakeCompileService
) -> None:
    """It is sampled, and the caller is told of that too."""
    service.schema = "{}"
    service.faults = [NotSatisfied("no")] * 2
    for _ in range(3):
        client.will_answer(said("1", 52, EOS, finish="stop"))
    got = ask(server, guided_json={}, temperature=0, n=2)
    assert [choice["text"] for choice in got.json()["choices"]] == ["1", "1"]
    assert got.headers["x-adjusted-fields"] == "temperature"
    assert client.calls[1].params.temperature > 0


@pytest.mark.parametrize("stream", [False, True])
def test_headers_tell_of_every_text_that_is_made_again(
    server: Server, client: FakeEngineClient, service: FakeCompileService, stream: bool
) -> None:
    """A finished text waits for those of the other prompts, which may have to be made again."""
    service.schema = "{}"
    held = Held()
    client.will_answer(said("1", 52, EOS, finish="stop"))
    client.will_answer(held, said("2", 53, EOS, finish="stop"))
    client.will_answer(said("3", 54, EOS, finish="stop"))

    async def asked() -> Exchange:
        fields = {"prompt": ["hi", "x"], "guided_json": {}, "temperature": 0, "stream": stream}
        task = asyncio.create_task(exchange(server.app, HI | fields))
        await held.reached.wait()
        for _ in range(50):  # the other prompt's text is there, and was checked
            await asyncio.sleep(0)
        assert service.checked
        service.faults = [NotSatisfied("no")]
        held.release.set()
        return await task

    got = run(asked())
    assert got.headers["x-guided-decoding"] == "guidance; checked; retries=1"
    assert got.headers["x-adjusted-fields"] == "temperature"
    bodies = got.events() if stream else [got.json()]
    choices = [choice for body in bodies for choice in body["choices"]]
    assert {choice["index"]: choice["text"] for choice in choices} == {0: "1", 1: "3"}


@pytest.mark.parametrize("stream", [False, True])
def test_vllms_refusal_of_a_checked_text_is_a_400(
    server: Server,
    client: FakeEngineClient,
    service: FakeCompileService,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
) -> None:
    """What vLLM refuses as the caller's fault is one here too."""
    from adapter.engine import client as engine
    from adapter.vllm_api import VLLMValidationError

    def refuse(**_fields: Any) -> None:
        raise VLLMValidationError("vLLM does not like it", parameter="prompt")

    service.schema = "{}"
    monkeypatch.setattr(engine, "SamplingParams", refuse)
    got = ask(server, guided_json={}, stream=stream)
    assert (got.status, got.error()["message"]) == (400, "vLLM does not like it")


@pytest.mark.parametrize("beams", [False, True])
def test_caller_leaves_texts_that_are_to_be_checked(
    server: Server, client: FakeEngineClient, service: FakeCompileService, beams: bool
) -> None:
    """All of the work for them is given up, and none of it waited for."""
    service.schema = "{}"
    asked = 4 if beams else 2  # a beam search asks under the mask, too
    for _ in range(asked):
        client.will_answer(Held())

    async def left() -> Exchange:
        got = Exchange()
        body = HI | {"prompt": ["hi", "x"], "guided_json": {}, "use_beam_search": beams}
        task = asyncio.create_task(exchange(server.app, body, progress=got))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(client.unfinished) == asked
        got.left.set()
        done, _ = await asyncio.wait({task}, timeout=5)
        assert done
        return await task

    assert run(left()).status is None
    assert client.unfinished == set()
    assert len(client.aborted) == asked


@pytest.mark.parametrize(
    ("tokens", "finish"), [((52,), "length"), ((52,), "stop"), ((52, EOS), "length")], ids=str
)
def test_text_that_was_cut_is_not_checked(
    server: Server,
    client: FakeEngineClient,
    service: FakeCompileService,
    tokens: tuple[int, ...],
    finish: str,
) -> None:
    """A text cut by its length or a stop string is passed on, and says so by its finish reason."""
    service.schema = "{}"
    service.faults = [NotSatisfied("no")]
    client.will_answer(said("1", *tokens, finish=finish))
    got = ask(server, guided_json={}, stop="2")
    assert (got.status, got.json()["choices"][0]["finish_reason"]) == (200, finish)
    assert service.checked == []


def test_caller_leaves_while_a_constraint_is_compiled(
    server: Server, client: FakeEngineClient, service: FakeCompileService
) -> None:
    """A caller who leaves while the constraint is compiled takes nothing of the engine."""
    held = service.held = Held()

    async def asked() -> Exchange:
        progress = Exchange()
        task = asyncio.create_task(
            exchange(server.app, HI | {"guided_regex": "a+"}, progress=progress)
        )
        await held.reached.wait()
        progress.left.set()
        return await task

    assert run(asked()).status is None
    assert client.calls == []


def test_constraint_is_in_the_log(
    server: Server,
    client: FakeEngineClient,
    service: FakeCompileService,
    log: Callable[[], list[str]],
) -> None:
    """The log says what kind of constraint it was and who held it, not its text."""
    client.will_answer(said("a", 100, EOS, finish="stop"))
    ask(server, guided_regex="secret")
    (line,) = log()
    facts = json.loads(line)
    assert (facts["constraint"], facts["backend"]) == ("regex", "guidance")
    assert "guided_retries" not in facts
    assert "secret" not in line


def test_texts_made_again_are_in_the_log(
    server: Server,
    client: FakeEngineClient,
    service: FakeCompileService,
    log: Callable[[], list[str]],
) -> None:
    """How many, and all of their tokens, also where the request fails in the end."""
    service.schema = "{}"
    service.faults = [NotSatisfied("no")] * 6
    for _ in range(6):
        client.will_answer(said("1", 52, EOS, finish="stop"))
    ask(server, guided_json={})
    (line,) = log()
    facts = json.loads(line)
    assert (facts["status"], facts["guided_retries"], facts["completion_tokens"]) == (500, 5, 10)
