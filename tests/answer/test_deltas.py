"""adapter/answer/deltas.py: updates become deltas, and deltas fold to the response."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from adapter.answer.choice import Delta
from adapter.answer.deltas import Answer, Usage, fold
from adapter.answer.logprobs import LOWEST_LOGPROB, finite
from adapter.answer.token_text import TokenText, TokenTexts
from adapter.contract.request import CompletionV2Request
from adapter.errors import GenerationFailed, Unavailable
from adapter.planning.calls import EngineCall, TokenizedPrompt, Work
from adapter.planning.facts import ServerFacts
from adapter.planning.infill import Infill
from adapter.planning.modes import Greedy, Mode, Score
from adapter.planning.plan import plan
from tests.fake_engine import Candidate, Output, Table, said

# Token ids: the bytes of the pieces below, and two special tokens.
PIECES = {
    1: b"red",
    2: b" green",
    3: b" blue",
    4: b"\xf0\x9f",
    5: b"\x90\x88",
    6: b" six",
    7: b"\xc3\xa9",
    8: b"red",
    90: b"<|end|>",
    91: b"<|start|>",
}
SPECIAL = {90, 91}


class PlainTokenText:
    """TokenText over PIECES: what is left of an unfinished character waits."""

    def __init__(self, begun: bytes = b"") -> None:
        self._waiting = begun

    def next(self, token_id: int) -> str:
        self._waiting += PIECES[token_id]
        try:
            text = self._waiting.decode()
        except UnicodeDecodeError as error:
            if error.end == len(self._waiting):
                return ""
            text = self._waiting.decode(errors="replace")
        self._waiting = b""
        return text

    def is_special(self, token_id: int) -> bool:
        return token_id in SPECIAL

    def name(self, token_id: int) -> str:
        return PIECES[token_id].decode()


class PlainTokenTexts:
    """TokenTexts over PIECES."""

    def prompt(self) -> PlainTokenText:
        return PlainTokenText()

    def completion(self, prompt: TokenizedPrompt) -> PlainTokenText:
        return PlainTokenText(PIECES[4] if self.ends_inside_character(prompt) else b"")

    def ends_inside_character(self, prompt: TokenizedPrompt) -> bool:
        return prompt.token_ids[-1] == 4


if TYPE_CHECKING:
    _token_text: type[TokenText] = PlainTokenText
    _token_texts: type[TokenTexts] = PlainTokenTexts

FACTS = ServerFacts(
    max_model_len=64,
    vocab_size=100,
    max_prompt_token_id=99,
    document_separator=90,
    max_choices=64,
    max_logprobs=20,
    eos_token_ids=frozenset({90}),
    infill=Infill("{prefix}{suffix}"),
)


def answer(*prompts: TokenizedPrompt, mode: Mode | None = None, **fields: Any) -> Answer:
    """The answer to a request for some prompts, one prompt "red" where none is given.

    mode: how the answers are made, where it is not as the request asks.
    """
    planned = plan(CompletionV2Request(model="m", prompt="x", **fields), FACTS)
    work = Work(mode or planned.mode, planned.sampling)
    calls = [EngineCall(prompt, work) for prompt in prompts or (TokenizedPrompt("red", [1]),)]
    return Answer(planned.shape, calls, PlainTokenTexts())


def choices(made: Answer, *updates: Output | tuple[int, Output]) -> list[dict[str, Any]]:
    """The folded choices after updates, each of prompt 0 or with its prompt's index."""
    pairs = [update if isinstance(update, tuple) else (0, update) for update in updates]
    return list(fold([delta for pair in pairs for delta in made.deltas([pair])]))


def scores(*token_ids: int, first: float = -0.5) -> Table:
    """A table of one entry a position."""
    table = Table()
    for token_id in token_ids:
        table.add((token_id, first, PIECES[token_id].decode(errors="replace")))
    return table


def final(
    text: str, ids: Sequence[int], finish: str = "length", *, index: int = 0, **more: Any
) -> Output:
    """A whole candidate in one update, with scores."""
    return Output([Candidate(text, ids, finish, logprobs=scores(*ids), index=index, **more)])


