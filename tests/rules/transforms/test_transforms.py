"""Consume-transform-produce: inputs that the committed output reflects twice, or not at all, compared whole, however
the rows are cut, and what stage 2 keeps for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rules.across.resolution import expired
from rules.across.transforms import BLOCK, HEAD, join
from rules.arrays.columns import Runs
from rules.checks.transactions.transforms import FORGET_GROUP
from rules.kept.check import FOREVER
from rules.kept.facts import Facts
from rules.step import Stored, prepare
from rules.vocabulary.finding import FactKind
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Irregular, Place, Slice, to_table
from rules.vocabulary.times import micros
from tests.rules.histories import START, Store, number
from tests.rules.splits import WAYS
from tests.rules.transforms.transform_pair import Pair, W, X, Y, by_another_clock
from tests.rules.whole import Told, whole


def once_each(p: Pair) -> None:
    for i in range(4):
        p.feed(i * 5, 5)
        p.transform(i, i * 5, 5, i * 6)


def aborted_and_done_again(p: Pair) -> None:
    p.feed(0, 10)
    p.transform(0, 0, 5, 0)
    p.transform(1, 5, 5, 6, "fail")
    p.transform(2, 5, 5, 12)


def twice(p: Pair) -> None:
    p.feed(0, 10)
    p.transform(0, 0, 5, 0)
    p.transform(1, 4, 5, 6)
    p.transform(2, 9, 1, 12)


def left_out(p: Pair) -> None:
    p.feed(0, 10)
    p.transform(0, 0, 4, 0)
    p.transform(1, 6, 4, 6)


def reflected_out_of_order(p: Pair) -> None:
    p.feed(0, 13)
    p.transform(0, 0, 4, 0)
    p.transform(1, 10, 2, 6)
    p.transform(2, 4, 2, 12)
    p.transform(3, 12, 1, 18)


def tail_not_done(p: Pair) -> None:
    p.feed(0, 10)
    p.transform(0, 0, 4, 0)


def begun_late(p: Pair) -> None:
    p.feed(0, 10)
    p.transform(0, 6, 4, 0)


def done_later_than_the_next(p: Pair) -> None:
    """Within the grace another transaction reflects what was left out."""
    left_out(p)
    p.wait(5)
    p.transform(2, 4, 2, 12)


def done_much_too_late(p: Pair) -> None:
    left_out(p)
    p.wait(15)
    p.transform(2, 4, 2, 12)


def topic_made_anew(p: Pair, left_out: int = 0) -> None:
    """What a transform reflected of the topic that is gone says nothing of the new one, in which it begins late."""
    for i in range(10):
        p.feed(i * 5, 5)
        p.transform(i, i * 5, 5, i * 6)
        p.wait(2)
    p.made_anew(50)
    p.feed(50, 10)
    p.wait(5)
    p.transform(20, 56, 2, 60)
    p.wait(5)
    p.feed(60, 10)
    p.transform(21, 58, 2, 63)
    p.transform(22, 60 + left_out, 10 - left_out, 66)


def left_out_of_a_topic_made_anew(p: Pair) -> None:
    topic_made_anew(p, left_out=1)


def taken_by_retention(p: Pair) -> None:
    """What is left out lies below the input's log start."""
    p.feed(0, 10)
    p.transform(0, 0, 4, 0)
    p.start = 6
    p.wait(1)
    p.transform(1, 6, 4, 6)


def taken_by_retention_which_goes_on(p: Pair) -> None:
    """The log start has risen further when this is judged, in one step with all that, as after a restart."""
    taken_by_retention(p)
    p.wait(20)
    p.feed(10, 10)
    p.transform(2, 10, 10, 11)
    p.start = 15
    p.wait(1)


def left_out_before_retention_takes_it(p: Pair) -> None:
    """It was there when the transform went over it, and for the grace time after that."""
    left_out(p)
    p.wait(15)
    p.start = 8
    p.wait(1)


