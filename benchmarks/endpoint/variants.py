"""How it is asked for: what a variant's requests say on each of the two routes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.running.server import Route

CHOICES = 4
TOP_LOGPROBS = 5

# Small, and bounded everywhere, so that a text ends before max_tokens does in most shapes.
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["ship", "train", "plane"]},
        "fast": {"type": "boolean"},
    },
    "required": ["name", "kind", "fast"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of asking, on both routes."""

    name: str
    label: str
    v1: Mapping[str, Any] = field(default_factory=dict)
    """What a body of /v1/completions has beside the prompt and max_tokens."""
    v2: Mapping[str, Any] = field(default_factory=dict)
    """The same for /v2/completions."""
    note: str = ""
    """What to know when the two are compared."""
    logprobs: int | None = None
    temperature: float | None = 0.0
    ends_freely: bool = False
    """Not held to exactly max_tokens: the text ends where the constraint lets it end."""
    streamed: bool = True

    def body(self, route: Route) -> dict[str, Any]:
        """The fields of --extra-body on a route.

        `vllm bench serve` adds them last, so that they also take back what it sets by itself:
        ignore_eos for random prompts.
        """
        fields = dict(self.v1 if route == "v1" else self.v2)
        return fields | ({"ignore_eos": False} if self.ends_freely else {})


def _guided(backend: str, name: str | None = None) -> Variant:
    return Variant(
        f"guided-{name or backend}",
        f"a JSON schema, {backend}",
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA, "guided_decoding_backend": backend},
        note="/v1 has one backend for the whole server, vLLM's own choice unless flags say "
        "otherwise. The texts may differ in length: compare ttft and tpot.",
        ends_freely=True,
    )


_WHOLE = "Not streamed, so only latency and throughput of whole answers are measured."

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("plain", "greedy, one text"),
        Variant("whole", "greedy, one text, not streamed", streamed=False, note=_WHOLE),
        Variant("logprobs", f"with {TOP_LOGPROBS} logprobs a token", logprobs=TOP_LOGPROBS),
        # vLLM refuses several greedy texts.
        Variant("n4", f"{CHOICES} sampled texts", {"n": CHOICES}, {"n": CHOICES}, temperature=1.0),
        _guided("xgrammar"),
        _guided("guidance"),
        _guided("outlines"),
        _guided("lm-format-enforcer"),
        _guided("auto"),
        Variant(
            "best_of",
            f"the best of {CHOICES} sampled texts",
            {"n": CHOICES},
            {"n": 1, "best_of": CHOICES},
            note=f"/v1 takes best_of without a word and ignores it, so there n is {CHOICES}: the "
            f"same tokens are generated, and none is chosen. {_WHOLE}",
            temperature=1.0,
            streamed=False,
        ),
        Variant(
            "beam",
            f"beam search, {CHOICES} wide",
            {"n": CHOICES, "use_beam_search": True},
            {"n": CHOICES, "use_beam_search": True},
            note=f"Both routes refuse to stream beam search. {_WHOLE}",
            temperature=None,  # means nothing here
            streamed=False,
        ),
    )
}
