"""What conditions of readers, writers and transactions tell: each compared whole, where it opens and where it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.kept.outages import cause_id
from rules.step import HELD
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Mark
from rules.vocabulary.times import micros
from tests.rules.conditions import test_liveness, test_stuck_writers
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import START, History, Store, number, singly
from tests.rules.transactions import test_stability
from tests.rules.whole import Told, whole

W1 = "writer-1 of run run"

R, W = number("r"), number("w")


def at(second: float) -> int:
    """Microseconds of log time."""
    return micros(START) + round(second * 1e6)


def held_and_let_go(h: History) -> None:
    test_stability.hanging(h)
    test_stability.seconds(h, 2, end=9, stable=9)


def whose_it_may_be(h: History) -> None:
    """One has something open since before, of another the end is not known, a third one goes on, and of a fourth it is
    known where it wrote."""
    for name in "abcd":
        h.row(name, "init", transactional_id=f"id-{name}")
    test_stability.seconds(h, 2, end=3, stable=3)
    h.txn("b", sends=[("b", 0, 3, None)], type="info", txn=1, transactional_id="id-b")
    h.txn("d", sends=[("d", 0, 1, 7)], type="info", txn=2, transactional_id="id-d")
    until = h.at(h.time)
    for second in range(140):
        h.txn("c", sends=[("c", second, 1, 100 + second)], txn=3 + second, transactional_id="id-c")
        h.observe(end=101 + second, stable=3)
        h.time += 1.0
        now = h.at(h.time)
        marks = [Mark(number(p), h._slices[number(p), 0], until if p == "a" else now) for p in h.processes]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def recovered_late(h: History) -> None:
    test_stability.killed(h)
    test_stability.seconds(h, 2, end=4, stable=4)


def answered_at_last(h: History) -> None:
    test_stuck_writers.never_answered(h)
    test_stuck_writers.writes(h, 1, first=9)
    h.mark(1.0)


def closed_at_last(h: History) -> None:
    h.start("r")
    h.row("r", "close", type="info", error="_CLOSE_STUCK")
    h.mark(5.0)
    h.row("r", "close")
    h.mark(1.0)


CASES: list[tuple[Callable[[History], object], str, list[Told]]] = [
    (
        test_liveness.stopped_and_came_back,
        "stuck-consumer",
        [
            Told(
                "stuck-consumer",
                (R,),
                f"process {R} has not moved from offset 10, and there is more to read",
                {"process": R, "position": 10, "moved": at(9.1), "why": "known", "readable": 10},
                41.0,
                40.11,
                "opened",
            ),
            Told(
                "stuck-consumer",
                (R,),
                "stuck-consumer ended after 20.9 s",
                {"process": R, "lasted_s": 20.89},
                61.0,
                None,
                "closed",
            ),
        ],
    ),
    (
        test_liveness.says_that_it_stands,
        "stuck-consumer",
        [
            Told(
                "stuck-consumer",
                (R,),
                f"process {R} has not moved from offset 5, and there is more to read",
                {"process": R, "position": 5, "moved": at(4.038), "why": "stands"},
                36.0,
                35.224,
                "opened",
            )
        ],
    ),
    (
        test_liveness.sees_no_watermark,
        "stuck-consumer",
        [
            Told(
                "stuck-consumer",
                (R,),
                f"process {R} has not moved from offset 5, and no watermark can be read",
                {"process": R, "position": 5, "moved": at(4.038), "why": "blind"},
                35.0,
                34.04,
                "opened",
                implied_by=cause_id("cluster-unreachable", "c"),
            )
        ],
    ),
    (
        held_and_let_go,
        "hanging-transaction",
        [
            Told(
                "hanging-transaction",
                (),
                "the last stable offset stands at 3 for 40 s, and the log ends at 9",
                {"last_stable": 3, "log_end": 9, "since": at(0.006)},
                41.0,
                40.006,
                "opened",
            ),
            Told(
                "hanging-transaction",
                (),
                "hanging-transaction ended after 16.0 s",
                {"lasted_s": 15.994},
                56.0,
                None,
                "closed",
            ),
        ],
    ),
    (
        whose_it_may_be,
        "hanging-transaction",
        [
            Told(
                "hanging-transaction",
                (),
                "the last stable offset stands at 3 for 91 s, and the log ends at 191: it may be a transaction of id-a,"
                " id-b, or of somebody else",
                {"last_stable": 3, "log_end": 191, "since": at(2.024), "transactional_ids": ["id-a", "id-b"]},
                93.0,
                92.024,
                "opened",
            )
        ],
    ),
    (
        recovered_late,
        "unrecovered-transaction",
        [
            Told(
                "unrecovered-transaction",
                ("x",),
                "init_transactions of x returned, and an earlier life's transaction still holds offset 0",
                {
                    "transactional_id": "x",
                    "earlier": number("t1"),
                    "later": number("t2"),
                    "txn": 1,
                    "last_stable": 0,
                },
                16.0,
                15.028,
                "opened",
            ),
            Told(
                "unrecovered-transaction",
                ("x",),
                "unrecovered-transaction ended after 12.0 s",
                {"lasted_s": 11.972},
                27.0,
                None,
                "closed",
            ),
        ],
    ),
    (
        test_stuck_writers.open_for_long,
        "stuck-producer",
        [
            Told(
                "stuck-producer",
                (W1,),
                f"an operation of {W1} does not return",
                {"process": W, "writer": W1, "answered": at(2.012), "began": at(3.014)},
                33.072,
                33.014,
                "opened",
            )
        ],
    ),
    (
        answered_at_last,
        "stuck-producer",
        [
            Told(
                "stuck-producer",
                (W1,),
                f"no send and no transaction of {W1} has completed for 35 s",
                {"process": W, "writer": W1, "answered": at(1.008), "began": at(2.01)},
                37.024,
                32.01,
                "opened",
            ),
            Told(
                "stuck-producer",
                (W1,),
                "stuck-producer ended after 24.0 s",
                {"process": W, "writer": W1, "answered": at(56.036), "lasted_s": 24.026},
                56.036,
                None,
                "closed",
            ),
        ],
    ),
    (
        closed_at_last,
        "stuck-close",
        [
            Told(
                "stuck-close",
                (R,),
                f"closing the client of process {R} does not return",
                {"process": R, "since": at(0.003)},
                0.004,
                0.003,
                "opened",
            ),
            Told(
                "stuck-close",
                (R,),
                "stuck-close ended after 5.0 s",
                {"process": R, "lasted_s": 5.005},
                5.008,
                None,
                "closed",
            ),
        ],
    ),
]


@pytest.mark.parametrize(("build", "name", "expected"), CASES, ids=[f"{c[1]} {c[0].__name__}" for c in CASES])
@pytest.mark.parametrize("fed", [row_by_row, at_once], ids=["row_by_row", "at_once"])
def test_a_condition_and_its_evidence(
    build: Callable[[History], object], name: str, expected: list[Told], fed: Callable[[History], Store]
) -> None:
    h = History()
    build(h)
    assert whole(fed(h), [name]) == expected


def held_back(h: History) -> Store:
    """Log time stands still until the log is read, and passes all at once then."""
    store = Store()
    store.store.held = HELD
    for row in h.rows:
        store.feed([row])
    store.settle()
    return store


@pytest.mark.parametrize("fed", [row_by_row, held_back])
def test_a_lost_journal_is_unverifiable_until_nothing_may_rest_on_it(fed: Callable[[History], Store]) -> None:
    h = History()
    h.assign("r")
    h.assign("q")
    h.poll("q", [])
    for _ in range(3):
        h.mark(1.0)
    h.processes.remove("q")
    now, q = h.at(h.time), number("q")
    h.row("committer", "mark", marks=[Mark(q, 2, h.at(2.0), h.at(3.0), True)], invoked=now, completed=now)
    for _ in range(12):
        h.observe(end=0)
        h.mark(1.0)
    assert whole(fed(h), ["unverifiable"]) == [
        Told(
            "unverifiable",
            (),
            "of the log of 1 processes, something is missing for good",
            {"processes": [q]},
            4.0,
            event="opened",
        ),
        Told(
            "unverifiable",
            (),
            "unverifiable ended after 10.0 s",
            {"processes": [], "lasted_s": 10.0},
            14.0,
            event="closed",
        ),
    ]


@pytest.mark.parametrize("fed", [row_by_row, held_back])
def test_of_two_lost_journals_each_is_told_when_it_is_known(fed: Callable[[History], Store]) -> None:
    h = History()
    for name in "rqp":
        h.assign(name)
    for name in "qp":
        h.poll(name, [])
        for _ in range(30):
            h.observe(end=0)
            h.mark(1.0)
        h.processes.remove(name)
        now = h.at(h.time)
        ended = h.at(h.time - 1.0)
        h.row("committer", "mark", marks=[Mark(number(name), 2, ended, ended, True)], invoked=now, completed=now)
    for _ in range(30):
        h.observe(end=0)
        h.mark(1.0)
    told = [one for one in whole(fed(h), ["unverifiable"]) if one.event == "opened"]
    assert [one.evidence["processes"] for one in told] == [[number("q")], [number("p")]]


def test_a_window_that_overflows_until_it_is_half_as_full() -> None:
    h = History()
    for i in range(12):
        h.send("w", i, at=i * 2)
        if i % 4 == 3:
            h.mark(1.0)
    h.assign("r")
    h.poll("r", [("w", i, 1, 2 * i) for i in range(12)], position_before=0, position_after=23)
    for _ in range(13):
        h.observe(end=23)
        h.mark(1.0)
    store = Store(Objectives(window_runs=8))
    for row in singly(h.rows):
        store.feed(row)
    assert whole(store, ["window-overflow"]) == [
        Told(
            "window-overflow",
            (),
            "the open window held 9 runs; its older half was settled before its time",
            {"runs": 9, "settled_below": 8},
            2.0,
            event="opened",
        ),
        Told(
            "window-overflow",
            (),
            "window-overflow ended after 12.0 s",
            {"runs": 0, "settled_below": 23, "lasted_s": 12.0},
            14.0,
            event="closed",
        ),
    ]