def indefinite(p: Pair, at: int | None) -> None:
    """A transaction that may have reflected inputs 4 and 5; the next one goes on after them."""
    p.feed(0, 10)
    p.transform(0, 0, 4, 0)
    p.transform(1, 4, 2, at, "info")
    p.transform(2, 6, 4, 12)


def passed_by_a_reader(p: Pair) -> None:
    """It was aborted: a reader went over where its outputs were acknowledged."""
    indefinite(p, 6)


def not_passed_yet(p: Pair) -> None:
    indefinite(p, 16)


def without_an_offset(p: Pair) -> None:
    indefinite(p, None)


def without_an_offset_and_fenced(p: Pair) -> None:
    """The next life of its transactional id has ended it, and readers are past where it can have been."""
    p.wait(31)
    indefinite(p, None)
    p.begun("y")
    p.wait(31)
    p.feed(10, 5)
    p.transform(3, 10, 5, 24, process="y")


def without_an_offset_and_fenced_but_not_passed(p: Pair) -> None:
    """The same, and nobody has read that far."""
    p.wait(31)
    indefinite(p, None)
    p.begun("y")
    p.wait(31)
    p.feed(10, 5)
    p.transform(3, 10, 5, 24, process="y", read=False)


def visible_and_done_again(p: Pair) -> None:
    """It was committed, and what it reflected is reflected by another."""
    p.feed(0, 10)
    p.transform(0, 0, 5, 0, "info")
    p.outputs.poll("q", [("o", 0, 5, 0)])
    p.transform(1, 4, 6, 6)


def once_by_each_of_two_groups(p: Pair) -> None:
    """As on two hosts, each with a transform."""
    p.joined()
    for i in range(4):
        p.feed(i * 5, 5)
        p.transform(i, i * 5, 5, i * 12)
        p.transform(i + 10, i * 5, 5, i * 12 + 6, process="y")


def twice_by_one_of_two_groups(p: Pair) -> None:
    p.joined()
    p.feed(0, 10)
    p.transform(0, 0, 5, 0)
    p.transform(1, 5, 5, 6)
    p.transform(2, 0, 5, 12, process="y")
    p.transform(3, 4, 6, 18, process="y")


def twice_by_each_of_two_groups(p: Pair) -> None:
    p.joined()
    p.feed(0, 10)
    p.transform(0, 0, 5, 0)
    p.transform(1, 4, 6, 6)
    p.transform(2, 0, 5, 13, process="y")
    p.transform(3, 4, 6, 19, process="y")


def left_out_by_one_of_two_groups(p: Pair) -> None:
    p.joined()
    p.feed(0, 10)
    p.transform(0, 0, 10, 0)
    p.transform(1, 0, 4, 11, process="y")
    p.transform(2, 5, 5, 16, process="y")


def missing(at: float, *seqs: int, reflected: int = 9, group: str = "g") -> list[Told]:
    return [
        Told(
            "eos-violation",
            ("missing", group, W, seq),
            f"input {W}/{seq} at offset {seq} is not reflected in the committed output of group {group}, and the input"
            f" at offset {reflected} is",
            {"writer": W, "seq": seq, "offset": seq, "group": group, "reflected": reflected},
            at,
        )
        for seq in seqs
    ]


def reflected_twice(at: float, op: int, group: str = "g", process: int = X) -> Told:
    return Told(
        "eos-violation",
        ("twice", group, W, 4),
        f"input {W}/4 is reflected more than once in the committed output of group {group}, again by operation {op} of"
        f" process {process}",
        {"writer": W, "seq": 4, "input_offset": 4, "group": group, "process": process, "op": op},
        at,
    )