# --- text ---------------------------------------------------------------------------------------


def test_plain_text_passes_unchanged() -> None:
    """Without echo, logprobs or stop tokens a delta is the engine's text."""
    made = answer()
    assert made.deltas([(0, said(" green", 2))]) == [Delta(0, " green", None, None)]
    assert made.deltas([(0, said(" blue", 3, finish="stop"))]) == [Delta(0, " blue", None, "stop")]


def test_fold_joins_the_deltas_of_a_choice() -> None:
    """A response is its deltas put together, by index."""
    deltas = [
        Delta(1, "b", None, None),
        Delta(0, "a", None, None),
        Delta(1, "B", None, "stop"),
        Delta(0, "", None, "length"),
    ]
    assert list(fold(deltas)) == [
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": "length"},
        {"index": 1, "text": "bB", "logprobs": None, "finish_reason": "stop"},
    ]


def test_fold_leaves_the_deltas_alone() -> None:
    """Folding changes no delta: only their list is emptied on the way."""
    made = answer(logprobs=0)
    updates = [
        Output([Candidate(" green", [2], logprobs=scores(2))]),
        Output([Candidate(" blue", [3], "length", logprobs=scores(3))]),
    ]
    deltas = [delta for update in updates for delta in made.deltas([(0, update)])]
    before = copy.deepcopy(deltas)
    given = list(deltas)
    first = copy.deepcopy(list(fold(given)))
    assert (given, deltas) == ([], before)
    assert list(fold(deltas)) == first


@pytest.mark.parametrize(
    "prompt", [TokenizedPrompt("red", [1]), TokenizedPrompt(None, [1])], ids=["text", "ids"]
)
def test_echo_comes_first_and_once(prompt: TokenizedPrompt) -> None:
    """With echo the prompt stands once, at the beginning of the first delta of its choice."""
    made = answer(prompt, echo=True)
    deltas = made.deltas([(0, said(" green", 2))]) + made.deltas([(0, said(" blue", 3))])
    assert [delta.text for delta in deltas] == ["red green", " blue"]


def test_echo_of_text_is_the_callers_text() -> None:
    """Special tokens that the tokenizer added to a text are not echoed."""
    made = answer(TokenizedPrompt("red", [91, 1]), echo=True)
    assert choices(made, said(" green", 2, finish="stop"))[0]["text"] == "red green"


@pytest.mark.parametrize(
    ("fields", "text"),
    [({}, "red"), ({"skip_special_tokens": False}, "<|start|>red")],
    ids=["skipped", "kept"],
)
def test_echo_of_ids_follows_skip_special_tokens(fields: dict[str, Any], text: str) -> None:
    """Special tokens among a prompt's ids are echoed where they are not skipped."""
    made = answer(TokenizedPrompt(None, [91, 1]), echo=True, **fields)
    assert choices(made, said("", finish="stop"))[0]["text"] == text


def test_echo_of_no_prompt_is_nothing() -> None:
    """The separator that stands for an empty prompt is not echoed."""
    made = answer(TokenizedPrompt("", [90]), echo=True)
    assert choices(made, said("red", 1, finish="stop"))[0]["text"] == "red"


def test_echo_of_ids_with_a_character_of_two_tokens() -> None:
    """A character that two prompt tokens make is echoed whole."""
    made = answer(TokenizedPrompt(None, [4, 5, 2]), echo=True)
    assert choices(made, said("", finish="stop"))[0]["text"] == "🐈 green"


def test_unfinished_character_of_the_prompt_is_not_repeated() -> None:
    """Where the prompt ends inside a character nobody finishes, its bytes are not the answer's."""
    made = answer(TokenizedPrompt(None, [1, 4]))
    assert choices(made, said("", 1), said("\ufffdred", 1, finish="stop"))[0]["text"] == "red"


