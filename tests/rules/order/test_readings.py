"""Where each operation begins to read a partition, and what it passes: carried from poll to poll of one process."""

from __future__ import annotations

from collections.abc import Callable

from rules.audit.readings import Excerpt, Readings
from tests.rules.histories import History, number


def excerpt(h: History, start: int = 0, end: int = 1000) -> Excerpt:
    return Readings(h.table()).excerpt(start, end)


def spans(h: History) -> list[list[tuple[int, int]]]:
    """What each read went over."""
    found = excerpt(h)
    over = list(zip(found.over_read.tolist(), found.over_start.tolist(), found.over_end.tolist(), strict=True))
    return [[(low, high) for own, low, high in over if own == read] for read in range(len(found.rows))]


def test_a_poll_goes_over_what_lies_between_its_process_s_last_record_and_its_own() -> None:
    h = History()
    h.assign("r")
    h.poll("r", [("w", 0, 10, 0)])
    h.poll("other", [("w", 90, 1, 100)])
    h.poll("r", [("w", 10, 5, 20)])
    assert sorted(spans(h)) == [[(0, 10)], [(10, 25)], [(100, 101)]]


def test_what_a_consumer_that_let_go_had_read_says_nothing_of_its_next_poll() -> None:
    ways: tuple[Callable[[History], object], ...] = (
        lambda h: h.assign("r", assigned=False, f="revoke"),
        lambda h: h.row("r", "close"),
    )
    for lets_go in ways:
        h = History()
        h.poll("r", [("w", 0, 10, 0)])
        lets_go(h)
        h.poll("r", [("w", 10, 5, 20)])
        assert spans(h) == [[(0, 10)], [(20, 25)]]


def test_a_position_that_the_row_gives_counts_before_the_carried_one() -> None:
    h = History()
    h.poll("r", [("w", 0, 10, 0)])
    h.poll("r", [("w", 10, 5, 20)], position_before=15)
    assert spans(h) == [[(0, 10)], [(15, 25)]]


def test_a_failed_poll_moves_no_position() -> None:
    h = History()
    h.poll("r", [("w", 0, 10, 0)])
    h.poll("r", [("w", 10, 5, 20)], type="fail")
    h.poll("r", [("w", 20, 5, 30)])
    assert spans(h) == [[(0, 10)], [], [(10, 35)]]


def test_a_poll_that_went_back_inside_leaves_its_consumer_at_the_end_of_its_last_run() -> None:
    h = History()
    h.poll("r", [("w", 0, 10, 0), ("w", 2, 3, 2)])
    h.poll("r", [("w", 5, 1, 7)])
    assert spans(h) == [[(0, 10), (2, 5)], [(5, 8)]]


def test_values_are_cut_to_the_range() -> None:
    h = History()
    h.poll("r", [("w", 100, 10, 0)])
    found = excerpt(h, 4, 6)
    values = found.values
    assert (values.row.tolist(), values.writer.tolist()) == ([0], [number("w")])
    assert (values.seq.tolist(), values.offset.tolist(), values.length.tolist()) == ([104], [4], [2])
    assert (found.over_start.tolist(), found.over_end.tolist()) == ([4], [6])
    assert len(excerpt(h, 10, 20).rows) == 0
