"""A committer in front of a real Delta table: what it appends, keeps, deletes and refuses."""

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import probes.log.commits.history
import probes.log.commits.lives
from probes.clock import Clock, SystemClock
from probes.log.commits.append_plan import load as planned
from probes.log.commits.append_plan import save
from probes.log.commits.committer import CommitPace, Committer, committer
from probes.log.commits.recovery import Recovered, recover_life
from probes.log.errors import FolderTaken, HistoryUnavailable, JournalDamaged, JournalUnwritable
from probes.log.journals.journal import Journal
from probes.log.journals.segments import life_folders, segments
from rules.vocabulary.times import micros
from tests.known import known
from tests.probes.log.lives import (
    BEGIN,
    TOPIC_ID,
    Prober,
    StillClock,
    a_life,
    check_marks,
    check_slices,
    closes,
    logged,
    table_rows,
    wait_for,
)
from tests.probes.log.test_clock import Host


def marks_of(rows: list[dict[str, Any]], version: int, partition: int = 0) -> dict[int, tuple[int, Any]]:
    """{process: (slices, through)} in the mark row that version `version` brought for the partition."""
    (row,) = [r for r in rows if r["f"] == "mark" and r["op"] == version and r["partition"] == partition]
    return {mark["process"]: (mark["slices"], mark["through"]) for mark in row["marks"] or []}


def ends_of(rows: list[dict[str, Any]], version: int) -> dict[int, tuple[object, bool]]:
    """{process: (by when it was over, whether its end may be missing)} of those that are over, or broken."""
    (row,) = [r for r in rows if r["f"] == "mark" and r["op"] == version and r["partition"] == 0]
    marks = [mark for mark in row["marks"] or [] if mark["ended"] is not None or mark["lost"]]
    return {mark["process"]: (mark["ended"], mark["lost"]) for mark in marks}


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