def test_character_that_the_completion_finishes_is_the_answers() -> None:
    """Where the completion finishes the prompt's last character, it shows it whole."""
    made = answer(TokenizedPrompt(None, [1, 4]))
    assert choices(made, said("🐈", 5, finish="stop"))[0]["text"] == "🐈"


def test_own_replacement_character_stays() -> None:
    """A replacement character that the model wrote stays, also after a whole character."""
    made = answer(TokenizedPrompt(None, [1]))
    assert choices(made, said("\ufffdred", 1, finish="stop"))[0]["text"] == "\ufffdred"


# --- max_tokens 0 -------------------------------------------------------------------------------


def test_nothing_is_generated() -> None:
    """With max_tokens 0 a token that the engine made all the same is neither shown nor counted."""
    made = answer(TokenizedPrompt("red", [1]), mode=Score(2), n=2, max_tokens=0)
    assert choices(made, said(" green", 2, finish="stop")) == [
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"},
        {"index": 1, "text": "", "logprobs": None, "finish_reason": "length"},
    ]
    assert made.usage() == Usage(1, 0)


def test_nothing_with_logprobs_has_empty_lists() -> None:
    """logprobs of nothing are empty lists."""
    made = answer(mode=Score(1), max_tokens=0, logprobs=1)
    (choice,) = choices(made, said("", finish="length"))
    assert choice["logprobs"] == {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }


def test_prompt_is_scored() -> None:
    """echo, logprobs and max_tokens 0 give the scores of the prompt, the first one null."""
    made = answer(
        TokenizedPrompt("red green", [1, 2]), mode=Score(1), max_tokens=0, logprobs=1, echo=True
    )
    table = Table().add().add((2, -1.5, " green"), (3, -0.25, " blue"))
    (choice,) = choices(made, Output([Candidate(" six", [6], "length")], table))
    assert choice["text"] == "red green"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] == {
        "tokens": ["red", " green"],
        "token_logprobs": [None, -1.5],
        "top_logprobs": [None, {" green": -1.5, " blue": -0.25}],
        "text_offset": [0, 3],
    }
    assert made.usage() == Usage(2, 0)


# --- stop tokens --------------------------------------------------------------------------------


def stopped(text: str, *ids: int, by: int | str, **fields: Any) -> str:
    """The text of a choice that the engine ended with `by`."""
    made = answer(**({"stop_token_ids": [6, 90]} | fields))
    update = Output([Candidate(text, ids, "stop", by, logprobs=scores(*ids))])
    (choice,) = choices(made, update)
    assert choice["finish_reason"] == "stop"
    shown: str = choice["text"]
    return shown


@pytest.mark.parametrize("logprobs", [None, 1])
def test_plain_stop_token_stays(logprobs: int | None) -> None:
    """A stop token that is not special stays in the text."""
    assert stopped(" green", 2, 6, by=6, logprobs=logprobs) == " green six"


def test_special_stop_token_does_not_stay() -> None:
    """A special stop token is not in the text."""
    assert stopped(" green", 2, 90, by=90) == " green"


def test_stop_token_that_the_engine_kept_is_not_doubled() -> None:
    """With include_stop_str_in_output the engine keeps the stop token, and nothing is added."""
    assert stopped(" green six", 2, 6, by=6, include_stop_str_in_output=True) == " green six"


def test_stop_token_stays_beside_a_suffix_whatever_is_included() -> None:
    """Beside a suffix the engine is never told to include stops, so the token is added here."""
    fields: dict[str, Any] = {"suffix": "x", "include_stop_str_in_output": True}
    assert stopped(" green", 2, 6, by=6, **fields) == " green six"


def test_stop_string_ends_before_the_stop_token() -> None:
    """A text that a stop string ended does not get its last token back."""
    assert stopped(" gr", 2, by="een", stop=["een"]) == " gr"


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        pytest.param("si", " green ", id="inside"),
        pytest.param("ix", " green s", id="at the end"),
        pytest.param("een s", " gr", id="across"),
        pytest.param(["x", "si"], " green ", id="first to end"),
        pytest.param(["ix", "x"], " green s", id="same end, longer"),
        pytest.param("gree", " green six", id="not in it"),
        pytest.param("", " green six", id="empty"),
    ],
)
def test_stop_string_inside_the_stop_token(stop: str | list[str], text: str) -> None:
    """A stop string that ends inside a stop token cuts the text where the string begins."""
    assert stopped(" green", 2, 6, by=6, stop=stop) == text


