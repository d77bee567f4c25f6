"""The golden cases' engine: a fake one that says what a case has it say."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.guided.program import read_request
from tests.fake_engine import (
    Call,
    Candidate,
    FakeCollector,
    FakeEngineClient,
    Output,
    Step,
    Table,
)
from tests.golden.files import Json

# How the answer comes back, which is the same for all requests or said elsewhere, and what vLLM
# works out from the rest.
_NOT_SAMPLING = {
    "flat_logprobs",
    "output_kind",
    "output_text_buffer_length",
    "skip_clone",
    "skip_reading_prefix_cache",
    "structured_outputs",
}


class GoldenEngine(FakeEngineClient):
    """Says each call's updates one by one, or joined where the call asks for the final output."""

    _says: Sequence[Sequence[Json]] = ()

    def will_say(self, says: Sequence[Sequence[Json]]) -> None:
        """Begin a case, given its engine_says."""
        self._says = says
        self.calls.clear()

    async def add_request(
        self, request_id: str, prompt: Mapping[str, Any], params: Any, **options: Any
    ) -> FakeCollector:
        """Play the next call's updates."""
        assert self._says, "the engine is asked more often than the case has it answer"
        updates, *self._says = self._says
        if params.output_kind.name == "FINAL_ONLY":
            updates = [_joined(updates)]
        self.will_answer(*map(_step, updates))
        return await super().add_request(request_id, prompt, params, **options)

    @property
    def silent(self) -> bool:
        """True once all was said."""
        return not self._says


def _joined(updates: Sequence[Json]) -> Json:
    """All updates of a call in one, as the engine gives them at the end."""
    if "error" in updates[-1]:
        return updates[-1]
    candidates: dict[int, Json] = {}
    for update in updates:
        for candidate in update["candidates"]:
            index = candidate.get("index", 0)
            candidates[index] = _added(candidates.get(index, {}), candidate)
    return updates[0] | {"candidates": [candidates[index] for index in sorted(candidates)]}


def _added(before: Json, candidate: Json) -> Json:
    lists = {
        name: before.get(name, type(candidate[name])()) + candidate[name]
        for name in ("text", "token_ids", "logprobs")
        if name in candidate
    }
    return before | candidate | lists


def _step(update: Json) -> Step:
    if "error" in update:
        return _error(update["error"])
    candidates = [
        Candidate(**(fields | {"logprobs": _table(fields.get("logprobs"))}))
        for fields in update["candidates"]
    ]
    return Output(candidates, prompt_logprobs=_table(update.get("prompt_logprobs")))


def _table(positions: Sequence[Sequence[Any]] | None) -> Table | None:
    if positions is None:
        return None
    table = Table()
    for entries in positions:
        table.add(*((token_id, logprob, text) for token_id, logprob, text in entries))
    return table


def _error(error: Json) -> Exception:
    """The engine's error of a kind."""
    from adapter.vllm_api import EngineDeadError, VLLMValidationError

    made: Exception
    if error["kind"] == "dead":
        made = EngineDeadError()
    elif error["kind"] == "refused":
        made = VLLMValidationError(error["message"], parameter=error["parameter"])
    else:
        assert error["kind"] == "failed"
        made = ValueError(error["message"])
    return made


def described(call: Call) -> Json:
    """A call as a case has it: the prompt, and what differs from vLLM's neutral values."""
    found: Json = {
        "prompt_token_ids": list(call.prompt["prompt_token_ids"]),
        "sampling": sampling(call.params),
    }
    if call.params.structured_outputs is not None:
        found["structured"] = _structured(call.params.structured_outputs)
    routing = {name: value for name, value in call.options.items() if value}
    if "lora_request" in routing:
        routing["lora_request"] = str(routing["lora_request"])
    return found | ({"routing": routing} if routing else {})


def output_of(call: Call) -> str:
    """How a call wants its answer: "final" or "deltas"."""
    return {"FINAL_ONLY": "final", "DELTA": "deltas"}[call.params.output_kind.name]


def sampling(params: Any) -> Json:
    """max_tokens, and the keyword arguments of SamplingParams that are not what vLLM takes for
    none."""
    from adapter.vllm_api import SamplingParams

    neutral = SamplingParams()
    names = [name for name in params.__struct_fields__ if not name.startswith("_")]
    found = {
        name: getattr(params, name)
        for name in names
        if name == "max_tokens" or getattr(params, name) != getattr(neutral, name)
    }
    found = {name: value for name, value in found.items() if name not in _NOT_SAMPLING}
    as_json: Json = json.loads(json.dumps(found))
    return as_json


def _structured(given: Any) -> Json:
    """Which libraries hold the text, and to what kind of thing; how they say it is their own."""
    assert given._backend == "completion_v2"
    focus, text = read_request(given.grammar)
    program = json.loads(text)
    found: Json = {"parts": [[part["library"], part["form"]] for part in program["parts"]]}
    if program["whitespace"]:
        found["whitespace"] = True
    found |= {"ends": program["eos_token_ids"], "end_last": program["eos_last"]}
    asked = {"begun": focus.begun, "among": focus.among, "but": focus.but}
    return found | {name: list(ids) for name, ids in asked.items() if ids}
