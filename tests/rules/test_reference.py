"""`rules` against the reference checker, on some thousand small arbitrary histories.

Where the two are known to differ, `KNOWN` says so by name: each difference has its smallest history, and a narrow
description of the findings that it concerns. The history fails as long as the difference is there, strictly: once
`rules` is right, the test says so, and the entry can go.

`HISTORIES=20000 pytest tests/rules/test_reference.py` looks further, and at other histories each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from rules.vocabulary.slices import Irregular, Place, Run, Slice
from tests.rules import reference, reference_fates
from tests.rules.histories import History, Store, number
from tests.rules.random_histories import Operation, build, histories
from tests.rules.reference import Found, Log, Record, Step, Value
from tests.rules.reference_fates import FATES

ASKED = os.environ.get("HISTORIES")
EXAMPLES = settings(
    max_examples=int(ASKED or 500),
    derandomize=ASKED is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
UNSEEN_LISTED = 10
"""`unseen` lists the first few runs of values, and counts the rest."""

COMPARED = {
    "duplicate",
    "inconsistent-offsets",
    "G1a",
    "precommitted-read",
    "corrupted-record",
    "relocated-write",
    "foreign-record",
    "lost-write",
    "unseen",
    "poll-skip",
    "nonmonotonic-poll",
    "int-poll-skip",
    "int-nonmonotonic-poll",
    "int-send-skip",
    "int-nonmonotonic-send",
    "nonmonotonic-send",
    "spurious-zero-offset",
    "phantom-read",
    "torn-transaction",
    "zombie-write",
    "dirty-read",
    "misleading-error",
    "eos-violation",
    "vanished-record",
    "late-record",
    "offset-regression",
    "lost-commit",
    "foreign-commit",
    "log-truncation",
}
BETWEEN_POLLS = {"poll-skip", "nonmonotonic-poll"}
INSIDE_POLLS = {"int-poll-skip", "int-nonmonotonic-poll"}
INSIDE_SENDS = {"int-send-skip", "int-nonmonotonic-send"}
BETWEEN_SENDS = {"nonmonotonic-send"}
OF_POLLS = BETWEEN_POLLS | INSIDE_POLLS
OF_SENDS = BETWEEN_SENDS | INSIDE_SENDS


class Difference(NamedTuple):
    """`missed`: the reference finds it and `rules` does not; `extra`: the other way round."""

    kind: Literal["missed", "extra"]
    place: Place
    found: Found


def reported(rows: list[Slice]) -> dict[Place, set[Found]]:
    """What `rules` says, in the reference's terms."""
    store = Store()
    store.feed(rows, finished=True)
    found: dict[Place, set[Found]] = {row.place: set() for row in rows}
    for finding in store.findings:
        if finding.anomaly == "torn-transaction":  # it is about no single partition: told to the first that it wrote to
            wrote = [row.place for row in rows if (row.txn,) == finding.subject and row.sent]
            found[min(wrote)].add((finding.anomaly, finding.subject))
            continue
        own = found[Place(finding.cluster, finding.topic_id, finding.partition)]
        if finding.anomaly not in COMPARED:
            continue
        if finding.anomaly == "unseen":
            listed = {
                ("unseen", (run["writer"], run["seq"] + i))
                for run in finding.evidence["first"]
                for i in range(run["values"])
            }
            own |= listed
            if len(finding.evidence["first"]) < UNSEEN_LISTED and finding.evidence["values"] != len(listed):
                own.add(("unseen", ("miscounted",)))
            if len(finding.evidence["first"]) == UNSEEN_LISTED:
                own -= listed
                own.add(("unseen", ("and more",)))
        elif finding.anomaly != "spurious-zero-offset" or finding.subject[0] in ("acknowledgement", "committed"):
            own.add((finding.anomaly, finding.subject))  # zero positions and polls are compared with no rule yet
    return found