CASES: list[tuple[Callable[[Pair], None], list[Told]]] = [
    (once_each, []),
    (aborted_and_done_again, []),
    (twice, [reflected_twice(0.046, 11)]),
    (left_out, missing(11.0, 4, 5)),
    (reflected_out_of_order, missing(11.0, 6, 7, 8, 9, reflected=11)),
    (tail_not_done, []),
    (begun_late, []),
    (done_later_than_the_next, []),
    (done_much_too_late, missing(11.0, 4, 5)),
    (taken_by_retention, []),
    (taken_by_retention_which_goes_on, []),
    (passed_by_a_reader, missing(11.0, 4, 5)),
    (not_passed_yet, []),
    (without_an_offset, []),
    (without_an_offset_and_fenced, missing(42.0, 4, 5)),
    (without_an_offset_and_fenced_but_not_passed, []),
    (visible_and_done_again, [reflected_twice(0.046, 11)]),
    (once_by_each_of_two_groups, []),
    (twice_by_one_of_two_groups, [reflected_twice(0.09, 13, "h", Y)]),
    (twice_by_each_of_two_groups, [reflected_twice(0.056, 11), reflected_twice(0.09, 13, "h", Y)]),
    (left_out_by_one_of_two_groups, missing(11.0, 4, group="h")),
]


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_live(build: Callable[[Pair], None], expected: list[Told], fed: Callable[[Any], Store]) -> None:
    pair = Pair()
    build(pair)
    pair.wait(40)
    assert whole(fed(pair), ("eos-violation",)) == expected


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_a_transform_lists_as_a_strangers_is_no_input_of_its_group(
    fed: Callable[[Any], Store], later: bool, knows: bool
) -> None:
    """v, of a host that has joined, sends two values; x of another host does not know its run, and lists one of them
    (or it knows the run, and left them out). `later`: its next life knows it, and leaves out another one."""
    pair, v = Pair(), number("v")
    for h in (pair.inputs, pair.outputs):
        h.row("v", "start", settings={"writer": str(v), "sends_to": "in"}).run = "run-b"
    pair.feed(0, 4)
    pair.transform(0, 0, 4, 0)
    pair.inputs.send("v", 0, 2, at=4)
    pair.inputs.poll("r", [("v", 0, 2, 4)])
    pair.feed(6, 4)
    pair.transform(1, 6, 4, 6)
    if not knows:
        (row,) = (row for row in pair.rows if row.f == "txn" and row.op == 11 and row.topic == "in")
        row.irregular = [Irregular(0, 4, "foreign", 9, v, 0, "in", 0, "run-b")]
    pair.wait(20)
    if later:
        for h in (pair.inputs, pair.outputs):
            h.row("x", "close")
            h.row("y", "start", kind="transform", settings={"group.id": "g"})
            pair.begun("y", h)
        pair.inputs.assign("y", f="subscribe")
        pair.inputs.send("v", 2, 1, at=10)
        pair.inputs.poll("r", [("v", 2, 1, 10)])
        pair.feed(11, 4)
        pair.transform(2, 11, 4, 12, process="y")
    pair.wait(40)
    told = [one.subject for one in whole(fed(pair), ("eos-violation",))]
    at_first = [] if knows is False else [("missing", "g", v, 0), ("missing", "g", v, 1)]
    assert told == [*at_first, *([("missing", "g", v, 2)] if later else [])]


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_retention_takes_later_was_left_out(fed: Callable[[Any], Store]) -> None:
    """In a finished history nobody knows any more when it was settled, and it is excused."""
    pair = Pair()
    left_out_before_retention_takes_it(pair)
    pair.wait(40)
    assert whole(fed(pair), ("eos-violation",)) == missing(11.0, 4, 5)


@pytest.mark.parametrize(("build", "expected"), CASES, ids=[c[0].__name__ for c in CASES])
def test_finished(build: Callable[[Pair], None], expected: list[Told]) -> None:
    """A finished history finds the same; it tells no times of its own."""
    pair, store = Pair(), Store()
    build(pair)
    pair.wait(1)
    store.feed(pair.rows, finished=True)
    told = [one._replace(at=0.0, decidable=None) for one in whole(store, ("eos-violation",))]
    assert told == [one._replace(at=0.0) for one in expected]


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_an_input_topic_that_was_made_anew_is_another_one(fed: Callable[[Any], Store]) -> None:
    """Its offsets begin again, and so does the transform in it; what it leaves out from there on is missing."""
    innocent, guilty = Pair(), Pair()
    topic_made_anew(innocent)
    left_out_of_a_topic_made_anew(guilty)
    for pair in (innocent, guilty):
        pair.wait(40)
    assert whole(fed(innocent), ("eos-violation",)) == []
    told = whole(fed(guilty), ("eos-violation",))
    assert [(one.subject, one.evidence["offset"]) for one in told] == [(("missing", "g", W, 60), 10)]


