"""How far beam search agrees with transformers' generate(num_beams=...) on the built-in model.

Both in float32 on the same weights; also with penalties, logit_bias and constraints. A case agrees
where the texts are the same in the same order, or, where beams tie, the scores are the same within
1e-3.

Run: python -m benchmarks.search_agreement [--quick] [--prompts N] [--changed] [--json FILE]
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from adapter.builtin_model.model import MODEL_NAME, ensure_default_model
from benchmarks.changed_scores import CHANGES, Change, generate_options
from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.server import running_server

MAX_TOKENS = 8
TOLERANCE = 1e-3
WIDTHS = (1, 2, 4, 8)
PENALTIES = (0.0, 1.0, 2.0, -1.0)
EARLY = (True, False)

UNITS = {"agreement": "share"}

# Every so many cases are a quick run's: all values of every option come up in it.
QUICK_STEP = 93
QUICK_CHANGED_STEP = 97


def _chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    *(
        _chat(question)
        for question in (
            "Is the sky blue? Answer yes or no.",
            "Name a colour.",
            "What is 2 + 2? Answer with a number.",
            "Say hello.",
            "Is ice cold? Answer yes or no.",
            "Name an animal.",
            "What comes after Monday?",
            "Answer yes or no: is red a colour?",
            "Spell cat.",
            "Say nothing but OK.",
        )
    ),
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village,",
    "Water boils at",
    "Q: What is 2 + 2?\nA:",
    '{"name": "Ada", "age":',
    "日本の首都は",
    "Größe, Übung und Straße sind",
    "🐈 🐕 🐁 are",
]


class Case(NamedTuple):
    """One beam search."""

    prompt: str
    width: int
    length_penalty: float
    early_stopping: bool
    change: str = ""
    """A name of CHANGES; empty for none."""

    @property
    def changed(self) -> Change:
        """What changes the scores."""
        return CHANGES[self.change] if self.change else Change({})


class Oracle:
    """transformers' model and tokenizer, in float32."""

    def __init__(self, folder: Path) -> None:
        """folder: a model folder."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_grad_enabled(False)
        torch.set_num_threads(1)  # the server's threads wait on the same cores
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def beams(self, case: Case) -> tuple[list[str], list[float] | None]:
        """The texts, best first, and their scores; greedy search has no scores."""
        inputs = self._tokenizer(case.prompt, return_tensors="pt")
        length = inputs.input_ids.shape[1]
        found = self._model.generate(
            **inputs,
            max_new_tokens=MAX_TOKENS,
            num_beams=case.width,
            num_return_sequences=case.width,
            length_penalty=case.length_penalty,
            early_stopping=case.early_stopping,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **generate_options(case.changed, self._tokenizer, length),
        )
        texts = [
            self._tokenizer.decode(ids[length:], skip_special_tokens=True).rstrip("\ufffd")
            for ids in found.sequences
        ]
        return texts, None if case.width == 1 else found.sequences_scores.tolist()


def disagreement(ask: Callable[..., Any], oracle: Oracle, case: Case) -> str | None:
    """What differs between the server's beams and the oracle's; None where they agree.

    ask: posts the fields it is given and returns a reply with `texts` and `choices`.
    """
    reply = ask(
        prompt=case.prompt,
        max_tokens=MAX_TOKENS,
        use_beam_search=True,
        n=case.width,
        length_penalty=case.length_penalty,
        early_stopping=case.early_stopping,
        logprobs=0,
        **case.changed.fields,
    )
    texts, scores = oracle.beams(case)
    if reply.texts == texts:
        return None
    ours = [
        sum(values) / len(values) ** case.length_penalty
        for values in (choice["logprobs"]["token_logprobs"] for choice in reply.choices)
    ]
    same_measure = not case.change  # else what is reported is not what is summed
    if (
        scores
        and same_measure
        and all(abs(a - b) <= TOLERANCE for a, b in zip(ours, scores, strict=True))
    ):
        return None
    return f"ours {reply.texts} {ours}, transformers {texts} {scores}"


def cases(prompts: Sequence[str]) -> list[Case]:
    """Every combination."""
    return [Case(*values) for values in itertools.product(prompts, WIDTHS, PENALTIES, EARLY)]


def changed_cases(prompts: Sequence[str]) -> list[Case]:
    """Each change of scores, with every prompt and width; the other options in turn."""
    options = list(itertools.product(PENALTIES[1:3], EARLY))
    return [
        Case(prompt, width, *options[(row + column) % len(options)], change)
        for row, (prompt, width) in enumerate(itertools.product(prompts, WIDTHS[1:3]))
        for column, change in enumerate(CHANGES)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print each disagreement, and how many cases agree."""
    parser = program.parser("search_agreement", "Beam search here and in transformers, compared.")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the 20")
    parser.add_argument(
        "--changed", action="store_true", help="only the cases with penalties or a constraint"
    )
    return program.run(_benchmark, parser.parse_args(argv), sections)


def _benchmark(options: argparse.Namespace) -> Result:
    folder = ensure_default_model()
    oracle = Oracle(folder)
    prompts = PROMPTS[: options.prompts]
    chosen = cases(prompts)[:: QUICK_STEP if options.quick else 1]
    changed = changed_cases(prompts)[:: QUICK_CHANGED_STEP if options.quick else 1]
    chosen = changed if options.changed else [*chosen, *changed]
    found: list[dict[str, Any]] = []
    with (
        running_server(folder, MODEL_NAME, ["--dtype", "float32", "--enforce-eager"]) as server,
        program.progress_bar(len(chosen), "cases") as bar,
    ):
        for case in chosen:
            difference = disagreement(server.ask, oracle, case)
            if difference is not None:
                found.append({"case": case, "difference": difference})
                tqdm.write(f"{case}: {difference}", file=sys.stderr)
            bar.update()
    agreeing = len(chosen) - len(found)
    values = {"cases": len(chosen), "agreeing": agreeing, "agreement": agreeing / len(chosen)}
    record = {"cases": len(chosen), "disagreements": found}
    return Result(values, record, UNITS)


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    total, found = record["cases"], record["disagreements"]
    agreeing = total - len(found)
    grid = Grid(
        ["cases", "agreeing", "share"], [[str(total), str(agreeing), _share(agreeing, total)]]
    )
    text = [f"{Case(*each['case'])}: {each['difference']}" for each in found]
    return [Section("Beam search: agreement with transformers", text, [grid])]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
