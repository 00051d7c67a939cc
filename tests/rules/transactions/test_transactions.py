"""Torn transactions, zombies and inputs that nothing reflects: every guilty history beside its innocent twin, compared
whole, and however the rows are cut into steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rules.vocabulary.slices import Mark, Run
from tests.rules.histories import History, Store, number
from tests.rules.splits import WAYS, fed_in_any_way
from tests.rules.whole import Told, whole

W, T = number("w"), number("t")
TORN = ("torn-transaction",)
NS = 1_000_000_000
BOTH = [("topic", 0), ("topic", 1)]


class Log(History):
    """Partitions 0 and 1 of a topic, read by `r`; each second of `wait` they are observed and marked."""

    def __init__(self) -> None:
        super().__init__()
        for partition in (0, 1):
            self.assign("r", partition=partition)
        self.end = [0, 0]
        self.start_offset = [0, 0]
        self.stable: list[int | None] = [None, None]
        self.away: set[str] = set()

    def wait(self, seconds: float, every: float = 1.0) -> None:
        for _ in range(round(seconds / every)):
            self.time += every
            for partition in (0, 1):
                stable = self.stable[partition]
                self.row(
                    "observer",
                    "offsets",
                    partition=partition,
                    log_start=self.start_offset[partition],
                    log_end=self.end[partition],
                    last_stable=self.end[partition] if stable is None else stable,
                )
            for partition in (0, 1):
                now = self.at(self.time)
                known = [name for name in self.processes if name not in self.away]
                marks = [Mark(number(p), self._slices[number(p), partition], now) for p in known]
                self.row("committer", "mark", partition=partition, marks=marks, invoked=now, completed=now)

    def transaction(
        self,
        runs: dict[int, tuple[int, int, int | None]],
        type: str = "ok",
        *,
        process: str = "t",
        op: int = 0,
        txn: int = 7,
        ended: float | None = 5.0,
        name: str = "x",
        **more: Any,
    ) -> None:
        """Its runs (seq, length, offset) by partition, in one operation of one writer."""
        touched = [("topic", partition) for partition in runs]
        self.time += 0.001
        times = {"invoked": self.at(self.time), "completed": self.at(self.time + 0.1)}
        for partition, (seq, length, offset) in runs.items():
            self.row(
                process,
                "txn",
                partition=partition,
                op=op,
                type=type,
                txn=txn,
                txn_partitions=touched,
                sent=[Run(W, seq, offset, length)],
                txn_intent="commit",
                transactional_id=name,
                mono_end_invoked=None if ended is None else int(ended * NS),
                **times,
                **more,
            )
            if offset is not None:
                self.end[partition] = max(self.end[partition], offset + length + 1)
        self.time += 0.1

    def read(self, partition: int, *runs: tuple[str, int, int, int], reader: str = "r") -> None:
        """(writer, seq, length, offset), in one poll."""
        self.end[partition] = max([self.end[partition], *(o + n for _, _, n, o in runs)])
        self.poll(reader, runs, partition=partition, position_before=runs[0][3])

    def filled(self, partition: int, seq: int, offset: int) -> None:
        """A record of another writer, sent and polled."""
        self.send("v", seq, 1, at=offset, partition=partition)
        self.read(partition, ("v", seq, 1, offset))


# torn-transaction: a value of transaction 7 is polled in partition 0, and another is absent from partition 1


def decided_by_the_next(h: Log) -> None:
    """The next transaction of the same transactional id, polled in both partitions."""
    h.transaction({0: (4, 1, 10), 1: (4, 1, 10)}, op=1, txn=8)
    h.read(0, ("w", 4, 1, 10))


def torn(h: Log, kind: str) -> None:
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)}, kind)
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 4, 1, 10))
    h.wait(30)


def committed_and_torn(h: Log) -> None:
    torn(h, "ok")


def aborted_and_torn(h: Log) -> None:
    torn(h, "fail")


def indefinite_and_torn(h: Log) -> None:
    torn(h, "info")


def torn_while_another_writer_is_never_heard_of_again(h: Log) -> None:
    """It reads nothing: what became of it does not matter."""
    h.send("u", 0, at=0)
    h.away.add("u")
    torn(h, "ok")


def committed_and_whole(h: Log) -> None:
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 0, 4, 5), ("w", 4, 1, 10))
    h.wait(30)


def aborted_and_unseen(h: Log) -> None:
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)}, "fail")
    decided_by_the_next(h)
    h.read(1, ("w", 4, 1, 10))
    h.wait(30)


def committed_and_lost(h: Log) -> None:
    """All of it: a loss, and not torn."""
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    decided_by_the_next(h)
    h.read(1, ("w", 4, 1, 10))
    h.wait(30)


def cut_in_two(h: Log, missing: bool) -> None:
    """Readers stand in the midst of the run for so long that its first half is settled."""
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 0, 2, 5))
    h.wait(25)
    h.read(1, *([] if missing else [("w", 2, 2, 7)]), ("w", 4, 1, 10))
    h.wait(30)


def torn_where_the_frontier_cut_it(h: Log) -> None:
    cut_in_two(h, missing=True)


def whole_where_the_frontier_cut_it(h: Log) -> None:
    cut_in_two(h, missing=False)


def first_half_torn_before_the_frontier_cut_it(h: Log) -> None:
    """The part that readers went over is absent, and the other part is polled much later."""
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 2, 1, 7))
    h.wait(25)
    h.read(1, ("w", 3, 1, 8), ("w", 4, 1, 10))
    h.wait(30)


def with_a_late_log(h: Log, polled: bool) -> None:
    """Another reader's log is missing for a minute, and then comes: it may have polled what is missing."""
    h.assign("q", partition=1)
    h.wait(2)
    h.away.add("q")
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 4, 1, 10))
    h.read(1, *([("w", 0, 4, 5)] if polled else []), ("w", 4, 1, 10), reader="q")
    h.wait(60)
    h.away.clear()
    h.wait(15)


