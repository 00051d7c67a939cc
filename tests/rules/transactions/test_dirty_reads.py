"""`dirty-read`: what was shown before its commit was asked for, beside what was shown after that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rules.vocabulary.slices import Run, Slice
from tests.rules.histories import START, History, Store, number
from tests.rules.whole import Told, finished, in_any_way, whole

W = number("w")
MICROSECOND = timedelta(microseconds=1)
NAMES = ("dirty-read", "G1a", "zombie-write")


class Host(History):
    """All is done in one boot, but for what says another."""

    def row(self, process: str, f: Any, **more: Any) -> Slice:
        boot = more.pop("boot", "boot")
        made = super().row(process, f, **more)
        made.boot = boot
        made.mono_invoked, made.mono_completed = (
            (at - START) // MICROSECOND * 1000 + 7_000_000_000 for at in (made.invoked, made.completed)
        )
        return made

    def transaction(self, asked: float | None, done: float, type: str = "ok", **more: Any) -> None:
        """Values 0 to 3 at offsets 0 to 3, sent from 1 s on, whose commit was invoked at second `asked`."""
        told: dict[str, Any] = {"txn_intent": "commit", "boot": "boot", "op": 9} | more
        self.row(
            "t",
            "txn",
            type=type,
            txn=7,
            txn_partitions=[("topic", 0)],
            transactional_id="x",
            sent=[Run(W, 0, 0 if type == "ok" else None, 4)],
            invoked=self.at(1),
            completed=self.at(done),
            mono_end_invoked=None if asked is None else int(asked * 1e9) + 7_000_000_000,
            **told,
        )

    def polled(self, at: float, *runs: tuple[str, int, int, int], reader: str = "r", **more: Any) -> None:
        times = {"invoked": self.at(at - 0.1), "completed": self.at(at)}
        self.poll(reader, runs or [("w", 0, 4, 0)], **times, **more)


def begun() -> Host:
    h = Host()
    _begin(h)
    return h


def shown_too_early(h: Host) -> None:
    _begin(h)
    h.polled(3.0)
    h.transaction(5.5, 6.0)
    h.time = 6.0


def _begin(h: Host) -> None:
    h.assign("r")
    h.assign("u")
    h.row("t", "init", transactional_id="x")


def told(value: int, early: float, at: float, *, op: int = 1, reader: str = "r") -> Told:
    process, owner = number(reader), number("t")
    return Told(
        "dirty-read",
        (7, process, op),
        f"process {process} polled value {W}/{value} of transaction 7, whose commit process {owner} invoked"
        f" {early:.3f} s later",
        {
            "txn": 7,
            "process": process,
            "op": op,
            "writer": W,
            "seq": value,
            "offset": value,
            "early_by_s": early,
            "txn_process": owner,
            "txn_op": 9,
        },
        at,
    )


@in_any_way()
@pytest.mark.parametrize("kind", ["ok", "info"])
def test_what_is_shown_before_its_commit_was_invoked_is_told(fed: Callable[[History], Store], kind: str) -> None:
    h = begun()
    h.polled(3.0)
    h.transaction(5.5, 6.0, kind)
    h.time = 6.0
    assert whole(fed(h), NAMES) == [told(0, 2.5, 5.5)]


@in_any_way()
def test_each_operation_that_saw_a_part_of_it_is_told_with_the_first_value(fed: Callable[[History], Store]) -> None:
    h = begun()
    h.polled(2.0, ("w", 1, 1, 1))
    h.polled(3.0, ("w", 2, 2, 2), ("w", 4, 1, 5))
    h.polled(3.5, reader="u")
    h.transaction(5.5, 6.0)
    h.time = 6.0
    expected = [told(0, 2.0, 5.5, reader="u"), told(1, 3.5, 5.5), told(2, 2.5, 5.5, op=2)]
    assert sorted(whole(fed(h), NAMES), key=lambda one: one.subject) == sorted(expected, key=lambda one: one.subject)


@pytest.mark.parametrize("after", [0, 40])
def test_it_is_told_also_where_the_transaction_is_open_for_long(after: int) -> None:
    """Log time has passed the poll when its transaction is told of, or the poll comes after that."""
    h = begun()
    h.polled(3.0)
    h.time = 3.0
    for _ in range(after):
        h.observe(end=4, stable=0)
        h.mark(1.0)
    h.transaction(4.0 + after, 5.0 + after)
    h.time = 5.0 + after
    for _ in range(3):
        h.mark(1.0)
    for feed in (h.rows, h.rows[:3] + h.rows[4:] + h.rows[3:4]):
        store = Store()
        for row in feed:
            store.feed([row])
        assert whole(store, NAMES) == [told(0, 1.0 + after, 4.0 + after)]


INNOCENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("after the commit was invoked", {"at": 5.501}, {}),
    ("between the commit and its answer", {"at": 5.9}, {}),
    ("at read_uncommitted", {"at": 3.0, "isolation": "read_uncommitted"}, {}),
    ("by a poll that is indefinite", {"at": 3.0, "type": "info"}, {}),
    ("in another boot", {"at": 3.0, "boot": "other"}, {}),
    ("where no clock is told", {"at": 3.0, "boot": None}, {}),
    ("other values of the same writer", {"at": 3.0, "runs": [("w", 4, 2, 5)]}, {}),
    ("the same numbers of another writer", {"at": 3.0, "runs": [("v", 0, 4, 0)]}, {}),
    ("and it was to be aborted", {"at": 3.0}, {"txn_intent": "abort"}),
    ("outside of any transaction", {"at": 3.0}, {"txn": None}),
]


@pytest.mark.parametrize(("poll", "transaction"), [one[1:] for one in INNOCENT], ids=[one[0] for one in INNOCENT])
@in_any_way()
def test_what_is_shown_later_or_to_others_is_not(
    fed: Callable[[History], Store], poll: dict[str, Any], transaction: dict[str, Any]
) -> None:
    h, more = begun(), dict(poll)
    runs = more.pop("runs", ())
    h.polled(more.pop("at"), *runs, **more)
    h.transaction(5.5, 6.0)
    h.rows[-1].txn = transaction.get("txn", 7)
    h.rows[-1].txn_intent = transaction.get("txn_intent", "commit")
    h.time = 6.0
    assert whole(fed(h), ["dirty-read"]) == []


@pytest.mark.parametrize("set_by", [3600, -3600])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("at", [3.0, 5.9])
def test_a_wall_clock_that_is_set_between_the_two_changes_nothing(set_by: int, marked: bool, at: float) -> None:
    """Also before a mark has told what the monotonic clock of that boot means."""
    h = begun()
    if marked:
        h.mark(0.5)
    h.polled(at)
    h.transaction(5.5, 6.0)
    for row in h.rows[-1:]:
        row.invoked, row.completed = (time + timedelta(seconds=set_by) for time in (row.invoked, row.completed))
    h.time = max(6.0, 6.0 + set_by)
    h.mark(1.0)
    store = Store()
    for one in h.rows:
        store.feed([one])
    assert [one.evidence["early_by_s"] for one in store.findings if one.anomaly == "dirty-read"] == [2.5] * (at < 5.5)


def test_where_nobody_told_the_offset_none_is_told() -> None:
    h = begun()
    h.polled(3.0)
    h.transaction(5.5, 6.0)
    h.rows[-2].polled = [run._replace(offset=None) for run in h.rows[-2].polled]
    (one,) = whole(finished(h), NAMES)
    assert one.evidence == {name: value for name, value in told(0, 2.5, 5.5).evidence.items() if name != "offset"}


@in_any_way()
def test_of_one_that_failed_it_is_an_aborted_read(fed: Callable[[History], Store]) -> None:
    h = begun()
    h.polled(3.0)
    h.transaction(5.5, 6.0, "fail")
    h.time = 6.0
    assert {one.anomaly for one in whole(fed(h), NAMES)} == {"G1a"}
