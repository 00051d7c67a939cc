"""How the newest blocks of a log begin, and what is compared of them: as readers come by, second by second."""

from __future__ import annotations

from rules.audit.beginnings import PART, Beginnings, Tail, learn
from rules.audit.sums import BLOCK
from rules.kept.report import Report
from rules.kept.state import Polls, State
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place
from tests.rules.cut_logs.test_audit import Log, check, logged, runs, write
from tests.rules.histories import History, Store


def slowly(h: History, name: str, log: Log, size: int) -> None:
    """A reader in assign mode polls so many offsets a second, to the end."""
    h.assign(name)
    end = max(log) + 1
    for position in range(0, end, size):
        stop = min(end, position + size)
        h.poll(name, runs(log, position, stop), position_before=position, position_after=stop)
        h.observe(start=0, end=end)
        h.mark(1.0)


def read_slowly(log: Log, later: Log) -> Store:
    h = History()
    write(h, log)
    slowly(h, "r", log, 100)
    slowly(h, "audit", later, 70)
    for _ in range(15):
        h.mark(1.0)
    return check(h, parts=120)


def test_what_is_carried_over_the_end_of_a_block_is_none_of_the_next_one() -> None:
    log = logged(2 * BLOCK + 500)
    assert read_slowly(log, log).rechecks == []


def test_who_reads_on_from_step_to_step_is_compared_part_by_part() -> None:
    log, gone = logged(2 * BLOCK + 500), 2 * BLOCK + 3 * PART + 5
    store = read_slowly(log, {offset: value for offset, value in log.items() if offset != gone})
    assert [(r.start, r.end) for _, r in store.rechecks] == [(2 * BLOCK, 2 * BLOCK + 4 * PART)]


class Asked:
    """Takes the place of a step's report: what is rechecked."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def recheck(self, start: int, end: int, seen: int) -> None:
        self.ranges.append((start, end))


def tail(block: int, digest: int) -> Tail:
    """One that has come to the end of the first part of a block, which it began with this step before."""
    base = block * BLOCK
    return Tail(base, base + 1, base + PART, digest, digest, Polls())


def test_a_block_is_rechecked_once_for_how_it_begins_and_not_where_the_log_has_gone() -> None:
    own, asked = Beginnings(), Asked()
    for digest in (1, 2, 3):
        learn(own, [tail(5, digest)], 0, asked)  # type: ignore[arg-type]
    assert asked.ranges == [(5 * BLOCK, 5 * BLOCK + PART)]
    for digest in (1, 2):
        learn(own, [tail(6, digest)], 6 * BLOCK + 1, asked)  # type: ignore[arg-type]
    assert len(asked.ranges) == 1
    learn(own, [tail(6, 3)], 6 * BLOCK, asked)  # type: ignore[arg-type]
    assert asked.ranges[1:] == [(6 * BLOCK, 6 * BLOCK + PART)]


def test_the_block_before_the_newest_is_compared_and_none_before_that() -> None:
    own, asked = Beginnings(), Asked()
    for block in (5, 6, 7):
        learn(own, [tail(block, 1)], 0, asked)  # type: ignore[arg-type]
    for block in (6, 5):
        learn(own, [tail(block, 2)], 0, asked)  # type: ignore[arg-type]
    assert asked.ranges == [(6 * BLOCK, 6 * BLOCK + PART)]
    assert sorted({*own.known.block.tolist()}) == [6, 7]


def test_the_same_range_is_asked_for_once_in_a_step() -> None:
    """Several readers may each have seen it in their own way."""
    report = Report(Place("c", "t", 0), State(), Objectives())
    for seen in (1, 2, 2):
        report.recheck(0, BLOCK, seen)
    report.recheck(0, PART, 1)
    assert [(one.start, one.end) for one in report.rechecks] == [(0, BLOCK), (0, PART)]