def torn_once_the_late_log_is_here(h: Log) -> None:
    with_a_late_log(h, polled=False)


def whole_as_the_late_log_tells(h: Log) -> None:
    with_a_late_log(h, polled=True)


def below_the_log_start(h: Log) -> None:
    """Retention took what is missing before the reader came."""
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.start_offset[1] = 9
    h.wait(1)
    h.read(1, ("w", 4, 1, 10))
    h.wait(30)


def taken_by_retention_after_it_was_passed(h: Log) -> None:
    h.transaction({0: (0, 4, 5), 1: (0, 4, 5)})
    h.read(0, ("w", 0, 4, 5))
    decided_by_the_next(h)
    h.read(1, ("w", 4, 1, 10))
    h.wait(2)
    h.start_offset[1] = 9
    h.wait(30)


def is_torn(at: float, outcome: str = "ok", seq: int = 0, told: str = "committed") -> Told:
    seen, absent = (
        {"topic": "topic", "partition": partition, "writer": W, "seq": s, "offset": 5 + s}
        for partition, s in ((0, 0), (1, seq))
    )
    following = {
        "next_txn": 8,
        "next_process": T,
        "next_op": 1,
        "next_told": "committed",
        "next_offset": 10,
        "offsets_between": 1,
    }
    return Told(
        "torn-transaction",
        (7,),
        f"of transaction 7 ({outcome}), value {W}/0 was polled in partition 0 of topic, and value {W}/{seq} is absent"
        f" from offset {5 + seq} of partition 1 of topic, which a reader passed",
        {"txn": 7, "outcome": outcome, "seen": seen, "absent": absent, "transactional_id": "x", **following},
        at,
    )


TORN_CASES: list[tuple[Callable[[Log], None], list[Told]]] = [
    (committed_and_torn, [is_torn(11)]),
    (torn_while_another_writer_is_never_heard_of_again, [is_torn(11)]),
    (aborted_and_torn, [is_torn(11, "fail")]),
    (indefinite_and_torn, [is_torn(11, "info")]),
    (committed_and_whole, []),
    (aborted_and_unseen, []),
    (committed_and_lost, []),
    (torn_where_the_frontier_cut_it, [is_torn(36, seq=2)]),
    (whole_where_the_frontier_cut_it, []),
    (first_half_torn_before_the_frontier_cut_it, [is_torn(11)]),
    (torn_once_the_late_log_is_here, [is_torn(13)]),
    (whole_as_the_late_log_tells, []),
    (below_the_log_start, []),
    (taken_by_retention_after_it_was_passed, [is_torn(11)]),
]


@pytest.mark.slow
@fed_in_any_way
@pytest.mark.parametrize(("build", "expected"), TORN_CASES, ids=[c[0].__name__ for c in TORN_CASES])
def test_torn(build: Callable[[Log], None], expected: list[Told], fed: Callable[[History], Store]) -> None:
    h = Log()
    h.filled(1, 0, 4)
    build(h)
    assert whole(fed(h), TORN) == expected


# zombie-write: transaction 7 of process t, which lived in boot b and died


def begun(h: Log, process: str = "t", at: float = 1.0) -> None:
    """init_transactions of the id, told to all partitions."""
    mono = int(at * NS)
    for partition in (0, 1):
        h.row(
            process,
            "init",
            partition=partition,
            op=0,
            transactional_id="x",
            boot="b",
            mono_invoked=mono - 1000,
            mono_completed=mono,
        )


