"""The golden cases: what goes to the engine and what comes back, byte for byte."""

import json
import math
import time
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.golden.files import FOLDER, Case, Json, all_cases, case_files, cases_of, read, written
from tests.golden.player import SEEN_HEADERS, Played, content_type, play
from tests.golden.record import record
from tests.tiny_tokenizer import tiny_tokenizer

DATA = FOLDER.parent / "data"
CASES = all_cases()
ALL = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
STREAMED = pytest.mark.parametrize(
    "case", [case for case in CASES if "streamed" in case.fields], ids=lambda case: case.id
)


@cache
def schema(name: str) -> Any:
    """A JSON schema of the contract's, or the cases' own."""
    folder = FOLDER if name == "case" else DATA
    return json.loads((folder / f"{name}.schema.json").read_text("utf-8"))


# --- the cases played ---------------------------------------------------------------------------


@pytest.mark.needs_vllm
@ALL
def test_answer(case: Case) -> None:
    """The engine is asked exactly what the case says, and the answer is the case's own."""
    played = play(case, streamed=False)
    check(case, played, streamed=False)
    body = case.fields["request"].get("body")
    if played.exchange.status == 200 and not (isinstance(body, dict) and body.get("stream")):
        jsonschema.validate(without_first_nulls(played.exchange.json()), schema(RESPONSE))


@pytest.mark.needs_vllm
@STREAMED
def test_streamed(case: Case) -> None:
    """The same with stream set to true."""
    check(case, play(case, streamed=True), streamed=True)


RESPONSE, REQUEST = "completion-response", "completion-v2-request"


def check(case: Case, played: Played, *, streamed: bool) -> None:
    """The calls, the status, the headers and the bytes."""
    reply = case.reply(streamed=streamed)
    got = played.exchange
    assert played.calls == case.fields["engine"]
    asks_stream = streamed or bool(_field(case, "stream"))
    output = reply.get("output", "deltas" if asks_stream else "final")
    assert played.outputs <= {output}
    assert got.status == reply["status"]
    check_headers(case, played, reply)
    check_envelope(case, played)
    assert in_order(got.body, len(played.calls)) == in_order(
        played.expected_bytes(case, reply), len(played.calls)
    )
    if "text" in reply:
        assert got.body.decode() == played.expected_text(case, reply["text"])
    assert played.all_said or got.status != 200


def _field(case: Case, name: str) -> Any:
    body = case.fields["request"].get("body")
    return body.get(name) if isinstance(body, dict) else None


def check_headers(case: Case, played: Played, reply: Json) -> None:
    """The headers that the README names are there with these values, or are not there."""
    headers = played.exchange.headers
    expected = reply.get("headers", {})
    assert {name: headers[name] for name in SEEN_HEADERS if name in headers} == {
        name: value for name, value in expected.items() if name in SEEN_HEADERS
    }
    assert headers["x-request-id"] == expected.get("x-request-id", headers["x-request-id"])
    assert headers["content-type"] == content_type("events" if "events" in reply else "body")
    if "body" in reply:
        assert headers["content-length"] == str(len(played.exchange.body))
    else:
        assert "content-length" not in headers
        assert headers["cache-control"] == "no-cache"


def check_envelope(case: Case, played: Played) -> None:
    """The time is now, and the fingerprint the engine's; the id is compared with the bytes."""
    envelope = played.envelope(case)
    if envelope["created"] is not None:
        assert played.started <= envelope["created"] <= time.time()
        assert envelope["system_fingerprint"].startswith("vllm-")


def in_order(body: bytes, calls: int) -> Any:
    """A stream's bytes; of several prompts the events by choice, which may come in any order."""
    if calls < 2 or not body.startswith(b"data: "):
        return body
    events = body.split(b"\n\n")
    return sorted(events[:-2], key=_choice), events[-2:]


def _choice(event: bytes) -> float:
    choices: list[dict[str, int]] = json.loads(event.removeprefix(b"data: ")).get("choices")
    return choices[0]["index"] if choices else math.inf  # usage, or an error: the last