def test_stop_token_after_an_unfinished_character() -> None:
    """A stop token brings the bytes before it with it, as the engine's text would."""
    assert stopped("", 4, 6, by=6) == "\ufffd six"


def test_length_finish_adds_nothing() -> None:
    """A text that ended by length has its last token already, a stop token or not."""
    made = answer(stop_token_ids=[6])
    assert choices(made, said(" green six", 2, 6, finish="length"))[0]["text"] == " green six"


# --- logprobs -----------------------------------------------------------------------------------


def lengths(logprobs: dict[str, list[Any]]) -> set[int]:
    return {len(values) for values in logprobs.values()}


def test_logprobs_are_four_lists_of_one_length() -> None:
    """Every generated token is in each of the four lists, a final end token too."""
    made = answer(logprobs=0)
    (choice,) = choices(made, final(" green blue", [2, 3, 90], "stop"))
    assert choice["logprobs"] == {
        "tokens": [" green", " blue", "<|end|>"],
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{" green": -0.5}, {" blue": -0.5}, {"<|end|>": -0.5}],
        "text_offset": [0, 6, 11],
    }


def test_logprobs_none_gives_null() -> None:
    """Without logprobs the field is null."""
    assert choices(answer(), said(" green", 2, finish="stop"))[0]["logprobs"] is None


@pytest.mark.parametrize(
    ("skip", "offsets"), [(True, [0, 0, 6]), (False, [0, 9, 15])], ids=["skipped", "kept"]
)
def test_offset_after_a_special_token(skip: bool, offsets: list[int]) -> None:
    """A special token takes room in the text only where it is shown."""
    made = answer(logprobs=0, skip_special_tokens=skip)
    (choice,) = choices(made, final(" green blue", [91, 2, 3]))
    assert choice["logprobs"]["text_offset"] == offsets


def test_offsets_count_characters() -> None:
    """text_offset counts code points, and a character of two tokens belongs to its last one."""
    made = answer(logprobs=0)
    (choice,) = choices(made, final("🐈éred", [4, 5, 7, 1]))
    assert choice["logprobs"]["tokens"] == ["", "🐈", "é", "red"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2]


def test_offsets_go_on_after_the_echo() -> None:
    """With echo the offsets of the completion follow those of the prompt."""
    made = answer(TokenizedPrompt("éred", [7, 1]), logprobs=0, echo=True)
    update = final(" green", [2])
    update.prompt_logprobs = Table().add().add((1, -0.25, "red"))
    (choice,) = choices(made, update)
    assert choice["text"] == "éred green"
    assert choice["logprobs"]["tokens"] == ["é", "red", " green"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.25, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 1, 4]


def test_offsets_of_an_added_start_token() -> None:
    """A start token that the tokenizer added is scored, and takes no room in the echoed text."""
    made = answer(TokenizedPrompt("red green", [91, 1, 2]), logprobs=0, echo=True)
    update = final(" blue", [3])
    update.prompt_logprobs = Table().add().add((1, -1.0, "red")).add((2, -1.0, " green"))
    (choice,) = choices(made, update)
    assert choice["logprobs"]["tokens"] == ["<|start|>", "red", " green", " blue"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 3, 9]
    assert choice["text"] == "red green blue"


def test_special_token_that_the_caller_wrote_has_room() -> None:
    """A special token that the caller wrote into a text is part of the echo."""
    prompt = TokenizedPrompt("red<|end|> green", [91, 1, 90, 2])
    made = answer(prompt, logprobs=0, echo=True)
    update = final("", [])
    update.prompt_logprobs = Table().add().add((1, -1.0, "")).add((90, -1.0, "")).add((2, -1, ""))
    (choice,) = choices(made, update)
    assert choice["logprobs"]["text_offset"] == [0, 0, 3, 10]
    assert choice["text"] == prompt.text