def died(h: Log, offset: int | None, ended: float | None = None, *, op: int = 1, txn: int = 7, **more: Any) -> None:
    """A transaction of one value in partition 0, left open by a crash, or in its commit."""
    h.transaction(
        {0: (op, 1, offset)},
        "info",
        op=op,
        txn=txn,
        ended=ended,
        error="process-died",
        boot="b",
        mono_invoked=2 * NS,
        mono_completed=3 * NS,
        **more,
    )


def without_an_offset(h: Log, shown: bool, ended: float | None = None) -> None:
    """Nothing was acknowledged; half a minute after the crash it is there."""
    begun(h)
    died(h, None, ended)
    h.wait(30)
    if shown:
        h.read(0, ("w", 1, 1, 5))
    h.filled(0, 0, 7)
    h.wait(30)


def visible_without_an_offset(h: Log) -> None:
    without_an_offset(h, shown=True)


def aborted_without_an_offset(h: Log) -> None:
    without_an_offset(h, shown=False)


def committed_without_an_offset(h: Log) -> None:
    """The same, and its commit was invoked: it may have reached the broker."""
    without_an_offset(h, shown=True, ended=2.5)


def behind_the_last_stable_offset(h: Log, shown: bool) -> None:
    """Acknowledged; the last stable offset stands before it for 400 s."""
    begun(h)
    died(h, 5)
    h.stable[0] = 5
    h.wait(400, every=10)
    h.stable[0] = None
    if shown:
        h.read(0, ("w", 1, 1, 5))
    h.filled(0, 0, 7)
    h.wait(30)


def visible_after_400_seconds(h: Log) -> None:
    behind_the_last_stable_offset(h, shown=True)


def aborted_after_400_seconds(h: Log) -> None:
    behind_the_last_stable_offset(h, shown=False)


def passed_and_visible_after_all(h: Log) -> None:
    """Readers went over it as over a hole; another one reads it minutes later."""
    begun(h)
    died(h, 5)
    h.filled(0, 0, 4)
    h.filled(0, 1, 7)
    h.wait(200, every=5)
    h.assign("audit")
    h.read(0, ("v", 0, 1, 4), ("w", 1, 1, 5), ("v", 1, 1, 7), reader="audit")
    h.wait(30)


def one_of_too_many(h: Log, shown: bool) -> None:
    """Of a hundred crashes more wait than are kept in the state; the first one's transaction is visible at last."""
    begun(h)
    for i in range(100):
        died(h, None, op=1 + i, txn=7 + i)
    h.wait(30)
    if shown:
        h.read(0, ("w", 1, 1, 5))
    h.filled(0, 0, 7)
    h.wait(10)


def first_of_too_many_visible(h: Log) -> None:
    one_of_too_many(h, shown=True)


def none_of_too_many_visible(h: Log) -> None:
    one_of_too_many(h, shown=False)


def taken_over(h: Log, ended: float) -> None:
    """Another process took the id over at 5 s of the boot's clock; the commit returned without an error."""
    begun(h)
    begun(h, "u", 5.0)
    h.transaction({0: (1, 1, 5)}, op=1, ended=ended, boot="b", mono_invoked=2 * NS, mono_completed=9 * NS)
    h.read(0, ("w", 1, 1, 5))
    h.wait(15)


def committed_after_it_was_taken_over(h: Log) -> None:
    taken_over(h, ended=6.5)


def committed_before_it_was_taken_over(h: Log) -> None:
    taken_over(h, ended=4.5)


def went_down_with_its_host(h: Log, lost: bool, away: float = 5) -> None:
    """It had begun a transaction, and its host lost power; recovery found that in the journal, which may have lost its
    end (`lost`). It is visible: its commit had been invoked, or somebody else ended it."""
    begun(h)
    h.wait(3)
    h.away.add("t")
    h.transaction({0: (1, 1, 5)}, "info", op=1, ended=None, boot="b", mono_invoked=2 * NS, mono_completed=5 * NS)
    h.rows[-1].completed = h.at(h.time + 3)
    h.read(0, ("w", 1, 1, 5))
    h.wait(away, every=1 if away < 60 else 10)
    now = h.at(h.time)
    for partition in (0, 1):
        over = Mark(T, h._slices[T, partition], h.at(3.0) if lost else now, now, lost=lost)
        h.row("committer", "mark", partition=partition, marks=[over], invoked=now, completed=now)
    h.processes.remove("t")
    h.wait(40)


