"""suffix becomes the model's own fill-in-the-middle prompt."""

import asyncio
import json

import pytest

from adapter.contract.parsing import parse_request
from adapter.planning import infill
from adapter.planning.plan import plan
from adapter.settings import Settings
from tests.fake_engine import FakeEngineClient, FakeServingModels
from tests.tiny_tokenizer import SPECIAL

RENDERED = {
    "fim_prefix with bars": "<|fim_prefix|>a = <|fim_suffix|> + c<|fim_middle|>",
    "fim_prefix": "<fim_prefix>a = <fim_suffix> + c<fim_middle>",
    "fim-prefix": "<fim-prefix>a = <fim-suffix> + c<fim-middle>",
    "DeepSeek": "<｜fim▁begin｜>a = <｜fim▁hole｜> + c<｜fim▁end｜>",
    "CodeLlama": "▁<PRE> a = ▁<SUF> + c▁<MID>",
    "Codestral": "[SUFFIX] + c[PREFIX]a = ",
}


@pytest.mark.parametrize("family", infill.FAMILIES)
def test_each_family_has_its_form(family: str) -> None:
    """A family is found by its tokens, and asks in the form that its documentation gives."""
    sentinels, _ = infill.FAMILIES[family]
    found = infill.find({"word": 0, **{name: index for index, name in enumerate(sentinels, 1)}})
    assert found is not None
    assert found.prompt("a = ", " + c").text == RENDERED[family]


@pytest.mark.parametrize("family", infill.FAMILIES)
def test_a_part_of_a_family_is_none(family: str) -> None:
    """A tokenizer that lacks one of the tokens cannot infill."""
    sentinels, _ = infill.FAMILIES[family]
    assert infill.find({name: index for index, name in enumerate(sentinels[1:])}) is None


def test_texts_are_not_templates() -> None:
    """A prompt or suffix that holds a placeholder's name is left as it is."""
    template = infill.from_template("<P>{prefix}<S>{suffix}<M>")
    assert template.prompt("{suffix}", "{prefix}").text == "<P>{suffix}<S>{prefix}<M>"


@pytest.mark.parametrize(
    "template", ["", "{prefix}", "{suffix}{suffix}", "{prefix}{prefix}{suffix}"]
)
def test_templates_need_both_places(template: str) -> None:
    """A template without either place, or with one twice, is refused."""
    with pytest.raises(ValueError, match="each once"):
        infill.from_template(template)


@pytest.mark.needs_vllm
@pytest.mark.parametrize("family", infill.FAMILIES)
def test_a_model_of_each_family_is_asked_in_its_form(
    family: str, models: FakeServingModels
) -> None:
    """The engine gets the family's tokens as single ids around the texts, and ends at its ends."""
    from vllm.renderers.params import TokenizeParams

    from adapter.engine.client import Engine
    from tests.tiny_tokenizer import tiny_tokenizer

    sentinels, form = infill.FAMILIES[family]
    names = list(dict.fromkeys([*sentinels, *form.ends]))
    tokenizer = tiny_tokenizer([name for name in names if name not in SPECIAL])
    client = FakeEngineClient(tokenizer, TokenizeParams(max_total_tokens=64))
    engine = Engine(client, models, Settings(reject_unknown_fields=False, max_choices=8))
    request = parse_request(b'{"model": "m", "prompt": "a = ", "suffix": " + c", "echo": true}')
    made = plan(request, engine.facts)
    ((token_ids, own),) = asyncio.run(
        engine.tokenize(made.prompts, add_special_tokens=True, check=lambda *_: None)
    )
    assert own is None
    vocabulary = tokenizer.get_vocab()
    positions = [token_ids.index(vocabulary[name]) for name in sentinels]
    assert positions == sorted(positions)
    assert tokenizer.decode(token_ids) == RENDERED[family]
    assert made.echoes == ("a = ",)
    ends = {vocabulary[name] for name in form.ends}
    assert ends <= set(made.sampling["stop_token_ids"])
    for prompt in ("a = ", tokenizer.encode("a = ")):
        body = {"model": "m", "prompt": prompt, "suffix": " + c", "echo": True, "logprobs": 0}
        made = plan(parse_request(json.dumps(body).encode()), engine.facts)
        ((whole, own),) = asyncio.run(
            engine.tokenize(made.prompts, add_special_tokens=True, check=lambda *_: None)
        )
        assert own is not None
        assert whole[own[0] : own[1]] == tokenizer.encode("a = ")
        text = tokenizer.decode(whole)
        # The blank after CodeLlama's first token belongs to the caller's own first one.
        assert text == RENDERED[family].replace("<PRE> ", "<PRE>" if prompt != "a = " else "<PRE> ")