def test_scores_of_an_empty_prompt() -> None:
    """The separator that stands for an empty prompt is listed, without a score and without room."""
    made = answer(TokenizedPrompt("", [90]), logprobs=0, echo=True)
    update = final("red", [1])
    update.prompt_logprobs = Table().add()
    (choice,) = choices(made, update)
    assert choice["logprobs"]["tokens"] == ["<|end|>", "red"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 0]


def test_offsets_match_the_text_after_a_cut_character() -> None:
    """After an unfinished character of the prompt each offset is where the token's text stands."""
    made = answer(TokenizedPrompt(None, [1, 4]), logprobs=0)
    (choice,) = choices(made, final("\ufffdred green", [1, 2]))
    assert choice["text"] == "red green"
    assert choice["logprobs"]["text_offset"] == [0, 3]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


def test_tokens_join_to_the_text_before_a_stop_string() -> None:
    """Where a stop string cut the text, it is the beginning of the tokens' texts."""
    made = answer(logprobs=0, stop=["een"])
    (choice,) = choices(made, final(" gr", [2], "stop", stop_reason="een"))
    assert "".join(choice["logprobs"]["tokens"]).startswith(choice["text"])
    assert lengths(choice["logprobs"]) == {1} == {made.usage().completion_tokens}


def test_top_entries_that_print_alike_stay_apart() -> None:
    """Of entries that print alike the first keeps the text, the others get their token's id."""
    made = answer(logprobs=5)
    table = Table().add(
        (1, -0.5, "red"), (8, -1.0, "red"), (4, -2.0, ""), (5, -3.0, None), (2, -4.0, " green")
    )
    (choice,) = choices(made, Output([Candidate("red", [1], "length", logprobs=table)]))
    assert choice["logprobs"]["top_logprobs"] == [
        {"red": -0.5, "token_id:8": -1.0, "token_id:4": -2.0, "token_id:5": -3.0, " green": -4.0}
    ]


def test_own_entry_is_not_listed_twice() -> None:
    """A token that is also among the best ones is one entry."""
    made = answer(logprobs=2)
    table = Table().add((1, -0.5, "red"), (1, -0.5, "red"), (2, -1.0, " green"))
    (choice,) = choices(made, Output([Candidate("red", [1], "length", logprobs=table)]))
    assert choice["logprobs"]["top_logprobs"] == [{"red": -0.5, " green": -1.0}]


@pytest.mark.parametrize(
    ("logprob", "shown"),
    [
        (-1.5, -1.5),
        (0.0, 0.0),
        (1e-7, 0.0),
        (-math.inf, LOWEST_LOGPROB),
        (math.nan, LOWEST_LOGPROB),
        (-1e30, LOWEST_LOGPROB),
    ],
)
def test_logprobs_are_finite_and_not_above_0(logprob: float, shown: float) -> None:
    """Every logprob is a number that JSON has, at most 0, alone and among the best ones."""
    made = answer(logprobs=1)
    table = Table().add((1, logprob, "red"), (2, logprob, " green"))
    (choice,) = choices(made, Output([Candidate("red", [1], "length", logprobs=table)]))
    assert finite(logprob) == shown
    assert choice["logprobs"]["token_logprobs"] == [shown]
    assert choice["logprobs"]["top_logprobs"] == [{"red": shown, " green": shown}]


# --- a stream and a response say the same -------------------------------------------------------