def whose_journal_lost_its_end(h: Log) -> None:
    went_down_with_its_host(h, lost=True)


def of_whose_lost_journal_nobody_tells_for_twenty_minutes(h: Log) -> None:
    went_down_with_its_host(h, lost=True, away=1200)


def whose_journal_is_whole(h: Log) -> None:
    went_down_with_its_host(h, lost=False)


def is_zombie(at: float, why: str = "its commit was never invoked", **more: Any) -> Told:
    evidence = {"process": T, "op": 1, "txn": 7, "transactional_id": "x", "writer": W, "seq": 1} | more
    return Told("zombie-write", (T, 1), f"transaction 7 of process {T} is visible, and {why}", evidence, at)


LATER = f"its commit was invoked after process {number('u')} had taken the id over"
ZOMBIE_CASES: list[tuple[Callable[[Log], None], list[Told]]] = [
    (visible_without_an_offset, [is_zombie(30.353)]),
    (aborted_without_an_offset, []),
    (committed_without_an_offset, []),
    (visible_after_400_seconds, [is_zombie(400.433)]),
    (aborted_after_400_seconds, []),
    (passed_and_visible_after_all, [is_zombie(200.443)]),
    (first_of_too_many_visible, [is_zombie(40.55)]),
    (none_of_too_many_visible, []),
    (committed_after_it_was_taken_over, [is_zombie(0.117, LATER, later_process=number("u"), late_by_s=1.5)]),
    (committed_before_it_was_taken_over, []),
    (whose_journal_lost_its_end, []),
    (of_whose_lost_journal_nobody_tells_for_twenty_minutes, []),
    (whose_journal_is_whole, [is_zombie(6.135)]),
]


@fed_in_any_way
@pytest.mark.parametrize(("build", "expected"), ZOMBIE_CASES, ids=[c[0].__name__ for c in ZOMBIE_CASES])
def test_zombies(build: Callable[[Log], None], expected: list[Told], fed: Callable[[History], Store]) -> None:
    h = Log()
    build(h)
    assert whole(fed(h), ("zombie-write",)) == expected


# Any split: random transactions over two partitions, some of them torn, left open, aborted and shown, or taken over


def random_log(seed: int) -> Log:
    """Every reader reads on at once, so that nothing is polled after it could be called absent."""
    dice, h = random.Random(seed), Log()
    end, seq, living = [0, 0], [0, 0], "t0"
    begun(h, living, 1.0)
    for i in range(60):
        kind = dice.choice(("ok", "ok", "ok", "fail", "info", "info"))
        runs: dict[int, tuple[int, int, int | None]] = {}
        for partition in (0, 1):
            length = dice.randint(1, 4)
            known = kind != "info" or dice.random() < 0.6
            runs[partition] = (seq[partition], length, end[partition] if known else None)
        ended = None if kind == "info" and dice.random() < 0.5 else 2.0 + i
        op = i + 1
        h.transaction(
            runs,
            kind,
            process=living,
            op=op,
            txn=100 + i,
            ended=ended,
            boot="b",
            mono_invoked=(i + 1) * NS,
            mono_completed=(i + 2) * NS,
        )
        visible = {"ok": 0.9, "fail": 0.1, "info": 0.4}[kind]
        for partition, (first, length, _) in runs.items():
            at = end[partition]
            if dice.random() < visible:
                shown = dice.randint(1, length) if dice.random() < 0.2 else length
                h.read(partition, ("w", first, shown, at))
            end[partition] = at + length + 1
            seq[partition] = first + length
            h.filled(partition, i, end[partition])
            end[partition] += 1
        if kind == "info" and dice.random() < 0.5:
            living = f"t{i + 1}"
            begun(h, living, 2.5 + i)
        h.wait(dice.choice((0, 1, 1, 3)))
    h.wait(40)
    return h


def _alone(one: Told) -> Told:
    """Without what it tells of the transaction behind, which nobody waits for: as much as has come."""
    evidence = {
        name: value
        for name, value in one.evidence.items()
        if not name.startswith("next_") and name != "offsets_between"
    }
    return one._replace(evidence=evidence, message=one.message.partition(", no marker stands")[0])


@pytest.mark.slow
def test_any_split_finds_the_same() -> None:
    names = ("torn-transaction", "zombie-write")
    told = {way: [_alone(one) for one in whole(fed(random_log(0)), names)] for way, fed in WAYS.items()}
    late = told.pop("interleaved")
    for way, found in told.items():
        assert found == told["row by row"], way
    # Of several that are seen or absent, it tells those that it knew of.
    assert {one.subject for one in late} == {one.subject for one in told["row by row"]}
    assert told["row by row"], "some are guilty"
