"""A stream holds back only what can still become a stop string."""

from collections.abc import Sequence
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.needs_vllm


def begun(tokenizer: Any, stops: list[str], **fields: Any) -> Any:
    """vLLM's detokenizer of a new text, repaired."""
    from adapter.vllm_api import IncrementalDetokenizer, SamplingParams
    from adapter.vllm_patches.detokenizer import hold_back_less

    hold_back_less()
    hold_back_less()
    request = SimpleNamespace(
        request_id="test",
        prompt_token_ids=[5],
        prompt_embeds=None,
        sampling_params=SamplingParams(stop=stops, **fields),
    )
    return IncrementalDetokenizer.from_new_request(tokenizer, request)


def pieces(detokenizer: Any, text: Sequence[str]) -> tuple[list[str], str | None]:
    """What a stream shows after each character, and the stop string that ends it."""
    from tests.tiny_tokenizer import byte_ids

    shown = []
    for char in text:
        stop = detokenizer.update(byte_ids(char.encode()), stop_terminated=False)
        shown.append(detokenizer.get_next_output_text(finished=stop is not None, delta=True))
        if stop is not None:
            return shown, stop
    shown.append(detokenizer.get_next_output_text(finished=True, delta=True))
    return shown, None


def test_only_a_begun_stop_string_is_held_back(tokenizer: Any) -> None:
    """What cannot become a stop string is shown at once, and what can is shown when it did not."""
    shown, stop = pieces(begun(tokenizer, ["END OF TEXT", "abb"]), "xENx ENDababc")
    assert stop is None
    assert shown == ["x", "", "", "ENx", " ", "", "", "", "END", "", "ab", "", "abc", ""]


def test_nothing_of_a_stop_string_is_shown(tokenizer: Any) -> None:
    """Over random texts: shown is the text up to the first stop string, each piece as early as it
    can be."""
    random = Random(3)
    words = ["".join(letters) for size in (1, 2, 3, 4) for letters in product("ab", repeat=size)]
    for _ in range(300):
        stops = random.sample(words, random.randint(1, 3))
        text = "".join(random.choices("abc", k=12))
        shown, stop = pieces(begun(tokenizer, stops), text)
        ends = [text.find(each) + len(each) for each in stops if each in text]
        assert (stop is not None) == bool(ends)
        seen = text[: min(ends, default=len(text))]
        assert "".join(shown) == (seen if stop is None else seen.removesuffix(stop))
        for count in range(1, len(seen) + (stop is None)):
            so_far = "".join(shown[:count])
            held = seen[len(so_far) : count]
            assert all(
                not any(s.startswith(seen[k:count]) for s in stops) for k in range(len(so_far))
            )
            assert not held or any(each.startswith(held) for each in stops)


def test_min_tokens_and_kept_stops(tokenizer: Any) -> None:
    """Stop strings that min_tokens holds back are text; those that are kept hold nothing back."""
    shown, stop = pieces(begun(tokenizer, ["ab"], min_tokens=3), "ababx")
    assert (shown, stop) == (["", "ab", "", ""], "ab")
    kept = begun(tokenizer, ["ab"], include_stop_str_in_output=True)
    assert pieces(kept, "xab") == (["x", "a", "b"], "ab")


def test_stop_strings_of_one_character_hold_nothing_back(tokenizer: Any) -> None:
    """Beside longer ones, also where min_tokens makes text of them."""
    shown, stop = pieces(begun(tokenizer, ["a", "xyz"], min_tokens=3), "abaxa")
    assert (shown, stop) == (["a", "b", "a", "", "x"], "a")


def test_long_stop_strings(tokenizer: Any) -> None:
    """The end of a text is not looked through for them: as much as they have is held back."""
    shown, _ = pieces(begun(tokenizer, ["b" * 256, "c"]), "a" * 260)
    assert shown == ["a"] * 260 + [""]
    shown, _ = pieces(begun(tokenizer, ["b" * 257, "c"]), "a" * 260)
    assert shown == [""] * 256 + ["a"] * 4 + ["a" * 256]


def test_it_is_repaired_once() -> None:
    """A second repair leaves the first as it is."""
    from adapter.vllm_api import BaseIncrementalDetokenizer
    from adapter.vllm_patches.detokenizer import hold_back_less

    hold_back_less()
    repaired = BaseIncrementalDetokenizer.get_next_output_text
    hold_back_less()
    assert BaseIncrementalDetokenizer.get_next_output_text is repaired