STREAMED: dict[str, tuple[dict[str, Any], list[tuple[str, list[int]]], str, str | int | None]] = {
    "plain": ({}, [(" green", [2]), (" blue", [3])], "length", None),
    "logprobs": ({"logprobs": 0}, [(" green", [2]), (" blue", [3])], "length", None),
    "echo": ({"echo": True}, [(" green", [2]), (" blue", [3])], "length", None),
    "echo and logprobs": (
        {"echo": True, "logprobs": 0},
        [(" green", [2]), (" blue", [3]), ("", [90])],
        "stop",
        None,
    ),
    "split character": ({"logprobs": 0}, [("", [4]), ("🐈", [5]), ("red", [1])], "length", None),
    "several tokens at once": ({"logprobs": 0}, [(" green blue", [2, 3]), ("", [90])], "stop", 90),
    "stop token": ({"stop_token_ids": [6]}, [(" green", [2]), ("", [6])], "stop", 6),
    "stop token and logprobs": (
        {"stop_token_ids": [6], "logprobs": 0, "echo": True},
        [(" green", [2]), ("", [6])],
        "stop",
        6,
    ),
    "stop string in stop token": (
        {"stop_token_ids": [6], "stop": ["n s"]},
        [(" gre", [2]), ("en", [6])],
        "stop",
        6,
    ),
}


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("name", STREAMED)
def test_fold_of_a_stream_is_the_response(name: str, copies: int) -> None:
    """The deltas of a stream fold to what one update with all of it gives."""
    fields, pieces, finish, reason = STREAMED[name]
    prompt_logprobs = Table().add()
    every_id = [token_id for _, ids in pieces for token_id in ids]

    def updates(cut: list[tuple[str, list[int]]]) -> list[Output]:
        made = [Output([Candidate(text, ids, logprobs=scores(*ids))]) for text, ids in cut]
        made[0].prompt_logprobs = prompt_logprobs
        made[-1].outputs[0].finish_reason = finish
        made[-1].outputs[0].stop_reason = reason
        return made

    whole = [("".join(text for text, _ in pieces), every_id)]
    streamed, sent_whole = (
        choices(answer(mode=Greedy(copies, copies), n=copies, **fields), *updates(cut))
        for cut in (pieces, whole)
    )
    assert streamed == sent_whole
    assert [choice["index"] for choice in streamed] == list(range(copies))


# --- choices and usage --------------------------------------------------------------------------


def test_choices_are_ordered_by_prompt_then_n() -> None:
    """Choice prompt * n + i is the i-th answer to a prompt, in whatever order they come."""
    made = answer(TokenizedPrompt("red", [1]), TokenizedPrompt("é", [7]), n=2, echo=True)
    updates = [
        (1, said("d", 2, finish="stop", index=1)),
        (0, said("b", 2, finish="stop", index=1)),
        (1, said("c", 2, finish="length", index=0)),
        (0, said("a", 2, finish="stop", index=0)),
    ]
    folded = choices(made, *updates)
    assert [choice["text"] for choice in folded] == ["reda", "redb", "éc", "éd"]
    assert [choice["index"] for choice in folded] == [0, 1, 2, 3]
    assert [choice["finish_reason"] for choice in folded] == ["stop", "stop", "length", "stop"]


def test_every_choice_has_the_echoed_scores() -> None:
    """Each of n choices begins with the prompt's scores, though the engine sends them once."""
    made = answer(n=2, echo=True, logprobs=0)
    first = final(" green", [2], index=0)
    first.prompt_logprobs = Table().add()
    folded = choices(made, first, final(" blue", [3], index=1))
    assert [choice["logprobs"]["tokens"] for choice in folded] == [
        ["red", " green"],
        ["red", " blue"],
    ]


def test_usage_counts_every_choice_and_each_prompt_once() -> None:
    """Usage counts the tokens of all choices, of copies too, and each prompt once."""
    made = answer(
        TokenizedPrompt("red", [1]), TokenizedPrompt("red green", [1, 2]), temperature=0, n=3
    )
    assert made.usage() == Usage(3, 0)
    made.deltas([(0, said(" green blue", 2, 3)), (1, said("", 90, finish="stop"))])
    assert made.usage() == Usage(3, 9)
    made.deltas([(0, said(" six", 6, finish="length"))])
    assert made.usage() == Usage(3, 12)
    assert made.usage().as_json() == {
        "prompt_tokens": 3,
        "completion_tokens": 12,
        "total_tokens": 15,
    }


