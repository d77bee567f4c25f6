"""adapter/engine/whole_context.py: scores of a prompt that fills the context."""

from adapter.engine.whole_context import whole_prompt
from tests.fake_engine import Candidate, Output, Table


def test_last_token_is_scored_behind_the_others() -> None:
    """The prompt's table goes on with the token that the engine made, and neither is changed."""
    prompt = Table().add().add((8, -1.0, "b"), (9, -0.5, "c"))
    made = Table().add((7, -2.0, "a"), (9, -0.1, "c"))
    update = Output([Candidate("a", [7], "length", logprobs=made)], prompt, finished=True)
    whole = whole_prompt(update).prompt_logprobs
    assert whole is not None
    assert (whole.start_indices, whole.end_indices) == ([0, 0, 2], [0, 2, 4])
    assert whole.token_ids == [8, 9, 7, 9]
    assert (len(prompt.token_ids), len(made.token_ids)) == (2, 2)


def test_what_the_engine_gave_up_on_has_no_scores() -> None:
    """It is passed on, for its finish reason."""
    for update in (
        Output([Candidate(finish_reason="abort")], finished=True),
        Output([Candidate(finish_reason="abort")], Table().add(), finished=True),
    ):
        assert whole_prompt(update) is update
