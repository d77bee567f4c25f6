"""Medians, spreads and ratios, and the forms they are printed in."""

import pytest

from benchmarks.reporting.report import table
from benchmarks.reporting.result import Result, Spread, paired_ratio, significant, spread


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert spread([3, 1, 2]) == Spread(2, 1, 3)
    assert spread(iter([4.0, 1.0])) == Spread(2.5, 1.0, 4.0)


def test_a_ratio_compares_neighbours() -> None:
    # The machine was twice as slow in the second pair: the ratio does not see it.
    assert paired_ratio([8, 16], [10, 20]) == Spread(0.8, 0.8, 0.8)


def test_a_ratio_needs_whole_pairs() -> None:
    with pytest.raises(ValueError, match="longer"):
        paired_ratio([1], [1, 2])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.6834, "0.683"), (0.9999, "1.000"), (81.44, "81.4"), (1230.4, "1230"), (0, "0")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_names_and_values_stand_on_one_line() -> None:
    values = {"cpu_per_token_ratio_64": 0.68123, "v1_us_per_token_64": 119.3, "n": 5}
    assert Result(values, {}).line() == "cpu_per_token_ratio_64=0.681 v1_us_per_token_64=119 n=5"


def test_a_spread_shows_its_extremes() -> None:
    assert Spread(0.6811, 0.66, 0.7).text() == "0.68 (0.66 to 0.70)"


def test_a_table_lines_up() -> None:
    assert table(["load", "us"], [["64 streams", "7"], ["1", "119"]]).splitlines() == [
        "| load       |  us |",
        "| ---------- | --: |",
        "| 64 streams |   7 |",
        "| 1          | 119 |",
    ]
