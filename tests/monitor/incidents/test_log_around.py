"""The log around a record: what stands at each offset, by whom."""

from __future__ import annotations

from monitor.incidents.log_around import Standing, log_around
from tests.monitor.diagrams.operations import R1, R2, V, W, poll, run, send


def test_values_in_their_order_and_who_had_to_do_with_them() -> None:
    rows = [
        send(W, 0, run(W, 5, 10, 2)),
        poll(R1, 0.1, 9, 13, run(W, 5, 10, 2), run(V, 0, 12)),
        poll(R2, 0.2, 9, 13, run(W, 5, 10)),
    ]
    assert log_around(rows, [11], 2) == [
        Standing(9, None, (), (), [R1, R2], False),
        Standing(10, (W, 5), [W], [R1, R2], [], False),
        Standing(11, (W, 6), [W], [R1], [R2], True),
        Standing(12, (V, 0), [], [R1], [R2], False),
        Standing(13, None, (), (), [], False),
    ]


def test_a_log_that_changed_holds_both_values() -> None:
    rows = [poll(R1, 0, 10, 11, run(W, 5, 10)), poll(R2, 1, 10, 11, run(V, 7, 10))]
    assert log_around(rows, [10], 0) == [
        Standing(10, (W, 5), [], [R1], [], True),
        Standing(10, (V, 7), [], [R2], [], True),
    ]


def test_it_begins_at_offset_0_and_sends_that_were_told_none_stand_nowhere() -> None:
    rows = [send(W, 0, run(W, 0, None, 3), type="info"), send(W, 1, run(W, 3, 1))]
    assert [(one.offset, one.value) for one in log_around(rows, [0], 1)] == [(0, None), (1, (W, 3))]


def test_offsets_far_apart_are_told_each_with_its_neighbours() -> None:
    assert [one.offset for one in log_around([], [5, 900], 1)] == [4, 5, 6, 899, 900, 901]
    assert [one.offset for one in log_around([], [5, 6], 1)] == [4, 5, 6, 7]
