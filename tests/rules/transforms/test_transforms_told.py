"""What each partition tells of transforms: of whom, from when on, by which clock, and what it keeps for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.across.transforms import HEAD
from rules.checks.transactions import transforms
from rules.engine.order import KINDS
from rules.kept.state import load
from rules.vocabulary.slices import Mark, Run, Slice
from tests.known import known
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import Store, number, without
from tests.rules.splits import fed_in_any_way
from tests.rules.transforms.test_transforms import reflected_twice
from tests.rules.transforms.test_transforms_begin_again import keeps_offsets_for
from tests.rules.transforms.transform_pair import OUT, Pair, W, X, Y, by_another_clock
from tests.rules.whole import finished, whole

Fed = Callable[[Any], Store]
EOS = ("eos-violation",)


class Rows:
    """A history of these rows."""

    def __init__(self, rows: list[Slice]) -> None:
        self.rows = rows


# Whose clock


def on_two_hosts(left_out: range, late: float, *, group: str = "g") -> Rows:
    """Transform x reflects five inputs, and ten more a quarter of an hour later; y, of another host whose clock is
    `late` behind, goes on behind them, or is of a group of its own and does the same. Nobody knows how far the two
    clocks are apart."""
    p = Pair()
    p.feed(0, 40)
    p.transform(0, 0, 5, 0)
    p.time += 900
    for op, seq, count in ((1, 5, 5), (2, 10, 5)):
        rest = [n for n in range(seq, seq + count) if n not in left_out]
        p.transform(op, rest[0], len(rest), op * 6)
    if group == "g":
        for h in (p.inputs, p.outputs):
            h.row("y", "start", kind="transform", settings={"group.id": "g"})
            p.begun("y", h)
        p.inputs.assign("y", f="subscribe")
        for op in range(3, 8):
            p.transform(op, 5 * op, 5, 6 * op, process="y")
            p.time += 2
    else:
        p.joined()
        p.transform(8, 0, 40, 60, process="y")
        p.transform(3, 15, 25, 20)
    p.wait(40)
    return Rows(by_another_clock(p.rows, Y, late) if late else p.rows)


@pytest.mark.parametrize("fed", [at_once, finished])
def test_a_transform_that_goes_on_on_another_host_may_have_reflected_before_or_after(fed: Fed) -> None:
    """By its clock y went on five minutes before x had reflected what lies below; by one clock it is known that x left
    something out."""
    assert whole(fed(on_two_hosts(range(0), 600)), EOS) == []
    assert whole(fed(on_two_hosts(range(0), 0)), EOS) == []
    told = whole(fed(on_two_hosts(range(5, 7), 0)), EOS)
    assert [one.subject for one in told] == [("missing", "g", W, 5), ("missing", "g", W, 6)]


@pytest.mark.parametrize("fed", [at_once, finished])
def test_another_groups_clock_does_not_matter(fed: Fed) -> None:
    told = whole(fed(on_two_hosts(range(5, 7), -600, group="h")), EOS)
    assert [one.subject for one in told] == [("missing", "g", W, 5), ("missing", "g", W, 6)]


# From when on


def vouch(p: Pair, seconds: float) -> None:
    """The committer says that all is here so far; nobody asks for the log start."""
    p.time += seconds
    for h in (p.inputs, p.outputs):
        now = h.at(p.time)
        marks = [Mark(number(one), h._slices[number(one), 0], now) for one in h.processes]
        h.row("committer", "mark", marks=marks, invoked=now, completed=now)


def retention_before_it_began(p: Pair, lags: bool = False) -> None:
    """The log start was known to have risen to 8. Nobody asks for it while the transform begins, with what it had
    polled before that, or a broker that `lags` behind answers."""
    p.feed(0, 10)
    p.start = 8
    p.wait(1)
    vouch(p, 1.5)
    if lags:
        p.inputs.row("observer", "offsets", log_start=6, log_end=10, last_stable=10)
    p.transform(0, 0, 4, 0)
    p.transform(1, 8, 2, 6)
    vouch(p, 1.5)


def told_by_a_broker_that_lags_behind(p: Pair) -> None:
    retention_before_it_began(p, lags=True)


def retention_before_it_began_left_out(p: Pair) -> None:
    retention_before_it_began(p)
    p.feed(10, 10)
    p.transform(2, 12, 8, 12)


def settled_before_it_began(p: Pair) -> None:
    """What had been settled when it polled first is not judged: with which input it begins is its own affair. What it
    polled in a transaction that was aborted is no beginning, nor what it read uncommitted, nor where it stands."""
    p.feed(0, 10)
    p.inputs.row("x", "position", position_after=0)
    p.inputs.poll("x", [("w", 0, 1, 0)], isolation="read_uncommitted", position_after=1)
    p.transform(0, 0, 4, 0, "fail")
    p.wait(15)
    p.transform(1, 0, 4, 6)
    p.transform(2, 6, 4, 12)


def settled_before_it_began_and_left_out_since(p: Pair) -> None:
    settled_before_it_began(p)
    p.feed(10, 10)
    p.transform(3, 12, 8, 18)


BEGINNINGS: list[tuple[Callable[[Pair], None], list[int]]] = [
    (retention_before_it_began, []),
    (told_by_a_broker_that_lags_behind, []),
    (retention_before_it_began_left_out, [10, 11]),
    (settled_before_it_began, []),
    (settled_before_it_began_and_left_out_since, [10, 11]),
]


@fed_in_any_way
@pytest.mark.parametrize(("build", "expected"), BEGINNINGS, ids=[c[0].__name__ for c in BEGINNINGS])
def test_where_it_begins(build: Callable[[Pair], None], expected: list[int], fed: Fed) -> None:
    p = Pair()
    build(p)
    p.wait(15)
    assert [one.subject for one in whole(fed(p), EOS)] == [("missing", "g", W, seq) for seq in expected]


def test_what_is_settled_with_its_first_poll_is_judged() -> None:
    """Another writer's values among them, which nobody sends or polls in that step."""
    p, store = Pair(), Store()
    p.inputs.send("v", 0, 4, at=10)
    p.inputs.poll("r", [("v", 0, 4, 10)])
    p.input_end = 14
    p.wait(1)
    store.feed(p.rows)
    p.rows.clear()
    p.feed(0, 10)
    p.feed(14, 10)
    p.transform(0, 0, 10, 0)
    p.transform(1, 14, 10, 20)
    p.wait(15)
    store.feed(p.rows)
    assert [one.subject for one in whole(store, EOS)] == [("missing", "g", number("v"), seq) for seq in range(4)]


