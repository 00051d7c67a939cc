"""An axis with breaks: what is shown keeps its order, and long stretches of nothing are cut out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.diagrams.axis import BREAK, axis


def test_without_a_gap_it_is_a_plain_scale() -> None:
    line = axis([(10, 20), (20, 30)], 100, 300, longest=5)
    assert [line.at(number) for number in (10, 15, 30)] == [100, 150, 300]
    assert line.breaks == []


def test_a_long_gap_becomes_a_break() -> None:
    line = axis([(0, 10), (1_000, 1_010)], 0, 100 + BREAK, longest=5)
    assert line.at(10) == 50
    assert line.at(1_000) == 50 + BREAK
    assert line.breaks == [(50 + BREAK / 2, 990)]
    assert line.at(500) == 50 + BREAK / 2


def test_what_lies_beyond_stands_at_the_ends_and_a_line_may_run_backwards() -> None:
    line = axis([(0, 10)], 0, -50, longest=1)
    assert [line.at(number) for number in (-5, 0, 5, 10, 99)] == [0, 0, -25, -50, -50]


def test_a_single_number_stands_in_the_middle() -> None:
    assert axis([(7, 7)], 0, 100, longest=1).at(7) == 50


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(ValueError):
        axis([], 0, 1, longest=1)


NUMBERS = st.integers(min_value=0, max_value=10_000)
SPANS = st.lists(st.tuples(NUMBERS, st.integers(min_value=0, max_value=50)), min_size=1, max_size=12)


@given(SPANS, st.integers(min_value=1, max_value=500))
def test_order_is_kept_and_all_is_on_the_line(spans: list[tuple[int, int]], longest: int) -> None:
    shown = [(low, low + length) for low, length in spans]
    line = axis(shown, 0, 1_000, longest=longest)
    numbers = sorted(number for span in shown for number in span)
    places = [line.at(number) for number in numbers]
    assert places == sorted(places)
    assert min(places) > -1e-6 and max(places) < 1_000 + 1e-6
    assert all(two.low - one.high > 0 for one, two in zip(line.pieces, line.pieces[1:], strict=False))
