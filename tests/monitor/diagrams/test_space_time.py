"""The space-time diagram's shapes: who is in it, what each operation did with the records, what is left out."""

from __future__ import annotations

from typing import Any

from monitor.diagrams.space_time import LANES, MOST, Focus, SpaceTime, space_time
from tests.monitor.diagrams.operations import NAMES, R1, R2, V, W, at, poll, run, send


def drawn(*rows: dict[str, Any], values: Any = (), offsets: Any = ()) -> SpaceTime:
    return space_time(rows, Focus(values, offsets), NAMES)


def marks(diagram: SpaceTime) -> list[tuple[str, str, int | None]]:
    return [(lane.name, mark.kind, mark.offset) for lane in diagram.lanes for mark in lane.marks]


def arrows(diagram: SpaceTime) -> list[tuple[str, str, int | None]]:
    return [
        (
            diagram.lanes[one.from_lane].name,
            diagram.lanes[one.to_lane].name,
            diagram.lanes[one.to_lane].marks[one.to_mark].offset,
        )
        for one in diagram.arrows
    ]


def test_a_record_from_its_writer_to_who_was_given_it_and_who_was_not() -> None:
    diagram = drawn(
        poll(R1, 0.05, 98, 102, run(W, 3, 98, 4)),
        poll(R2, 0.3, 98, 101, run(W, 3, 98, 2)),
        send(W, 0, run(W, 3, 98, 4)),
        values=[(W, 5)],
    )
    assert diagram.offsets == [100]
    assert marks(diagram) == [("writer-1", "sent", 100), ("reader-1", "given", 100), ("reader-2", "passed", 100)]
    assert arrows(diagram) == [("writer-1", "reader-1", 100)]
    assert [lane.sends for lane in diagram.lanes] == [True, False, False]


def test_a_value_that_was_written_twice_has_two_ways() -> None:
    diagram = drawn(
        send(W, 0, run(W, 3, 98)),
        send(W, 0.2, run(W, 3, 103)),
        poll(R1, 0.1, 98, 104, run(W, 3, 98), run(W, 3, 103)),
        values=[(W, 3)],
    )
    assert diagram.offsets == [98, 103]
    assert arrows(diagram) == [("writer-1", "reader-1", 98), ("writer-1", "reader-1", 103)]


def test_what_stands_at_an_offset_whatever_it_is() -> None:
    diagram = drawn(send(V, 0, run(V, 9, 40)), poll(R1, 0.1, 38, 41, run(V, 9, 40)), offsets=[40])
    assert marks(diagram) == [("writer-2", "sent", 40), ("reader-1", "given", 40)]


def test_a_send_of_unknown_outcome_has_no_offset_and_its_record_may_arrive() -> None:
    diagram = drawn(
        send(W, 0, run(W, 3, None, 2), type="info", error="_TIMED_OUT"),
        poll(R1, 0.1, 98, 99, run(W, 4, 98)),
        values=[(W, 4)],
    )
    assert marks(diagram) == [("writer-1", "sent", None), ("reader-1", "given", 98)]
    assert arrows(diagram) == [("writer-1", "reader-1", 98)]
    [bar] = diagram.lanes[0].bars
    assert (bar.low, bar.type) == (None, "info")
    assert bar.did == "sent 2 records, to no offset that it was told (info, _TIMED_OUT, after 0.100 s)"


def test_neighbours_in_offset_and_time_are_drawn_beside_and_others_are_not() -> None:
    diagram = drawn(
        send(W, 0, run(W, 3, 98)),
        send(W, 0.2, run(W, 4, 99)),  # beside it
        send(W, 0.3, run(W, 5, 140)),  # elsewhere in the log
        poll(R1, 0.1, 98, 99, run(W, 3, 98)),
        poll(R1, 60, 99, 100, run(W, 4, 99)),  # later
        poll(R2, 0.1, 99, 100, run(W, 4, 99)),  # had nothing to do with it
        values=[(W, 3)],
    )
    assert [(lane.name, [bar.in_focus for bar in lane.bars]) for lane in diagram.lanes] == [
        ("writer-1", [True, False]),
        ("reader-1", [True]),
    ]
    assert diagram.left_out == 1


def test_an_idle_poll_is_not_drawn() -> None:
    diagram = drawn(send(W, 0, run(W, 3, 98)), poll(R1, 0, 98, 98), poll(R1, 0.1, 98, 99, run(W, 3, 98)), offsets=[98])
    assert [len(lane.bars) for lane in diagram.lanes] == [1, 1]


def test_a_poll_that_went_back_says_so() -> None:
    diagram = drawn(
        send(W, 0, run(W, 3, 98, 3)),
        poll(R1, 0.1, 98, 101, run(W, 3, 98, 3)),
        poll(R1, 0.3, 99, 101, run(W, 4, 99, 2)),
        offsets=[100],
    )
    assert [bar.rewound for bar in diagram.lanes[1].bars] == [False, True]
    assert diagram.lanes[1].bars[1].did == (
        "polled from offset 99 to 101, going back, and was given 2 records; among them writer-1/5 at offset 100 "
        "(ok, after 0.100 s)"
    )


def test_a_transaction_tells_when_its_end_was_asked_for() -> None:
    sent = send(
        W, 0, run(W, 3, 98, 2), f="txn", took=0.5, transactional_id="tx-1", txn_intent="abort", end_invoked=at(0.25)
    )
    [bar] = drawn(sent, offsets=[99]).lanes[0].bars
    assert bar.ending == ("abort", at(0.25))
    assert bar.did == (
        "sent 2 records to offsets 98 to 99 in a transaction of tx-1; asked to abort it at 12:00:00.250 "
        "(ok, after 0.500 s)"
    )


def test_a_process_without_a_name_is_told_by_its_last_digits() -> None:
    assert [lane.name for lane in drawn(poll(123_456_789, 0, 1, 2, run(W, 1, 1)), offsets=[1]).lanes] == [
        "process …6789"
    ]


def test_it_is_bounded_and_what_is_left_out_is_counted() -> None:
    many = [poll(R1, n / 10, 98, 99, run(W, 3, 98)) for n in range(MOST)]
    others = [poll(10_000 + n, n / 100, 98, 99, run(W, 3, 98)) for n in range(LANES)]
    diagram = drawn(send(W, 0, run(W, 3, 98)), *many, *others, offsets=[98])
    assert len(diagram.lanes) == LANES
    bars = sum(len(lane.bars) for lane in diagram.lanes)
    assert bars <= MOST
    assert bars + diagram.left_out == 1 + MOST + LANES
    assert diagram.lanes[0].name == "writer-1", "whoever sent it is never left out"


def test_nothing_known_gives_an_empty_diagram() -> None:
    assert drawn(offsets=[98]) == SpaceTime([], [], [98])
    assert drawn(send(W, 0, run(W, 3, 98)), values=[(W, 4)]).lanes == []