def differences(rows: list[Slice], actual: dict[Place, set[Found]]) -> set[Difference]:
    expected = reference.check(rows, (*reference.RULES, *FATES))
    found: set[Difference] = set()
    for place, own in expected.items():
        more = ("unseen", ("and more",)) in actual[place]  # then the list is not whole
        missed = {f for f in own - actual[place] if not (more and f[0] == "unseen")}
        extra = {f for f in actual[place] - own if f != ("unseen", ("and more",))}
        found |= {Difference("missed", place, f) for f in missed} | {Difference("extra", place, f) for f in extra}
    return found


# What a difference is about.


def value_of(log: Log, found: Found) -> Value:
    """The value that a `lost-write` or `unseen` is about."""
    writer, seq = found[1]
    return Value(int(writer), "topic", log.place.partition, int(seq))


def steps_of(log: Log, found: Found) -> Iterator[Step]:
    """The steps that an order finding may be about."""
    name, subject = found
    if name in BETWEEN_POLLS:
        yield from (s for s in reference.steps_between_polls(log) if s.part.operation == subject)
    if name in BETWEEN_SENDS:
        yield from (s for s in reference.steps_between_sends(log) if s.part.operation == subject)
    if name in INSIDE_POLLS | INSIDE_SENDS:
        inside = reference.steps_inside_polls if name in INSIDE_POLLS else reference.steps_inside_sends
        for step in inside(log):
            placed = step.other.offset is not None or step.other.value in log.places
            if placed and step.inside(log) == subject:
                yield step


def stands_again(log: Log, record: Record) -> bool:
    return record.value is not None and len(log.places.get(record.value, ())) > 1


def unclear(log: Log, record: Record) -> bool:
    return record.offset is not None and len(log.values.get(record.offset, ())) > 1


def acknowledgements(log: Log, value: Value) -> list[tuple[bool, int | None]]:
    """(by an ok operation?, offset) of every time that a visible write of this value was acknowledged."""
    return [
        (part.ok, record.offset)
        for part in log.parts
        if part.operation in log.history.visible_operations
        for record in part.sent
        if record.value == value
    ]


def order_at_several_places(log: Log, d: Difference) -> bool:
    if d.found[0] not in OF_POLLS | OF_SENDS:
        return False
    return any(stands_again(log, s.one) or stands_again(log, s.other) for s in steps_of(log, d.found))


def sends_indefinite(log: Log, d: Difference) -> bool:
    """An indefinite operation that is not visible: its acknowledgements are no part of the log."""
    if d.found[0] not in OF_SENDS:
        return False
    process = d.found[1][0]
    return any(
        p.row.process == process and p.row.type == "info" and p.operation not in log.history.visible_operations
        for p in log.parts
    )


def sends_unacknowledged(log: Log, d: Difference) -> bool:
    """A send without an acknowledged offset, whose place the polls tell."""
    if d.kind != "missed" or d.found[0] not in OF_SENDS:
        return False
    return any(s.one.offset is None or s.other.offset is None for s in steps_of(log, d.found))


def of_irregular_records(log: Log, d: Difference) -> bool:
    """Foreign and relocated records are values, too, and stand in the log where they were polled."""
    odd = [r for part in log.parts for r in part.polled if r.irregular is not None]
    name, subject = d.found
    if name == "duplicate":
        return d.kind == "missed" and len(subject) == 4
    if name == "lost-write":
        return d.kind == "missed" and bool(odd)
    return name in OF_POLLS | OF_SENDS and bool(odd)


def polls_without_offsets(log: Log, d: Difference) -> bool:
    """Somebody polled records without telling their offsets."""
    return any(r.offset is None for part in log.parts for r in part.polled) and (
        d.found[0] in OF_POLLS | OF_SENDS
        or (d.found[0] in ("duplicate", "inconsistent-offsets", "spurious-zero-offset") and d.kind == "extra")
        or (d.found[0] == "torn-transaction" and d.kind == "extra")
        or (d.found[0] == "lost-write" and d.kind == "missed")
    )


