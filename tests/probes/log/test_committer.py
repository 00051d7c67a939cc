"""A committer in front of a real Delta table: what it appends, marks, keeps and deletes."""

import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

import probes.log.commits.history
import probes.log.commits.lives
from probes.clock import Clock, SystemClock
from probes.log.commits.append_plan import load as planned
from probes.log.commits.committer import CommitPace, committer
from probes.log.commits.recovery import Recovered, recover_life
from probes.log.errors import FolderTaken
from probes.log.journals.segments import life_folders
from rules.vocabulary.times import from_micros, micros
from tests.known import known
from tests.probes.log.lives import (
    BEGIN,
    TOPIC_ID,
    Prober,
    StillClock,
    check_marks,
    check_slices,
    closes,
    ends_of,
    logged,
    marks_of,
    table_rows,
    wait_for,
)
from tests.probes.log.test_clock import Host


def test_nothing_is_appended_before_a_partition_is_known(folder: Path, history: Path, clock: StillClock) -> None:
    with committer(folder, history, clock) as one:
        assert one.commit() == 0
        Prober.start(folder, 1, clock)
        assert one.commit() == 4
    assert DeltaTable(str(history)).version() == 1


@pytest.mark.parametrize("boot", ["boot", "the next one"])
def test_who_goes_on_after_the_hosts_clock_was_set_back_goes_on_with_the_clock_before(
    folder: Path, history: Path, clock: StillClock, boot: str
) -> None:
    """Marks are read by how far the wall clock is from the monotonic one: within a boot that never changes."""
    host = Host()
    Prober.start(folder, 1, clock)
    with committer(folder, history, host.clock()) as one:
        one.commit()
        host.pass_(3)
        one.commit()
    host.pass_(5, wall=-60)
    with committer(folder, history, SystemClock(lambda: host.wall, lambda: host.mono, boot)) as one:
        for _ in range(3):
            one.commit()
            host.pass_(2)
    marks = [row for row in table_rows(history) if row["f"] == "mark" and row["partition"] == 0]
    apart = {(row["boot"], micros(row["completed"]) - row["mono_completed"] // 1000) for row in marks}
    assert len(marks) == 5 and len(apart) == len({row["boot"] for row in marks})
    told = [row["completed"] for row in sorted(marks, key=lambda row: row["slice"])]
    assert told == sorted(told)
    assert told[2] - told[1] == timedelta(seconds=5 if boot == "boot" else 0), (
        "of another boot nobody knows how long ago"
    )


class SetClock(StillClock):
    """Its wall clock is `ahead` of the monotonic one."""

    ahead = timedelta()

    def now(self) -> datetime:
        return self.time + self.ahead


def test_marks_tell_of_what_was_before_the_clock_was_set_ahead_by_the_clock_as_it_is_now(
    folder: Path, history: Path
) -> None:
    """Readers take all times of a mark to log time by the one pair of clocks that its row has."""
    clock = SetClock()
    asleep, at_work = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        clock.tick()
        at_work.invoke(0, 1)
        asleep.alive()
        clock.tick()
        clock.ahead = timedelta(seconds=90)
        for _ in range(2):
            one.commit()
            clock.tick()
        asleep.alive()
        one.commit()
        rows = table_rows(history)
    ages = []
    for mark in sorted((r for r in rows if r["f"] == "mark" and r["partition"] == 0), key=lambda r: r["slice"])[1:]:
        told = {one["process"]: (mark["completed"] - one["through"]).total_seconds() for one in mark["marks"]}
        ages.append((told[1], told[2]))
    assert ages == [pytest.approx(one) for one in [(0.1, 0.2), (0.2, 0.3), (0.0, 0.4)]]


@pytest.mark.parametrize("reading", range(1, 7))
def test_a_thread_that_is_kept_waiting_as_it_reads_the_clocks_promises_no_more(
    folder: Path, history: Path, reading: int
) -> None:
    """Seen on a busy machine: a mark promised 0.4 s more than the journals, and a close row came after it."""
    host = Host()
    clock = StillClock(from_micros(host.wall // 1000), "boot")
    Prober.start(folder, 1, clock).alive()
    with committer(folder, history, host.clock()) as one:
        host.keep_waiting({reading: 0.4})
        for _ in range(3):
            host.pass_(1)
            one.commit()
    marks = [row for row in table_rows(history) if row["f"] == "mark" and row["partition"] == 0]
    assert len(marks) == 3
    told = {micros(one["through"]) for row in marks for one in row["marks"]}
    assert told == {micros(clock.time)}
    assert len({micros(row["completed"]) - row["mono_completed"] // 1000 for row in marks}) == 1


def test_rows_arrive_with_marks_that_say_how_far(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        prober.send(0)
        invoked = clock.tick()
        op = prober.invoke(0, 1)
        clock.tick()
        prober.alive()
        now = clock.tick()
        one.commit()
        prober.complete(op)
        prober.alive()
        one.commit()
        rows = table_rows(history)
    assert logged(rows, 1) == prober.must_be_logged()
    assert marks_of(rows, 1, 0) == {1: (2, invoked)} and marks_of(rows, 1, 1) == {1: (1, invoked)}
    assert marks_of(rows, 2, 0) == {1: (3, now)}
    (mark,) = [r for r in rows if r["f"] == "mark" and r["op"] == 1 and r["partition"] == 0]
    assert (mark["invoked"], mark["completed"], mark["type"], mark["kind"]) == (now, now, "ok", "committer")
    assert (mark["topic_id"], mark["topic"], mark["cluster"]) == (TOPIC_ID, "probe", "c")
    assert mark["process"] != 1 and mark["slice"] == 0
    check_slices(rows)


def test_nobody_vouches_for_a_life_that_does_not_say_for_long_that_it_lives(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """It is frozen in the middle of an operation; the other one waits for an answer."""
    frozen, waits, over = (Prober.start(folder, process, clock) for process in (1, 2, 3))
    for prober in (frozen, waits):
        prober.invoke(0)
    over.close()
    with committer(folder, history, clock) as one:

        def turn(*alive: Prober) -> list[int]:
            clock.tick(1.0)
            for prober in alive:
                prober.alive()
            one.commit()
            rows = table_rows(history)
            return sorted(marks_of(rows, max(row["op"] for row in rows if row["f"] == "mark"), 0))

        assert turn(frozen, waits) == [1, 2, 3]
        assert [turn(waits) for _ in range(6)] == [[1, 2]] * 4 + [[2]] * 2
        assert turn(frozen, waits) == [1, 2]
        clock.tick(60.0)
        assert turn() == [1, 2], "this committer was frozen itself"


def test_a_life_that_begins_while_the_dead_are_finished_is_in_what_is_promised_then(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk, many that have crashed: what rests on "nobody did it" was told of what the next lives did."""
    Prober.start(folder, 1, clock).kill()
    late: list[Prober] = []

    def slowly(life: Path, with_clock: Clock) -> Recovered | None:
        clock.tick(20)
        late.append(Prober.start(folder, 2, clock))
        late[0].send(0)
        clock.tick(20)
        return recover_life(life, with_clock)

    monkeypatch.setattr(probes.log.commits.lives, "recover_life", slowly)
    with committer(folder, history, clock) as one:
        one.commit()
    rows = table_rows(history)
    assert logged(rows, 2) == late[0].must_be_logged()
    assert marks_of(rows, 1)[2][0] == 2


def test_the_heartbeat_goes_on_without_rows_and_without_probes(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        prober.close()
        for _ in range(4):
            clock.tick(50)
            assert one.commit() >= 2
    with committer(folder, history, clock) as one:
        assert one.commit() == 2
    rows = table_rows(history)
    assert sorted(r["slice"] for r in rows if r["f"] == "mark" and r["partition"] == 0) == list(range(6))
    assert marks_of(rows, 6) == {}


def test_a_closed_life_is_said_to_be_over_once_and_then_its_journal_goes(
    folder: Path, history: Path, clock: StillClock
) -> None:
    staying, closing = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    pace = CommitPace(keep=timedelta(minutes=2))
    with committer(folder, history, clock, pace) as one:
        one.commit()
        clock.tick()
        closing.close()
        one.commit()
        rows = table_rows(history)
        assert marks_of(rows, 2)[2] == (2, clock.now()) and closes(rows, 2) == {0: ["ok"], 1: ["ok"]}
        assert ends_of(rows, 2) == {2: (clock.now() + timedelta(microseconds=1), False)} and ends_of(rows, 1) == {}
        for seconds in (30, 29, 2, 58):
            clock.tick(seconds)
            staying.alive()
            one.commit()
        rows = table_rows(history)
        assert [2 in marks_of(rows, version) for version in range(1, 7)] == [True, True, False, False, False, False]
        assert {path.name for path in life_folders(folder)} == {
            staying.journal.folder.name,
            closing.journal.folder.name,
        }
        clock.tick(30)
        one.commit()
        assert {path.name for path in life_folders(folder)} == {staying.journal.folder.name}
        one.commit()
        assert list(known(planned(folder)).parts) == [staying.journal.folder.name]
        assert list((folder / "lives").iterdir()) == [staying.journal.folder]


def test_a_life_that_was_over_long_before_the_committer_came_is_in_the_table_all_the_same(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    prober.close()
    clock.tick(3600)
    with committer(folder, history, clock) as one:
        assert one.commit() == 2 + 2 + 2
    rows = table_rows(history)
    assert logged(rows, 1) == prober.must_be_logged() and marks_of(rows, 1) == {1: (2, clock.now())}
    assert ends_of(rows, 1) == {1: (BEGIN + timedelta(microseconds=1), False)}


def test_a_dead_life_is_finished_and_its_marks_then_go_on(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        invoked = clock.tick()
        prober.invoke(0)
        one.commit()
        clock.tick()
        prober.alive()
        one.commit()
        prober.kill()
        died = clock.tick()
        one.commit()
        rows = table_rows(history)
    assert [marks_of(rows, version)[1] for version in (1, 2, 3)] == [(1, BEGIN), (1, invoked), (3, died)]
    assert logged(rows, 1) == prober.must_be_logged() and closes(rows, 1) == {0: ["info"], 1: ["info"]}
    check_slices(rows)
    check_marks(history)


def test_marks_only_where_a_process_has_rows(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock, partitions=1)
    Prober.start(folder, 2, clock, partitions=2)
    with committer(folder, history, clock) as one:
        one.commit()
    rows = table_rows(history)
    assert (set(marks_of(rows, 1, 0)), set(marks_of(rows, 1, 1))) == ({1, 2}, {2})


def test_a_partition_in_which_nobody_lives_any_more_is_marked_for_another_minute(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """As of a topic that was deleted: what happened last there is decided by the time that passes after it."""
    last, _ = Prober.start(folder, 1, clock, partitions=2), Prober.start(folder, 2, clock, partitions=1)
    last.close()
    marked: list[list[int]] = []
    for seconds in (0, 30, 29, 2, 5):
        clock.tick(seconds)
        with committer(folder, history, clock) as one:  # which begins where the last one ended
            one.commit()
        version = len(marked) + 1
        marked.append([r["partition"] for r in table_rows(history) if r["f"] == "mark" and r["op"] == version])
    assert [sorted(partitions) for partitions in marked] == [[0, 1], [0, 1], [0, 1], [0], [0]]


def test_a_second_committer_of_the_folder_is_refused(folder: Path, history: Path, clock: StillClock) -> None:
    with committer(folder, history, clock), pytest.raises(FolderTaken, match="another committer is at work on"):
        committer(folder, history, clock).__enter__()
    with committer(folder, history, clock):
        pass


def test_run_keeps_its_pace(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return super().wait(timeout)

    stop = Stop()
    with committer(folder, history, clock, CommitPace(every=0.2)) as one:
        running = threading.Thread(target=one.run, args=(stop,))
        began = time.monotonic()
        running.start()
        wait_for(lambda: one.status().version >= 6)
        took = time.monotonic() - began
        stop.set()
        running.join()
    assert took > 4 * 0.2, "no more often"
    assert max(waits) <= 0.2, "and as often, whatever else the machine does"


def test_the_clock_of_the_log_never_goes_back(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        clock.tick(-100)
        one.commit()
    assert {micros(r["completed"]) for r in table_rows(history) if r["f"] == "mark"} == {micros(BEGIN)}