@pytest.mark.parametrize("fed", list(WAYS.values()), ids=list(WAYS))
def test_what_the_end_of_an_output_that_is_gone_reflected_is_not_known(fed: Callable[[Any], Store]) -> None:
    """Transaction 1 went to the topic that came then, and did not count; what is left out after it does."""
    innocent, guilty = Pair(), Pair()
    for pair, next_one in ((innocent, 10), (guilty, 11)):
        pair.feed(0, 30)
        pair.transform(0, 0, 5, 0)
        pair.wait(3)
        pair.output_made_anew()
        pair.transform(2, 8, 1, 0)
        pair.wait(3)
        pair.transform(3, 9, 1, 2)
        pair.transform(4, next_one, 5, 4)
        pair.wait(40)
    assert whole(fed(innocent), ("eos-violation",)) == []
    assert [one.subject for one in whole(fed(guilty), ("eos-violation",))] == [("missing", "g", W, 10)]


# What stage 2 keeps


def test_a_healthy_group_keeps_the_records_in_flight() -> None:
    pair, sizes = Pair(), []
    store = Store()
    for i in range(60):
        pair.feed(i * 500, 500)
        pair.transform(i, i * 500, 500, i * 501)
        pair.wait(2)
        if i % 20 == 19:
            store.feed(pair.rows)
            pair.rows.clear()
            sizes.append(sum(len(value) for value in store.store.across.values()))
    assert max(sizes) < 2_000 and sizes[-1] <= sizes[0] + 100
    assert len(store.store.across) <= 2 + 30_000 // BLOCK


def test_the_inputs_of_a_group_that_is_gone_wait_in_blocks_and_are_judged_when_it_returns() -> None:
    pair, store, changed = Pair(), Store(), []
    pair.feed(0, 10)
    pair.transform(0, 0, 10, 0)
    for i in range(200):
        pair.feed(10 + i * 100, 100)
        pair.wait(2)
        if i % 20 == 19:
            before = dict(store.store.across)
            store.feed(pair.rows)
            pair.rows.clear()
            changed.append(sum(len(v) for k, v in store.store.across.items() if before.get(k) != v))
    assert max(changed[1:]) < 1_500, "what waits is not written again and again"
    pair.transform(1, 12, 19_998, 11)
    pair.wait(30)
    store.feed(pair.rows)
    (ten, eleven) = whole(store, ("eos-violation",))
    assert (ten.subject, eleven.subject) == (("missing", "g", W, 10), ("missing", "g", W, 11))
    pair.start = 15_000
    pair.rows.clear()
    pair.wait(2)
    store.feed(pair.rows)
    assert len(store.store.across) <= 4 + 5_010 // BLOCK


def test_a_group_that_is_gone_for_a_week_is_forgotten() -> None:
    pair, store = Pair(), Store()
    left_out(pair)
    pair.wait(5)
    store.feed(pair.rows)
    (head,) = (value for name, value in store.store.across.items() if name.startswith(HEAD))
    at = micros(START) + 10_000_000
    assert head and not expired(store.store.across, at + FORGET_GROUP - 60_000_000)
    assert set(expired(store.store.across, at + FORGET_GROUP)) == set(store.store.across) - {"format"}


def a_host_that_lost_its_disk(late: float, *, seen: bool = False) -> list[Slice]:
    """The transform's host goes down with the rows of what it reflected last. Its successor, of the same group, goes on
    behind that, by a clock that is `late` behind the others'. Where it has `seen` what they write, that is known from
    both sides."""
    p = Pair()
    p.feed(0, 40)
    p.transform(0, 0, 5, 0)
    p.wait(20)
    known = len(p.rows)
    p.transform(1, 5, 5, 6)
    p.transform(2, 10, 5, 12)
    lost = [row for row in p.rows[known:] if row.process == X]
    for h in (p.inputs, p.outputs):
        h.processes.remove("x")
        h.row("y", "start", kind="transform", settings={"group.id": "g"})
    p.begun("y")
    p.inputs.assign("y", f="subscribe")
    for op in range(3, 8):
        p.transform(op, 5 * op, 5, 6 * op, process="y")
        p.wait(2)
    if seen:
        p.outputs.send("v", 0, at=60)
        p.outputs.poll("y", [("v", 0, 1, 60)])
        p.output_end = 61
    p.wait(90)
    return [row for row in by_another_clock(p.rows, Y, late) if row not in lost]