EXPLAINED = {"vanished-record", "late-record"}


def passed_by_going_back(log: Log, d: Difference) -> bool:
    """A reader that went back inside its operation has passed more than its first and last record tell."""
    if d.kind != "missed" or d.found[0] != "torn-transaction":
        return False
    parts = [part for other in log.history.logs.values() for part in other.parts]
    polled = [[r.offset for r in part.polled if r.offset is not None] for part in parts if part.ok]
    return any(after <= before for offsets in polled for before, after in pairwise(offsets))


def passed_from_what_is_unknown(log: Log, d: Difference) -> bool:
    """The step over the offset begins or ends at a record whose value is broken, or not of this partition, or stands at
    an offset with several, or has such a record beside it: there is no step to speak of, and nobody looks it up."""
    if d.kind != "missed" or d.found[0] not in EXPLAINED:
        return False
    offset = int(d.found[1][0])
    for part, one, other in reference_fates.passes(log):
        assert one.offset is not None and other.offset is not None
        odd = any(r.irregular is not None for r in part.polled)
        unsure = any(r.irregular is not None or unclear(log, r) or stands_again(log, r) for r in (one, other))
        if one.offset < offset < other.offset and (odd or unsure):
            return True
    return False


# The smallest history of each difference.


def a_read_uncommitted_poll_delivers(h: History) -> None:
    """Its reader has polled it: it is neither unseen nor lost."""
    h.send("w", 0, at=0)
    h.poll("u", [("w", 0, 1, 0)], isolation="read_uncommitted")
    h.poll("r", [("v", 0, 1, 1)])


def unseen_is_what_ok_operations_acknowledged(h: History) -> None:
    """Of an indefinite operation, one value was polled: the other is visible, but nobody said so."""
    h.send("w", 0, 2, at=0, type="info")
    h.poll("r", [("w", 0, 1, 0)])


def unseen_below_the_log_start_is_retention(h: History) -> None:
    h.send("w", 0, at=0)
    h.observe(start=1, end=1)


def unseen_values_count_once(h: History) -> None:
    h.send("w", 0, at=0)
    h.send("w", 0, at=0)


def lost_below_the_log_start_is_retention(h: History) -> None:
    h.send("w", 0, at=0)
    h.observe(start=1, end=1)
    h.poll("r", [("w", 1, 1, 1)])


def lost_where_a_poll_tells_the_place(h: History) -> None:
    """Acknowledged without an offset, seen by an operation that failed, passed over by one that did not."""
    h.send("w", 0, at=None)
    h.poll("s", [("w", 0, 1, 0)], type="info")
    h.poll("r", [("v", 0, 1, 1)])


def lost_by_the_last_place_of_each_value(h: History) -> None:
    """The second of two values stands again, above everything polled: only the first is lost."""
    h.send("w", 0, 2, at=0)
    h.poll("s", [("w", 1, 1, 9)], type="info")
    h.poll("r", [("v", 0, 1, 2)])


def lost_below_the_first_place_of_what_was_polled(h: History) -> None:
    """What was polled furthest up stands at three places, and counts at the first, below the write."""
    h.send("w", 0, at=5)
    h.poll("s", [("v", 0, 1, 1), ("v", 0, 1, 7)], type="info")
    h.poll("r", [("v", 0, 1, 9)])


def order_at_the_last_place_if_it_is_clear(h: History) -> None:
    """The process ended at a value that stands again at an offset with two values: nothing is concluded."""
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])
    h.poll("s", [("w", 0, 1, 5)])
    h.poll("q", [("v", 0, 1, 5)])


def order_at_the_last_place_if_it_has_an_index(h: History) -> None:
    """A second place that only a reader at read_uncommitted saw gives no index."""
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 2, 1, 2)])
    h.poll("u", [("w", 0, 1, 5)], isolation="read_uncommitted")