def test_usage_counts_candidates() -> None:
    """Each of the engine's own candidates counts."""
    made = answer(n=2)
    made.deltas([(0, said(" green", 2, finish="stop", index=0))])
    made.deltas([(0, said(" green blue", 2, 3, finish="stop", index=1))])
    assert made.usage() == Usage(1, 3)


# --- best_of ------------------------------------------------------------------------------------


def ranked(
    *candidates: tuple[str, int, float | None], n: int = 1, **fields: Any
) -> tuple[list[dict[str, Any]], Usage]:
    """Folded choices and usage of candidates: each a text, its token count, its sum of logprobs."""
    made = answer(n=n, best_of=len(candidates), **fields)
    outputs = [
        Candidate(
            text,
            [2] * count,
            "stop",
            logprobs=scores(*[2] * count),
            index=index,
            cumulative_logprob=total,
        )
        for index, (text, count, total) in enumerate(candidates)
    ]
    return choices(made, Output(outputs)), made.usage()


def test_best_candidates_by_mean_logprob() -> None:
    """best_of shows the n candidates of the highest mean log-probability, best first."""
    # By their sum the order would be c, a, b.
    folded, usage = ranked(("a", 4, -3.0), ("b", 8, -4.0), ("c", 1, -2.0), n=2)
    assert [(choice["index"], choice["text"]) for choice in folded] == [(0, "b"), (1, "a")]
    assert usage == Usage(1, 13)


def test_all_candidates_are_ordered() -> None:
    """With best_of = n all candidates are shown, best first."""
    folded, usage = ranked(("a", 1, -3.0), ("b", 1, -1.0), ("c", 2, -4.0), n=3)
    assert [choice["text"] for choice in folded] == ["b", "c", "a"]
    assert usage == Usage(1, 4)


def test_ties_keep_the_engines_order() -> None:
    """Of equally good candidates the earlier comes first."""
    folded, _ = ranked(("a", 1, -1.0), ("b", 2, -2.0), ("c", 1, -1.0), n=2)
    assert [choice["text"] for choice in folded] == ["a", "b"]


def test_ranked_candidates_keep_their_own_scores() -> None:
    """Each shown candidate has its own logprobs, and the echo."""
    folded, _ = ranked(("a", 1, -3.0), ("b", 2, -1.0), logprobs=0, echo=True)
    assert [choice["text"] for choice in folded] == ["redb"]
    assert folded[0]["logprobs"]["tokens"] == ["red", " green", " green"]


def test_unshown_candidate_may_fail_too() -> None:
    """A candidate that the engine gave up on fails the request, shown or not."""
    made = answer(n=1, best_of=2)
    outputs = [
        Candidate("a", [2], "stop", cumulative_logprob=-1.0),
        Candidate("b", [2], "abort", index=1, cumulative_logprob=-9.0),
    ]
    with pytest.raises(Unavailable):
        made.deltas([(0, Output(outputs))])


def test_greedy_best_of_counts_every_candidate() -> None:
    """Greedy candidates are made once, and all that were asked for are counted."""
    made = answer(n=2, best_of=4, temperature=0)
    folded = choices(made, said(" green", 2, finish="stop"))
    assert [choice["text"] for choice in folded] == [" green", " green"]
    assert made.usage() == Usage(1, 4)


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "error", "words"),
    [
        ("abort", Unavailable, "stopped"),
        ("error", GenerationFailed, "error"),
        ("repetition", GenerationFailed, "repetition"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [answer, lambda: answer(logprobs=0), lambda: answer(mode=Score(1), max_tokens=0)],
    ids=["plain", "logprobs", "nothing"],
)
def test_unfinished_answer_is_an_error(
    make: Callable[[], Answer], reason: str, error: type[Exception], words: str
) -> None:
    """An answer that the engine gave up on is an error, not a finish reason."""
    with pytest.raises(error, match=words):
        make().deltas([(0, said("", finish=reason))])
