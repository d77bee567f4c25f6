"""Texts and log-probabilities agree with transformers on the same weights in float32."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.server import Server

pytestmark = pytest.mark.live

TOLERANCE = 1e-3
GENERATED = 24

PROMPTS = [
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village,",
    "Water boils at",
    "The three primary colours are",
    "import numpy as np\n\n",
    "Dear Sir or Madam,\n",
    "Q: What is 2 + 2?\nA:",
    '{"name": "Ada", "age":',
    "The quick brown fox jumps over",
    "To be, or not to be,",
    "SELECT name FROM users WHERE",
    "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n",
    "In 1969, humans first",
    "Größe, Übung und Straße sind",
    "日本の首都は",
    "Привет! Как",
    "Les élèves français étudient à l'école où",
    "🐈 🐕 🐁 are",
    "naïve café — “quoted” text…",
    "   leading blanks and\ttabs\n\n",
]


@pytest.fixture(scope="module")
def oracle(model_folder: Path) -> Any:
    """transformers' own model and tokenizer, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(model_folder)


def _oracle_logprobs(model: Any, ids: Any) -> list[float]:
    """The log-probability of each token after the first."""
    import torch

    scores = torch.log_softmax(model(ids).logits[0, :-1].double(), dim=-1)
    return [float(scores[position, token]) for position, token in enumerate(ids[0, 1:])]


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_greedy_text_and_logprobs(server: Server, oracle: Any, prompt: str) -> None:
    """The greedy text, its tokens' scores and the prompt's scores are transformers'."""
    model, tokenizer = oracle
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    generated = model.generate(ids, max_new_tokens=GENERATED, do_sample=False)
    expected = tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)
    reply = server.ask(prompt=prompt, max_tokens=GENERATED, temperature=0, logprobs=1, echo=True)
    assert reply.text == prompt + expected.rstrip("\ufffd")
    assert reply.usage["prompt_tokens"] == ids.shape[1]
    assert reply.usage["completion_tokens"] == generated.shape[1] - ids.shape[1]
    ours = reply.logprobs["token_logprobs"]
    assert ours[0] is None
    assert ours[1:] == pytest.approx(_oracle_logprobs(model, generated), abs=TOLERANCE)