# Of whom


def a_lost_process(p: Pair, f: str) -> None:
    """Somebody who polls, or sends, the output is lost with his host while inputs are left out."""
    p.feed(0, 10)
    p.transform(0, 0, 4, 0)
    run = {"sent": []} if f == "send" else {"polled": [], "mode": "assign", "isolation": "read_committed"}
    p.outputs.row("z", "start", settings={"writer": "1"} if f == "send" else {})
    p.outputs.row("z", f, **run)
    since = p.time
    p.wait(2)
    p.outputs.processes.remove("z")
    over = Mark(number("z"), p.outputs._slices[number("z"), 0], p.outputs.at(since), p.outputs.at(p.time), lost=True)
    p.outputs.row("committer", "mark", marks=[over], invoked=p.outputs.at(p.time), completed=p.outputs.at(p.time))
    p.transform(1, 6, 4, 6)


@fed_in_any_way
@pytest.mark.parametrize(("f", "expected"), [("poll", [4, 5]), ("send", [])])
def test_a_readers_lost_log_says_nothing_of_what_was_reflected(f: str, expected: list[int], fed: Fed) -> None:
    """One that writes there may have been a transform."""
    p = Pair()
    a_lost_process(p, f)
    p.wait(15)
    assert [one.subject for one in whole(fed(p), EOS)] == [("missing", "g", W, seq) for seq in expected]


@pytest.mark.parametrize(("f", "expected"), [("poll", [4, 5]), ("send", [])])
def test_a_log_that_was_lost_before_anything_was_reflected_is_remembered(f: str, expected: list[int]) -> None:
    """What the transform's host tells of the output comes late."""
    p, store = Pair(), Store()
    a_lost_process(p, f)
    p.wait(45)
    rows = by_another_clock(p.rows, X, 0)
    late = [row for row in rows if row.boot == "c" and row.topic == "out"]
    store.feed(without(rows, late))
    store.feed(late)
    assert [one.subject for one in whole(store, EOS)] == [("missing", "g", W, seq) for seq in expected]


def test_only_transforms_that_name_a_group_are_followed() -> None:
    """Other members of groups read the input as well, and a transform that could not be made names none."""
    p = Pair()
    p.inputs.row("s", "start", settings={"group.id": "readers"})
    p.inputs.assign("s", f="subscribe")
    p.inputs.row("z", "start", kind="transform", settings={"client.id": "z"})
    p.feed(0, 10)
    p.inputs.poll("s", [("w", 0, 10, 0)], mode="subscribe")
    p.inputs.poll("z", [("w", 0, 10, 0)], mode="subscribe")
    p.transform(0, 0, 4, 0)
    p.wait(5)
    for fed in (row_by_row, at_once):
        heads = [name for name in fed(p).store.across if name.startswith(HEAD)]
        assert heads == [f"{HEAD}c|g|0"]