def order_of_neighbours_that_stand_again(h: History) -> None:
    """Offsets 0 and 1 follow each other; the value at 0 counts at 5."""
    h.poll("r", [("w", 0, 1, 0)])
    h.poll("r", [("w", 1, 1, 1)])
    h.poll("s", [("w", 0, 1, 5)])


def sends_at_unclear_offsets(h: History) -> None:
    h.send("w", 0, at=0)
    h.send("w", 1, at=0)


def sends_that_stand_again(h: History) -> None:
    """The first write stands again behind the second."""
    h.send("w", 0, at=0)
    h.send("w", 1, at=1)
    h.poll("r", [("w", 0, 1, 5)])


def sends_over_what_stands_again(h: History) -> None:
    """Between the two writes there is only a value that counts at a later place."""
    h.poll("s", [("v", 0, 1, 1), ("v", 0, 1, 9)], type="info")
    h.txn("t", sends=[("w", 0, 1, 0), ("w", 1, 1, 2)])


def sends_of_unknown_outcome(h: History) -> None:
    """Nobody saw anything of the second operation: its acknowledgement gives no index."""
    h.send("w", 0, at=1)
    h.send("w", 1, at=0, type="info")


def sends_whose_place_a_poll_tells(h: History) -> None:
    h.send("w", 0, at=1)
    h.send("w", 1, at=None)
    h.poll("r", [("w", 1, 1, 0)])


def relocated_over_a_record(h: History) -> None:
    h.send("w", 0, at=0)
    h.irregular("r", Irregular(0, 0, "relocated", 1, number("w"), 5, "topic", 3))


def relocated_over_another(h: History) -> None:
    """Two readers were shown different values of another partition at one offset."""
    h.irregular("r", Irregular(0, 0, "relocated", 1, number("w"), 5, "topic", 3))
    h.irregular("s", Irregular(0, 0, "relocated", 2, number("w"), 6, "topic", 3))


def relocated_twice(h: History) -> None:
    """One value of another partition stands at two offsets: each is told as relocated, the pair not as a duplicate."""
    h.irregular("r", Irregular(0, 0, "relocated", 1, number("w"), 5, "topic", 3))
    h.irregular("r", Irregular(0, 4, "relocated", 1, number("w"), 5, "topic", 3))


def polls_without_offsets_stand_nowhere(h: History) -> None:
    h.send("w", 0, 2, at=0)
    h.row("r", "poll", polled=[Run(number("w"), 0, None, 2)])


def polls_without_offsets_move_the_reader(h: History) -> None:
    """The reader polled the value at offset 1 in between, and did not say where."""
    h.send("w", 0, 3, at=0)
    h.poll("r", [("w", 0, 1, 0)])
    h.row("r", "poll", polled=[Run(number("w"), 1, None, 1)])
    h.poll("r", [("w", 2, 1, 2)])


def lost_below_what_was_polled_without_offset(h: History) -> None:
    """The acknowledgement tells where the polled value stands."""
    h.send("w", 0, 2, at=0)
    h.row("r", "poll", polled=[Run(number("w"), 1, None, 1)])


def skips_inside_polls_without_offsets(h: History) -> None:
    """The acknowledgement tells both values' places, and one between."""
    h.send("w", 0, 3, at=0)
    h.row("r", "poll", polled=[Run(number("w"), 0, None, 1), Run(number("w"), 2, None, 1)])


def sends_indefinite_and_seen_elsewhere(h: History) -> None:
    """An indefinite transaction sends two values that others have acknowledged, in the wrong order."""
    h.send("w", 0, at=5)
    h.send("v", 0, at=6)
    h.txn("t", sends=[("v", 0, 1, 6), ("w", 0, 1, 5)], type="info")


def polls_without_offsets_pass(h: History) -> None:
    """Where the reader's records lie, the acknowledgements tell: it went over what is between."""
    h.send("v", 0, 3, at=4)
    h.txn("t", sends=[("w", 0, 1, 5), ("w", 1, 1, 9)], txn=1, txn_partitions=[("topic", 0)])
    h.poll("s", [("w", 1, 1, 9)])
    h.row("r", "poll", polled=[Run(number("v"), 0, None, 1), Run(number("v"), 2, None, 1)])


