"""A journal that lost its end in the same boot of its host: it is known, nothing is invented by it, and what others
prove is found all the same. Real journals, the real recovery and committer, a real table, the real rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from probes.log.commits.append_plan import load
from probes.log.commits.committer import committer
from probes.log.journals.frames import frames
from probes.log.journals.journal import Journal, Life
from probes.log.journals.segments import life_folders, process_of, segments
from probes.log.journals.written import WRITTEN, forget
from probes.log.life_log import LifeLog
from probes.topology import Layout, Topic
from rules.vocabulary.slices import SLICE_SCHEMA, Run
from tests.known import known
from tests.probes.log.lives import StillClock, appends, check_slices, table_rows
from tests.rules.histories import Store, found

WHERE = ("records", 0)
LAYOUT = Layout("c", (Topic("records", "t", 1),))
WRITER, READER, OBSERVER, TRANSACTOR, NEXT = 1, 2, 3, 4, 100


class Canary:
    """A writer, one that works in transactions, a reader and an observer on one partition, in front of a log that
    behaves; each step is 50 ms of them all, or `slowness` times that. `log` holds (writer, seq) by offset."""

    def __init__(self, folder: Path, clock: StillClock, lives: int = 0) -> None:
        self.folder, self.clock = folder, clock
        self.log: list[tuple[int, int]] = []
        self.at = 0
        self.hidden: set[int] = set()
        self.slowness = 1
        self.start(lives)

    def start(self, lives: int) -> None:
        kinds = {WRITER: "writer", READER: "reader", OBSERVER: "observer", TRANSACTOR: "transactions"}
        self.lives = {process: self._life(process + lives, kind) for process, kind in kinds.items()}
        self.sent = dict.fromkeys((WRITER, TRANSACTOR), 0)
        for process, one in self.lives.items():
            how: dict[str, Any] = {"mode": "assign", "isolation": "read_committed"} if process == READER else {}
            one.append(one.everywhere("start", "ok", one.now(), kind=kinds[process], settings=one.life.settings, **how))
            if process in self.sent:
                one.reserve(WHERE, 1)
        reader = self.lives[READER]
        reader.append(
            reader.everywhere(
                "assign",
                "ok",
                reader.now(),
                mode="assign",
                isolation="read_committed",
                assigned=True,
            )
        )

    def _life(self, process: int, kind: str) -> LifeLog:
        writes = kind in ("writer", "transactions")
        life = Life(
            cluster="c",
            run="run",
            process=process,
            kind=kind,
            writer=process * 10 if writes else None,
            transactional_id=f"tx-{process}" if kind == "transactions" else None,
            boot=self.clock.boot,
            settings={"writer": str(process * 10)} if writes else {"kind": kind},
        )
        return LifeLog(Journal.create(self.folder, life), life, LAYOUT, self.clock)

    def _tick(self, seconds: float) -> None:
        self.clock.tick(seconds * self.slowness)

    def step(self) -> None:
        self.write()
        self.transact()
        self.poll()
        self.observe()
        for one in self.lives.values():
            one.alive()

    def _value(self, process: int) -> tuple[LifeLog, int, Run, Run]:
        one, seq = self.lives[process], self.sent[process]
        self.sent[process] += 1
        writer = one.life.writer
        assert writer is not None
        self.log.append((writer, seq))
        return one, one.next_op(), Run(writer, seq, None, 1), Run(writer, seq, len(self.log) - 1, 1)

    def write(self) -> None:
        one, op, run, stands = self._value(WRITER)
        invoked = one.now()
        one.opened(op, [one.row(WHERE, "send", "info", op, invoked, sent=(run,))])
        self._tick(0.01)
        one.append([one.row(WHERE, "send", "ok", op, invoked, one.now(), sent=(stands,))])

    def transact(self) -> None:
        one, op, run, stands = self._value(TRANSACTOR)
        invoked = one.now()
        more: dict[str, Any] = {"txn": op + 1000 * one.life.process, "isolation": "read_committed"}
        one.opened(op, [one.row(WHERE, "txn", "info", op, invoked, sent=(run,), **more)])
        self._tick(0.01)
        one.append([one.row(WHERE, "txn", "ok", op, invoked, one.now(), sent=(stands,), **more)])

    def poll(self) -> None:
        one, before = self.lives[READER], self.at
        invoked = one.now()
        self._tick(0.02)
        self.at = len(self.log)
        one.append(
            [
                one.row(
                    WHERE,
                    "poll",
                    "ok",
                    one.next_op(),
                    invoked,
                    one.now(),
                    polled=[Run(*self.log[i], i, 1) for i in range(before, self.at) if i not in self.hidden],
                    position_before=before,
                    position_after=self.at,
                    mode="assign",
                    isolation="read_committed",
                )
            ]
        )

    def observe(self) -> None:
        one = self.lives[OBSERVER]
        invoked, end = one.now(), len(self.log)
        self._tick(0.01)
        one.append(
            [
                one.row(
                    WHERE, "offsets", "ok", one.next_op(), invoked, one.now(), log_start=0, log_end=end, last_stable=end
                )
            ]
        )

    def run(self, history: Path, seconds: int, every: int = 1) -> None:
        """All go on, with a committer that appends whenever `every` seconds have passed."""
        a_second = 20 // self.slowness
        with committer(self.folder, history, self.clock) as one:
            for step in range(1, seconds * a_second + 1):
                self.step()
                if step % (every * a_second) == 0:
                    one.commit()

    def go_on(self, history: Path) -> None:
        """Its next lives begin, and go on for a minute, as it becomes quieter."""
        self.start(NEXT)
        self.run(history, 10)
        self.slowness = 5
        self.run(history, 50, every=3)

    def kill(self) -> None:
        for one in self.lives.values():
            one.let_go()


def journal_of(folder: Path, process: int) -> Path:
    (life,) = [one for one in life_folders(folder) if process_of(one.name) == process]
    return segments(life)[-1][1]


def cut(path: Path, ends: Callable[[list[int], int], int]) -> int:
    """Cut the journal where `ends`, given the ends of its frames and its size, says; returns the bytes that went."""
    data = path.read_bytes()
    at = ends([one.end for one in frames(data)[0]], len(data))
    path.write_bytes(data[:at])
    return len(data) - at


def told_of(history: Path) -> Store:
    commits = appends(history)
    check_slices([row for rows in commits for row in rows])
    store = Store()
    for rows in commits:
        brought = [row | {"date": row["completed"].date()} for row in rows]
        store.feed(pa.Table.from_pylist(brought, schema=SLICE_SCHEMA))
    return store


def after_a_kill(
    folder: Path,
    history: Path,
    clock: StillClock,
    process: int,
    ends: Callable[[list[int], int], int],
    hidden: Sequence[int] = (),
    forgets: Literal["nothing", "the disk", "all"] = "nothing",
) -> Canary:
    """Everything is killed 0.8 s after the last append, one journal is cut, and the next lives go on for a minute.
    `forgets`: who does not tell how far it had been written."""
    canary = Canary(folder, clock)
    canary.hidden |= set(hidden)
    canary.run(history, 10)
    for _ in range(16):
        canary.step()
    canary.kill()
    path = journal_of(folder, process)
    cut(path, ends)
    if forgets != "nothing":
        (path.parent / WRITTEN).unlink()
    if forgets == "all":
        forget(path.parent)
    clock.tick(3)
    # Whose rows are here reads on where it was.
    canary.go_on(history)
    return canary


def inside(frames_lost: int) -> Callable[[list[int], int], int]:
    """So many whole frames are gone, and a part of the one before."""
    return lambda ends, size: ends[-1 - frames_lost] - 5


def between(frames_lost: int) -> Callable[[list[int], int], int]:
    return lambda ends, size: ends[-1 - frames_lost]


LOST = {"torn": inside(12), "at a frame's end": between(12), "the last one": between(1), "its last bytes": inside(0)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("process", "ends"),
    [
        *(pytest.param(who, ends, id=f"{name}-{who}") for who in (WRITER, READER) for name, ends in LOST.items()),
        *(
            pytest.param(who, LOST[name], id=f"{name}-{who}")
            for who in (TRANSACTOR, OBSERVER)
            for name in list(LOST)[::2]
        ),
    ],
)
def test_what_a_journal_lost_is_neither_invented_nor_vouched_for(
    folder: Path, history: Path, clock: StillClock, process: int, ends: Callable[[list[int], int], int]
) -> None:
    after_a_kill(folder, history, clock, process, ends)
    rows = table_rows(history)
    marks = [mark for row in rows for mark in row["marks"] or () if mark["process"] == process]
    assert [mark["lost"] for mark in marks if mark["ended"] is not None] == [True]
    assert not [row for row in rows if row["process"] == process and row["f"] == "close"]
    assert found(told_of(history).findings) == set()


@pytest.mark.parametrize("process", [WRITER, READER])
def test_a_torn_end_of_which_nobody_tells_is_a_loss(
    folder: Path, history: Path, clock: StillClock, process: int
) -> None:
    """An earlier version did not tell how far it had written, and a bad disk may have taken that, too."""
    after_a_kill(folder, history, clock, process, inside(12), forgets="all")
    marks = [mark for row in table_rows(history) for mark in row["marks"] or () if mark["process"] == process]
    assert [mark["lost"] for mark in marks if mark["ended"] is not None] == [True]
    assert found(told_of(history).findings) == set()


@pytest.mark.parametrize("process", [WRITER, READER, TRANSACTOR])
def test_a_disk_that_was_cut_off_takes_nothing_that_the_host_does_not_know_of(
    folder: Path, history: Path, clock: StillClock, process: int
) -> None:
    """Its journals end between two rows, and what tells of it there is as old."""
    after_a_kill(folder, history, clock, process, between(12), forgets="the disk")
    marks = [mark for row in table_rows(history) for mark in row["marks"] or () if mark["process"] == process]
    assert [mark["lost"] for mark in marks if mark["ended"] is not None] == [True]
    assert found(told_of(history).findings) == set()


def test_what_others_prove_is_found_all_the_same(folder: Path, history: Path, clock: StillClock) -> None:
    """Nobody polls a value that was acknowledged before the loss, one after it, and one that another sent meanwhile."""
    hidden = [200, 427, 600]
    canary = after_a_kill(folder, history, clock, WRITER, inside(12), hidden=hidden)
    assert [canary.log[i][0] for i in hidden] == [10 * WRITER, 10 * TRANSACTOR, 10 * (WRITER + NEXT)]
    told = found(told_of(history).findings)
    assert {one for one in told if one[0] != "poll-skip"} == {("lost-write", canary.log[i]) for i in hidden}
    assert {process for name, (process, _) in told if name == "poll-skip"} <= {READER, READER + NEXT}


def test_a_write_that_the_kill_interrupted_takes_nothing_with_it(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """Half of a frame stands at the end: that a value was polled which its writer did not send is found as ever."""
    canary = Canary(folder, clock)
    canary.run(history, 10)
    canary.step()
    stranger = (10 * WRITER, canary.sent[WRITER] + 5)
    canary.log.append(stranger)
    canary.poll()
    for one in canary.lives.values():
        one.alive()
    clock.tick(0.5)
    canary.kill()
    for process in (WRITER, READER):
        path = journal_of(folder, process)
        data = path.read_bytes()
        whole = frames(data)[0]
        path.write_bytes(data + data[whole[-2].end : whole[-1].end - 5])
    clock.tick(3)
    canary.go_on(history)
    rows = table_rows(history)
    assert {row["type"] for row in rows if row["process"] in (WRITER, READER) and row["f"] == "close"} == {"info"}
    assert not [mark for row in rows for mark in row["marks"] or () if mark["lost"]]
    assert found(told_of(history).findings) == {("phantom-read", stranger)}


@pytest.mark.long
@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "the same committer"])
@pytest.mark.parametrize("process", [WRITER, READER])
def test_a_journal_that_ends_before_what_was_told_of_it_is_over_and_lost(
    folder: Path, history: Path, clock: StillClock, process: int, restarted: bool
) -> None:
    canary = Canary(folder, clock)
    canary.run(history, 10)
    canary.step()
    told = []
    with committer(folder, history, clock) as one:
        one.commit()
        canary.kill()
        path = journal_of(folder, process)
        planned = known(load(folder)).parts[path.parent.name].end
        cut(path, lambda ends, size: [end for end in ends if end < planned][-12])
        if not restarted:
            clock.tick(3)
            one.commit()
            clock.tick(1)
            one.commit()
            told.append(one.status().unverifiable)
    clock.tick(120)  # nobody else is left whose places are marked
    with committer(folder, history, clock) as one:
        one.commit()
        told.append(one.status().unverifiable)
    assert path.parent.name in told[0]
    canary.go_on(history)
    rows = table_rows(history)
    marks = [mark for row in rows for mark in row["marks"] or () if mark["process"] == process]
    last = [mark for mark in marks if mark["ended"] is not None]
    assert [(mark["lost"], mark["slices"]) for mark in last] == [(True, max(mark["slices"] for mark in marks))]
    store = told_of(history)
    assert found(store.findings) == set()
    assert not [one for one in store.findings if one.anomaly == "evidence-late"]


def test_a_journal_that_is_damaged_where_it_was_read_is_over_and_lost(
    folder: Path, history: Path, clock: StillClock
) -> None:
    canary = Canary(folder, clock)
    with committer(folder, history, clock) as one:
        for _ in range(40):
            canary.step()
        one.commit()
        canary.kill()
        path = journal_of(folder, WRITER)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
        for _ in range(3):
            clock.tick(1)
            one.commit()
    marks = [mark for row in table_rows(history) for mark in row["marks"] or () if mark["process"] == WRITER]
    assert [mark["lost"] for mark in marks if mark["ended"] is not None] == [True]
