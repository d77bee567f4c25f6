"""The beam searches that are run, and what is made of their times and texts."""

import pytest

from benchmarks import search, search_agreement
from benchmarks.changed_scores import CHANGES
from benchmarks.reporting.report import as_text
from benchmarks.search_agreement import (
    EARLY,
    PENALTIES,
    PROMPTS,
    QUICK_CHANGED_STEP,
    QUICK_STEP,
    WIDTHS,
    cases,
    changed_cases,
)


def test_every_combination_is_a_case() -> None:
    assert len(set(cases(PROMPTS))) == 20 * 4 * 4 * 2


def test_a_quick_run_meets_every_value_of_every_option() -> None:
    few = cases(PROMPTS)[::QUICK_STEP]
    assert len(few) <= 8
    for values, name in (
        (WIDTHS, "width"),
        (PENALTIES, "length_penalty"),
        (EARLY, "early_stopping"),
    ):
        assert {getattr(case, name) for case in few} == set(values)


def test_every_change_is_met_by_every_prompt_and_by_all_other_options() -> None:
    chosen = changed_cases(PROMPTS)
    assert len(set(chosen)) == 20 * 2 * len(CHANGES)
    for change in CHANGES:
        met = [case for case in chosen if case.change == change]
        assert len({(case.length_penalty, case.early_stopping) for case in met}) == 4
    few = chosen[::QUICK_CHANGED_STEP]
    assert len({case.change for case in few}) == len(few) == 5


def test_a_search_is_compared_with_its_neighbour() -> None:
    ours, theirs = search.ROUTES
    seconds = {"ends_early": {ours: [1.0, 3.0], theirs: [2.0, 4.0]}}
    assert search.ratios(seconds)["ends_early"] == pytest.approx((0.625, 0.5, 0.75))
    record = {"questions": 1, "max_tokens": 32, "seconds": seconds}
    text = as_text(search.sections(record))
    assert "| ends_early" in text
    assert "| 2.00 (1.00 to 3.00) | 3.00 (2.00 to 4.00) | 0.62 (0.50 to 0.75) |" in text


def test_disagreements_are_shown_with_their_case() -> None:
    found = [{"case": ["a prompt", 2, 1.0, True], "difference": "ours b, transformers c"}]
    record = {"cases": 4, "disagreements": found}
    text = as_text(search_agreement.sections(record))
    assert "length_penalty=1.0, early_stopping=True, change=''): ours b, transformers c" in text
    assert "| 4     |        3 | 75.00 % |" in text