def two_values_at_one_offset_in_one_poll(h: History) -> None:
    h.poll("s", [("w", 0, 1, 0), ("w", 2, 1, 2)])
    h.poll("r", [("v", 0, 1, 1), ("v", 1, 1, 1)])


def torn_where_a_reader_went_back(h: History) -> None:
    """It went from 0 to 2, over the value at 1, and then back: its first and its last record do not tell."""
    h.txn("t", sends=[("w", 0, 1, 0), ("w", 1, 1, 1)], txn=1, txn_partitions=[("topic", 0)])
    h.poll("r", [("w", 0, 1, 0), ("v", 0, 1, 2), ("w", 0, 1, 0)])


def vanished_between_broken_records(h: History) -> None:
    h.poll("s", [("w", 1, 1, 1)])
    h.irregular("r", Irregular(0, 0, "corrupted", 1))
    h.poll("r", [("w", 2, 1, 2)])


class Known(NamedTuple):
    history: Callable[[History], None]
    concerns: Callable[[Log, Difference], bool]


KNOWN: tuple[Known, ...] = (
    Known(order_of_neighbours_that_stand_again, order_at_several_places),
    Known(sends_that_stand_again, order_at_several_places),
    Known(relocated_twice, of_irregular_records),
    Known(polls_without_offsets_pass, polls_without_offsets),
    Known(torn_where_a_reader_went_back, passed_by_going_back),
    Known(vanished_between_broken_records, passed_from_what_is_unknown),
)


AGREED = (
    a_read_uncommitted_poll_delivers,
    unseen_is_what_ok_operations_acknowledged,
    unseen_below_the_log_start_is_retention,
    unseen_values_count_once,
    lost_below_the_log_start_is_retention,
    lost_where_a_poll_tells_the_place,
    lost_by_the_last_place_of_each_value,
    lost_below_the_first_place_of_what_was_polled,
    order_at_the_last_place_if_it_is_clear,
    order_at_the_last_place_if_it_has_an_index,
    sends_at_unclear_offsets,
    sends_over_what_stands_again,
    sends_of_unknown_outcome,
    polls_without_offsets_stand_nowhere,
    polls_without_offsets_move_the_reader,
    lost_below_what_was_polled_without_offset,
    sends_indefinite_and_seen_elsewhere,
    sends_whose_place_a_poll_tells,
    skips_inside_polls_without_offsets,
    relocated_over_a_record,
    relocated_over_another,
    two_values_at_one_offset_in_one_poll,
)
"""Histories in which the two once differed."""


def unexplained(rows: list[Slice], actual: dict[Place, set[Found]]) -> set[Difference]:
    different = differences(rows, actual)
    logs = reference.read(rows).logs if different else {}
    return {d for d in different if not any(known.concerns(logs[d.place], d) for known in KNOWN)}


@pytest.mark.slow
@EXAMPLES
@given(histories)
def test_rules_agree_with_the_reference(operations: list[Operation]) -> None:
    rows = build(operations).rows
    actual = reported(rows)
    assert unexplained(rows, actual) == set()
    if len(rows) % 3 == 0:
        assert reported(rows[::-1]) == actual, "the order of a finished history's rows must not matter"


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(k, id=k.history.__name__, marks=pytest.mark.xfail(strict=True, raises=AssertionError))
        for k in KNOWN
    ],
)
def test_known_difference(known: Known) -> None:
    history = History()
    known.history(history)
    logs = reference.read(history.rows).logs
    assert {d for d in differences(history.rows, reported(history.rows)) if known.concerns(logs[d.place], d)} == set()


@pytest.mark.parametrize("history", AGREED)
def test_agrees(history: Callable[[History], None]) -> None:
    made = History()
    history(made)
    assert unexplained(made.rows, reported(made.rows)) == set()