def without_first_nulls(body: Json) -> Json:
    """The body as the contract's schema has it, which knows no null for an echo's first token."""
    for choice in body["choices"]:
        logprobs = choice["logprobs"]
        if logprobs and logprobs["token_logprobs"][:1] == [None]:
            logprobs["token_logprobs"][0] = 0.0
            logprobs["top_logprobs"][0] = {}
    return body


# --- the cases as they are written --------------------------------------------------------------


FILES = pytest.mark.parametrize(
    "path", case_files(), ids=lambda path: f"{path.parent.name}/{path.stem}"
)


@FILES
def test_file(path: Path) -> None:
    """A file is as case.schema.json says and `record` writes it; its cases can be told apart."""
    content = read(path)
    jsonschema.validate(content, schema("case"))
    assert written(content) == path.read_text("utf-8")
    names = [case.fields["name"] for case in cases_of(path)]
    assert len(set(names)) == len(names)
    # The live server is like server.json as far as such cases can tell.
    assert not any({"live", "server"} <= set(fields) for fields in content["cases"])


@FILES
def test_contracts_schema(path: Path) -> None:
    """A body that the contract's schema refuses is marked so and refused; all others it takes."""
    validator = jsonschema.Draft202012Validator(schema(REQUEST))
    for case in cases_of(path):
        breaks = case.fields.get("breaks_schema", False)
        body = case.fields["request"].get("body")
        assert (body is None or validator.is_valid(body)) is not breaks, case.id
        # Common clients send an empty list for no stop strings: the one body more that is taken.
        status = 200 if _field(case, "stop") == [] else 400
        assert not breaks or case.fields["answer"]["status"] == status, case.id


@pytest.mark.needs_vllm
def test_record(tmp_path: Path) -> None:
    """What `record` fills into a case is what was left out of it."""
    whole = read(FOLDER / "fields" / "best_of.json")
    bare = json.loads(json.dumps(whole))
    for fields in bare["cases"]:
        del fields["engine"], fields["answer"]
        fields.update({"streamed": None} if "streamed" in fields else {})
    path = tmp_path / "best_of.json"
    path.write_text(json.dumps(bare), "utf-8")
    assert record(path) == [fields["name"] for fields in whole["cases"]]
    assert path.read_text("utf-8") == written(whole)


@pytest.mark.needs_vllm
def test_tokenizer() -> None:
    """tokenizer.json is the tokenizer that the cases are played with."""
    kept = json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
    assert kept == json.loads(tiny_tokenizer().backend_tokenizer.to_str())


@pytest.mark.parametrize("field", schema(REQUEST)["properties"])
def test_every_field_has_its_cases(field: str) -> None:
    """Each field of the contract has a file, in it a case that takes it and one that refuses it."""
    cases = cases_of(FOLDER / "fields" / f"{field}.json")
    taken = [
        case
        for case in cases
        if case.fields["answer"]["status"] == 200 and _field(case, field) is not None
    ]
    refused = [case for case in cases if _refused(case).startswith(field)]
    assert taken
    assert refused


def _refused(case: Case) -> str:
    """The field that an answer refuses."""
    error = case.fields["answer"].get("body", {}).get("error", {})
    return error.get("param") or ""


@pytest.mark.parametrize(
    "field", sorted(set(schema(REQUEST)["properties"]) - set(schema(REQUEST)["required"]))
)
def test_null_equals_absent(field: str) -> None:
    """Each optional field has a case of null, in which all is as in the plain case without it."""
    null = case_named("null", FOLDER / "fields" / f"{field}.json")
    plain = case_named("plain", FOLDER / "modes" / "sample.json")
    assert null["request"]["body"] == plain["request"]["body"] | {field: None}
    for part in ("engine", "engine_says", "answer"):
        assert null[part] == plain[part]


def case_named(name: str, path: Path) -> Json:
    """A case of a file."""
    (found,) = (case.fields for case in cases_of(path) if case.fields["name"] == name)
    return found