@pytest.mark.parametrize(
    ("apart", "through", "missing"),
    [
        (0, 30, range(5, 15)),  # both by one clock: what a transform skipped
        (600, 30, range(0)),
        (600, 611, range(0)),  # its rows may be underway
        (600, 615, range(5, 15)),
        (2**62 / 1e6, 10**6, range(0)),  # nobody knows by how much
    ],
)
def test_what_is_reflected_by_another_clock_waits_for_as_long_as_they_are_apart(
    apart: float, through: float, missing: range
) -> None:
    """The successor of a transform, on another host, whose clock is behind: it reflects on 595 seconds before."""
    assert missing_of([(1, 0, 5), (605 - 600, 15, 5)], apart, through) == [*missing]


@pytest.mark.parametrize(("apart", "missing"), [(0, range(5, 15)), (600, range(0))])
def test_what_its_predecessor_reflected_before_it_is_not_too_late(apart: float, missing: range) -> None:
    """By its clock that was five minutes after what the successor did."""
    assert missing_of([(1, 0, 5), (605 - 600, 15, 5), (300, 5, 10)], apart, 1_000) == [*missing]


def missing_of(reflected: list[tuple[float, int, int]], apart: float, through: float) -> list[int]:
    """Of 40 inputs, those that are called missing, where (when, from, how many) were reflected and the logs are
    complete `through` that time."""
    facts = Facts()

    def told(kind: FactKind, at: float, offset: int, length: int, about: str | None = None) -> None:
        made = Runs(*(np.array([value], np.int64) for value in (0, W, offset, offset, length)))
        facts.add(kind, np.array([round(at * 1e6)]), group=["g"], about=[about], runs=made)

    told("begun", 0, 0, 1)
    told("input", 8, 0, 40)
    for at, offset, length in reflected:
        told("reflected", at, offset, length)
    told("horizon", through, 0, 0, "input")
    told("horizon", through, 0, round(apart * 1e6))
    _, found = join({}, facts.table(Place("c", "in", 0), "in"), Objectives())
    return [f.evidence["offset"] for f in found]


@pytest.mark.long
@pytest.mark.parametrize("seen", [True, False])
def test_how_far_the_clocks_of_a_groups_transforms_are_apart_is_told_with_the_horizon(seen: bool) -> None:
    kept, told = Stored(), dict[int, None]()
    rows = [row for row in a_host_that_lost_its_disk(600, seen=seen) if row.topic == "out"]
    for row in rows:
        prepared = prepare(kept.hot, to_table([row]))
        stepped = prepared.step({n: kept.chunks[n] for n in prepared.chunks if n in kept.chunks}, Objectives())
        kept.take(stepped)
        for fact in stepped.facts.to_pylist():
            if fact["kind"] == "horizon" and not fact["about"]:
                told[fact["length"]] = None
    first, *_, last = told
    assert first == 0, "one transform, one clock"
    assert last == FOREVER if not seen else 600e6 <= last < 601e6


@pytest.mark.long
@pytest.mark.parametrize("late", [0, 5, 600])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_what_a_lost_host_reflected_last_is_not_called_missing(late: float, pieces: int) -> None:
    """Nobody knows what it reflected: its rows are not here, and its host has not been declared gone."""
    store = Store()
    rows = a_host_that_lost_its_disk(late)
    for at in range(0, len(rows), pieces):
        store.feed(rows[at : at + pieces])
    assert [f.message for f in store.findings if f.anomaly == "eos-violation"] == []