def test_after_the_loss_of_the_host_the_process_is_never_complete(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    prober.invoke(0)
    clock.tick()
    prober.alive()
    lost = clock.now()
    prober.kill()
    clock.boot = "boot-2"
    clock.tick(20)
    with committer(folder, history, clock) as one:
        one.commit()
        clock.tick(20)
        one.commit()
        assert "its host went down" in one.status().unverifiable[prober.journal.folder.name]
        recovered = clock.now() - timedelta(seconds=20)
    rows = table_rows(history)
    # What it did between its last sign of life and the recovery may be missing, and is said to be.
    assert closes(rows, 1) == {} and 1 not in marks_of(rows, 2)
    assert marks_of(rows, 1)[1][1] <= lost and ends_of(rows, 1) == {1: (recovered, True)}


def test_a_broken_journal_is_read_up_to_there_and_promised_no_further(
    folder: Path, history: Path, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    prober, healthy = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    prober.send(0)
    good = prober.journal.offset
    for _ in range(3):
        prober.send(0)
    path = segments(prober.journal.folder)[0][1]
    data = bytearray(path.read_bytes())
    data[good + 30] ^= 1
    path.write_bytes(bytes(data))
    with committer(folder, history, clock) as one:
        one.commit()
        healthy.send(0)
        clock.tick()
        healthy.alive()
        one.commit()
        assert one.status().unverifiable == {
            prober.journal.folder.name: f"its journal is broken at byte {good}: a damaged frame with good ones after it"
        }
        rows = table_rows(history)
        assert marks_of(rows, 2)[1] == marks_of(rows, 1)[1] == (2, BEGIN)
        assert marks_of(rows, 2)[2] == (2, clock.now())
        assert ends_of(rows, 2) == {1: (None, True)}  # it lives, and nobody knows what it does
        with pytest.raises(JournalDamaged, match=f"is damaged: it is broken at byte {good}: a damaged frame"):
            prober.alive()  # it hears of it, and is to end
        assert [one.message for one in caplog.records if "broken" in one.message] == [
            f"the journal {prober.journal.folder} is broken at byte {good}: a damaged frame with good ones after it: "
            "what it holds from there on is lost"
        ]
        prober.kill()
        clock.tick(61)
        one.commit()
        assert ends_of(table_rows(history), 3)[1] == (clock.now(), True)
        clock.tick()
        one.commit()
        assert 1 not in marks_of(table_rows(history), 4) and path.exists()
    assert closes(table_rows(history), 1) == {}
    with committer(folder, history, clock) as one:
        one.commit()
    check_slices(table_rows(history))


def test_impossible_rows_of_one_process_do_not_hold_up_the_others(
    folder: Path, history: Path, clock: StillClock
) -> None:
    wrong, healthy = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    wrong.append([wrong.row(0, "poll", position_after="seven")])
    with committer(folder, history, clock) as one:
        with pytest.raises(JournalUnwritable, match="impossible rows"):
            one.commit()
        healthy.send(0)
        one.commit()
        assert "impossible rows" in one.status().unverifiable[wrong.journal.folder.name]
    rows = table_rows(history)
    assert logged(rows, 2) == healthy.must_be_logged() and {r["process"] for r in rows} & {1} == set()


def test_segments_of_the_living_go_once_they_are_in_the_table(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock, segment_bytes=2_000)
    with committer(folder, history, clock) as one:
        for _ in range(10):
            for _ in range(10):
                prober.send(0)
            one.commit()
            assert len(segments(prober.journal.folder)) == 1
    for _ in range(20):
        prober.send(1)
    with committer(folder, history, clock) as one:
        one.commit()
    prober.kill()
    with committer(folder, history, clock) as one:
        one.commit()
    rows = table_rows(history)
    assert logged(rows, 1) == prober.must_be_logged()
    check_slices(rows)


def test_a_backlog_is_appended_in_pieces_and_drained(folder: Path, history: Path, clock: StillClock) -> None:
    probers = [Prober.start(folder, n, clock) for n in (1, 2)]
    for prober in probers:
        for _ in range(1_500):
            prober.send(0)
    with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
        one.commit()
        assert one.status().backlog > 20_000
        one.drain()
        status = one.status()
    assert (status.backlog, status.lives, status.error) == (0, 2, None) and status.version >= 3
    assert status.rows == len(table_rows(history)) and status.last_commit == clock.now()
    assert logged(table_rows(history), 2) == probers[1].must_be_logged()
    check_marks(history)


def test_marks_of_a_backlog_tell_the_time_through_which_journals_were_read(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """What had completed since is still to come: log time must not go on to now."""
    busy = Prober.start(folder, 1, clock)
    for _ in range(1_200):
        busy.send(0)
    idle = Prober.start(folder, 2, clock, kind="reader")
    clock.tick(60)
    idle.alive()
    now = clock.tick()
    told = []
    for _ in range(30):
        # A new committer each time: what it told last is in its plan.
        with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
            one.commit()
            told.append(one.status().backlog)
        if not told[-1]:
            break
    rows = table_rows(history)
    marks = {r["op"]: (r["invoked"], r["completed"]) for r in rows if r["f"] == "mark" and r["partition"] == 0}
    assert len(marks) == len(told) > 3 and all(completed == now for _, completed in marks.values())
    read = [marks[version][0] for version in sorted(marks)]
    assert read == sorted(set(read)) and read[-2] < now - timedelta(seconds=60) and read[-1] == now
    check_marks(history)


@pytest.mark.parametrize("earlier", [False, True], ids=["told", "of an earlier version"])
def test_a_journal_with_a_backlog_that_appears_takes_back_nothing_that_was_told(
    folder: Path, history: Path, clock: StillClock, earlier: bool
) -> None:
    ours = Prober.start(folder, 1, clock)
    late = Prober.start(folder, 2, clock)
    for _ in range(600):
        late.send(0)
    found = late.journal.folder
    found.rename(folder / "elsewhere")
    with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
        ours.send(0)
        before = clock.now()
        one.commit()
    if earlier:  # whose plan did not say through when journals had been read
        save(folder, replace(known(planned(folder)), read=0))
    with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
        (folder / "elsewhere").rename(found)
        clock.tick(5)
        ours.send(0)
        one.commit()
        one.drain()
    marks = {r["op"]: r["invoked"] for r in table_rows(history) if r["f"] == "mark" and r["partition"] == 0}
    assert [marks[version] for version in sorted(marks)][:2] == [before, before] and marks[max(marks)] == clock.now()


def test_a_journal_that_tells_no_time_yet_sets_no_marks_back(folder: Path, history: Path, clock: StillClock) -> None:
    """The first that is read of it are leaves to use sequence numbers, and nothing else."""
    Prober.start(folder, 1, clock)
    timeless = Journal.create(folder, a_life(2))
    for used in range(1, 1_000):
        timeless.reserve(TOPIC_ID, "probe", 0, used)
    with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
        one.commit()
        assert one.status().backlog > 0
    assert {r["invoked"] for r in table_rows(history) if r["f"] == "mark"} == {clock.now()}


def test_a_backlog_in_many_segments_survives_a_restart_after_every_piece(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock, segment_bytes=900)
    for _ in range(1_800):
        prober.send(0)
    turns = 0
    while True:
        with committer(folder, history, clock, CommitPace(batch_bytes=1)) as one:
            one.commit()
            turns += 1
            if one.status().backlog == 0:
                break
    assert turns > 2 and logged(table_rows(history), 1) == prober.must_be_logged()
    check_slices(table_rows(history))


@pytest.mark.parametrize("first", [True, False], ids=["read first", "read last"])
def test_a_journal_taken_away_while_nobody_committed_takes_only_its_own_rows_with_it(
    folder: Path, history: Path, clock: StillClock, first: bool
) -> None:
    """The plan that was on disk cannot be carried out any more: another is made, and the marks count on."""
    gone, other = Prober.start(folder, 2 - first, clock), Prober.start(folder, 1 + first, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        gone.send(0)
        other.send(0)
        aside = history.with_name("aside")
        history.rename(aside)
        history.write_text("in the way")
        with pytest.raises(HistoryUnavailable):
            one.commit()
    history.unlink()
    aside.rename(history)
    gone.journal.folder.rename(folder / "elsewhere")
    with committer(folder, history, clock) as one:
        one.commit()
        other.send(1)
        one.commit()
    rows = table_rows(history)
    check_slices(rows)
    process = gone.journal.life.process
    assert logged(rows, other.journal.life.process) == other.must_be_logged()
    assert {len(told) for told in logged(rows, process).values()} == {1}
    assert check_marks(history) > 0 and process not in marks_of(rows, 3)


def test_what_is_appended_is_on_the_hosts_disk_before(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the loss of the host could take back what the table has, and the next life of the host would count anew; or
    leave commits in the table's log that are empty. What was committed is there before the next plan forgets it."""
    prober = Prober.start(folder, 1, clock)
    order: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            order.append(name)
            return real(*args, **kwargs)

        return call

    for owner, name in ((os, "fdatasync"), (os, "fsync"), (probes.log.commits.history, "_commit")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    with committer(folder, history, clock) as one:
        one.commit()
        # The journals' copies; the plan, and its name; the data, and its name; the commit, and its name.
        turn = ["fdatasync", "fsync", "fsync", "fsync", "fsync", "_commit", "fsync", "fsync"]
        assert order == turn
        prober.send(0)
        one.commit()
        assert order[len(turn) :] == turn


def test_something_unforeseen_stops_one_turn_and_not_the_committer(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(folder, 1, clock)
    stop = threading.Event()
    with committer(folder, history, clock, CommitPace(every=0.02)) as one:
        with monkeypatch.context() as patched:
            patched.setattr("probes.log.commits.committer.mark_rows", lambda *_: 1 / 0)
            running = threading.Thread(target=one.run, args=(stop,))
            running.start()
            wait_for(lambda: one.status().error is not None)
            assert "ZeroDivisionError" in (one.status().error or "")
        wait_for(lambda: one.status().version > 0)
        stop.set()
        running.join()
        assert one.status().error is None
    assert logged(table_rows(history), 1) == prober.must_be_logged()


def test_a_disk_that_has_room_again_is_used_at_once(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was full."""
    Prober.start(folder, 1, clock)
    stop, refused, waits = threading.Event(), list[object](), list[float]()
    real = stop.wait

    def wait(timeout: float) -> bool:
        waits.append(timeout)
        return real(min(timeout, 0.01))

    monkeypatch.setattr(stop, "wait", wait)

    def full(*given: object) -> None:
        refused.append(given)
        raise OSError(errno.ENOSPC, "No space left on device")

    with committer(folder, history, clock, CommitPace(every=1.0)) as one:
        with monkeypatch.context() as patched:
            patched.setattr("probes.log.commits.append_plan.os.write", full)
            running = threading.Thread(target=one.run, args=(stop,))
            running.start()
            wait_for(lambda: len(refused) > 8)
        wait_for(lambda: one.status().version > 0)
        stop.set()
        running.join()
    assert 1 < max(waits) <= 4


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


def test_a_journal_that_was_taken_away_is_said_and_nothing_else_stops(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober, other = Prober.start(folder, 1, clock), Prober.start(folder, 2, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        prober.journal.folder.rename(folder / "elsewhere")
        other.send(0)
        one.commit()
        assert one.status().unverifiable == {prober.journal.folder.name: "its journal was taken away"}
    assert logged(table_rows(history), 2) == other.must_be_logged()
    assert 1 not in marks_of(table_rows(history), 2)


def test_the_clock_of_the_log_never_goes_back(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        clock.tick(-100)
        one.commit()
    assert {micros(r["completed"]) for r in table_rows(history) if r["f"] == "mark"} == {micros(BEGIN)}


def test_an_unusable_folder_is_one_clear_line(tmp_path: Path, history: Path, clock: StillClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnwritable, match="cannot use the journal folder"):
        Committer(tmp_path / "file", committer(tmp_path, history, clock)._history, clock).__enter__()