def the_third_reflects_it_again(p: Pair) -> None:
    """What the first two reflect is not the same."""
    p.feed(0, 10)
    p.transform(0, 0, 2, 0)
    p.transform(1, 2, 3, 6)
    p.transform(2, 4, 6, 12)


@fed_in_any_way
def test_who_reflected_an_input_again_is_named(fed: Fed) -> None:
    p = Pair()
    the_third_reflects_it_again(p)
    p.wait(3)
    assert whole(fed(p), EOS) == [reflected_twice(0.063, 12)]


@fed_in_any_way
def test_an_aborted_transaction_that_was_read_in_parts_is_reflected_once(fed: Fed) -> None:
    """That it can be read at all is `G1a`."""
    p = Pair()
    p.feed(0, 15)
    p.transform(0, 0, 5, 0)
    p.transform(1, 5, 5, 6, "fail")
    p.transform(2, 10, 5, 12)
    (row,) = (row for row in p.rows if row.f == "txn" and row.op == 11 and row.topic == "out")
    row.sent = [Run(OUT, 6, 6, 2), Run(OUT, 8, 9, 3)]  # between them stands another producer's
    for seq, count, at in ((6, 2, 6), (8, 3, 9)):
        p.outputs.poll("q", [("o", seq, count, at)])
        p.wait(2)
    p.wait(12)
    assert whole(fed(p), EOS) == []


@pytest.mark.parametrize(("minutes", "expected"), [(1, []), (60, [*range(10)])])
def test_what_is_told_while_no_transform_is_there_counts_for_the_next_one(minutes: int, expected: list[int]) -> None:
    """For how long offsets are kept, that is; of x, which is over and forgotten, no clock is asked any more."""
    p, store = Pair(), Store()
    p.feed(0, 10)
    p.transform(0, 0, 10, 0)
    for h in (p.inputs, p.outputs):
        h.row("x", "close")
        over = Mark(X, h._slices[X, 0], h.at(p.time), h.at(p.time))
        h.row("committer", "mark", marks=[over], invoked=h.at(p.time), completed=h.at(p.time))
        h.processes.remove("x")
    for seconds in (12, 12, 1, 12):
        if seconds == 1:  # inputs come, and are settled in a step that brings nothing else
            p.feed(10, 5)
        p.wait(seconds)
        store.feed(p.rows)
        p.rows.clear()
    keeps_offsets_for(p, minutes)
    p.wait(1)
    store.feed(p.rows)
    p.rows.clear()
    p.time += 60
    for h in (p.inputs, p.outputs):
        h.row("y", "start", kind="transform", settings={"group.id": "g"})
        p.begun("y", h)
    p.inputs.assign("y", f="subscribe")
    p.transform(1, 0, 10, 11, process="y")
    p.wait(3)
    store.feed(by_another_clock(p.rows, Y, 0))
    assert [one.subject for one in whole(store, EOS)] == [("twice", "g", W, seq) for seq in expected]


# What is kept


def indefinite(p: Pair, transactions: int, type: str) -> None:
    """So many of which nobody was told where they stand."""
    p.feed(0, 10)
    for i in range(transactions):
        p.transform(i, i, 1, None, type)
    p.wait(3)


@pytest.mark.parametrize("type", ["info", "fail"])
@pytest.mark.parametrize("transactions", [4, 6], ids=["room", "too many"])
def test_that_more_may_have_been_reflected_than_is_kept_is_told(
    transactions: int, type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "DOUBTFUL_KEPT", 4)
    p = Pair()
    indefinite(p, transactions, type)
    told = [one.subject for one in whole(row_by_row(p), ["window-overflow"]) if one.event == "opened"]
    assert told == ([("reflections that may not be committed",)] if transactions == 6 else [])


def test_what_failed_long_ago_is_not_kept() -> None:
    """For twice the grace somebody may read it all the same."""
    p, kept = Pair(), list[int]()
    store = Store()
    indefinite(p, 3, "fail")
    for _ in range(4):
        store.feed(p.rows)
        p.rows.clear()
        p.wait(8)
        (state,) = (one for place, one in store.stored.items() if place.topic_id == "out")
        kept.append(len(load(known(state.hot), KINDS).checks["transforms"].failed))
    assert kept == [3, 3, 3, 0]
