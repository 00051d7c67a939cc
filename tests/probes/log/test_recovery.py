"""Dead lives are finished: whatever byte they died at, whatever the recovery itself dies of, and only once."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from probes.log.commits.committer import CommitPace, committer
from probes.log.commits.recovery import HOST_LOST, is_whole, recover
from probes.log.journals.frames import frames
from probes.log.journals.journal import Journal
from probes.log.journals.reader import LifeReader
from probes.log.journals.segments import LIVES, NEW, OVER, life_folders, segments
from probes.log.journals.written import WRITTEN, begin, forget
from probes.log.rows import unpack
from rules.vocabulary.slices import DIED, Run, Slice
from tests.probes.log.lives import Prober, StillClock, a_life


class Crash(BaseException):
    """What `kill -9` is to the code that runs."""


def rows_of(folder: Path) -> list[Slice]:
    reader = LifeReader(folder)
    rows = reader.read(1 << 30)
    assert reader.broken is None and reader.unread() == 0
    return [unpack(row, reader.life.shared) for row in rows]


def tell_written(life_folder: Path) -> None:
    """That all is there that was written, but for the write that the death interrupted."""
    base, path = segments(life_folder)[-1]
    begin(life_folder, base + frames(path.read_bytes())[0][-1].end).close()


Told = tuple[int, str, str, Any]
"""Of one row: (op, f, type, sent)."""


def gist(rows: list[Slice]) -> list[tuple[int, int, str, str, str | None]]:
    return [(row.partition, row.slice, row.f, row.type, row.error) for row in rows]


def died_in_flight(folder: Path, clock: StillClock) -> Prober:
    prober = Prober.start(folder, 1, clock)
    prober.send(0)
    prober.invoke(0, 1)
    clock.tick()
    prober.invoke(1)
    prober.alive()
    prober.kill()
    return prober


def test_in_flight_is_info_and_every_partition_gets_its_close_row(tmp_path: Path, clock: StillClock) -> None:
    prober = died_in_flight(tmp_path, clock)
    clock.tick(60)
    (done,) = recover(tmp_path, clock)
    assert (done.outcome, done.in_flight, done.life) == ("closed", 2, prober.journal.life)
    rows = rows_of(prober.journal.folder)
    assert gist(rows)[3:] == [
        (0, 2, "send", "info", DIED),
        (1, 1, "send", "info", DIED),
        (1, 2, "send", "info", DIED),
        (0, 3, "close", "info", DIED),
        (1, 3, "close", "info", DIED),
    ]
    assert rows[3].sent == (Run(10, 5, None, 5),) and rows[3].invoked == prober.told[0][1].completed
    assert rows[-1].invoked == clock.now()
    assert {(row.completed, row.mono_completed) for row in rows[3:]} == {(clock.now(), clock.monotonic_ns())}
    assert recover(tmp_path, clock) == []
    assert rows_of(prober.journal.folder) == rows


def test_what_was_in_flight_went_on_until_its_journal_last_heard_of_it_although_the_clock_was_set_back(
    tmp_path: Path, clock: StillClock
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    op = prober.invoke(0)
    began, heard = clock.now(), clock.tick(9)
    prober.journal.opened(op, [replace(row, completed=heard) for row in prober.in_flight[op]])
    prober.kill()
    clock.time = began
    recover(tmp_path, clock)
    rows = rows_of(prober.journal.folder)[2:]
    assert [(row.f, row.invoked, row.completed) for row in rows] == [
        ("send", began, heard),
        ("close", heard, heard),
        ("close", heard, heard),
    ]


def test_the_living_and_the_closed_are_left_alone(tmp_path: Path, clock: StillClock) -> None:
    living, closed = Prober.start(tmp_path, 1, clock), Prober.start(tmp_path, 2, clock)
    closed.close()
    (closed.journal.folder / OVER).unlink()
    before = [path.read_bytes() for folder in life_folders(tmp_path) for _, path in segments(folder)]
    assert recover(tmp_path, clock) == []
    assert [path.read_bytes() for folder in life_folders(tmp_path) for _, path in segments(folder)] == before
    living.send(0)
    assert (closed.journal.folder / OVER).exists()


def test_whole_is_who_ended_in_order_and_whose_journal_holds_all_that_was_written(
    tmp_path: Path, clock: StillClock
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.send(0)
    folder = prober.journal.folder
    assert not is_whole(folder), "it lives"
    prober.close()
    assert is_whole(folder)
    (_, path) = segments(folder)[-1]
    data = path.read_bytes()
    last = frames(data)[0][-2].end
    flipped = data[: last - 1] + bytes([data[last - 1] ^ 1]) + data[last:]
    for damaged in (data[:-1], data[:last], data + b"\xff", flipped, b""):
        path.write_bytes(damaged)
        assert not is_whole(folder)
    path.write_bytes(data)
    forget(folder)
    for name in (OVER, WRITTEN):
        told = (folder / name).read_bytes()
        (folder / name).unlink()
        assert not is_whole(folder)
        (folder / name).write_bytes(told)
    assert is_whole(folder)


def test_one_that_died_between_its_close_rows_and_its_end_is_not_closed_twice(
    tmp_path: Path, clock: StillClock
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.append([prober.row(0, "close")])
    prober.kill()
    recover(tmp_path, clock)
    assert [row[:4] for row in gist(rows_of(prober.journal.folder))[2:]] == [
        (0, 1, "close", "ok"),
        (1, 1, "close", "info"),
    ]


def test_one_that_died_before_its_first_row_just_ends(tmp_path: Path, clock: StillClock) -> None:
    Journal.create(tmp_path, a_life(1)).release()
    (done,) = recover(tmp_path, clock)
    assert done.outcome == "closed" and rows_of(done.folder) == []


def test_cut_at_every_byte_what_was_whole_stays_and_what_was_open_is_info(tmp_path: Path, clock: StillClock) -> None:
    """The torn end of every possible death: the result depends only on the frames that were whole."""
    prober = Prober.start(tmp_path / "made", 1, clock)
    path = segments(prober.journal.folder)[0][1]
    steps: list[Callable[[], object]] = [
        lambda: prober.send(0),
        lambda: prober.invoke(0, 1),
        lambda: prober.complete(prober.op - 1),
        prober.poll,
        prober.alive,
        lambda: prober.invoke(1),
        prober.close,
    ]
    first = prober.journal.offset
    expected = {first: prober.must_be_logged()}
    for step in steps:
        step()
        expected[path.stat().st_size] = prober.must_be_logged()
    data = path.read_bytes()
    assert len(data) - first > 250
    for cut in range(first, len(data) + 1):
        shutil.rmtree(tmp_path / "died", ignore_errors=True)
        folder = tmp_path / "died" / LIVES / "writer-1"
        folder.mkdir(parents=True)
        (folder / path.name).write_bytes(data[:cut])
        tell_written(folder)
        recover(tmp_path / "died", clock)
        rows = rows_of(folder)
        found: dict[int, list[Told]] = {}
        for row in rows:
            if row.f != "close":
                found.setdefault(row.partition, []).append(
                    (row.op, row.f, row.type, [run._asdict() for run in row.sent] or None)
                )
        # A send is two frames: between them it is in flight.
        whole = max(end for end in expected if end <= cut)
        after = min((end for end in expected if end > cut), default=whole)
        allowed = [expected[whole], _with_last_in_flight(expected[after])]
        assert found in allowed, (cut, found, allowed)
        assert sorted(row.partition for row in rows if row.f == "close") == [0, 1]
        for partition in (0, 1):
            numbers = [row.slice for row in rows if row.partition == partition]
            assert numbers == list(range(len(numbers)))
        assert "fail" not in {row.type for row in rows}


def _with_last_in_flight(expected: dict[int, list[Told]]) -> dict[int, list[Told]]:
    """The same, when the last operation had not come back yet."""
    last = max(row[0] for rows in expected.values() for row in rows)

    def unknown(row: Told) -> Told:
        sent = [{**run, "offset": None} for run in row[3]] if row[3] else None
        return (row[0], row[1], "info", sent) if row[0] == last else row

    return {partition: [unknown(row) for row in rows] for partition, rows in expected.items()}


@pytest.mark.parametrize("torn", [0, 8], ids=["clean end", "torn end"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_recovery_that_is_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, torn: int, after: bool
) -> None:
    step = crashed = 0
    while True:
        base = tmp_path / str(step)
        prober = died_in_flight(base, clock)
        path = segments(prober.journal.folder)[0][1]
        path.write_bytes(path.read_bytes()[: -torn or None])
        tell_written(prober.journal.folder)
        with monkeypatch.context() as patched:
            countdown = crash_at(patched, step, after)
            try:
                recover(base, clock)
            except Crash:
                crashed += 1
        clock.tick()
        recover(base, clock)
        rows = gist(rows_of(prober.journal.folder))
        assert [row[2:4] for row in rows if row[0] == 1][1:] == [("send", "info")] * 2 + [("close", "info")]
        assert [row[1] for row in rows if row[0] == 0] == list(range(len([row for row in rows if row[0] == 0])))
        assert [row[2:4] for row in rows if row[0] == 0][1:] == [("send", "ok"), ("send", "info"), ("close", "info")]
        assert recover(base, clock) == []
        if countdown() >= 0:
            break
        step += 1
    assert crashed == step >= (2 if torn else 1)


def crash_at(patched: pytest.MonkeyPatch, step: int, after: bool) -> Callable[[], int]:
    """Crash before or after the step-th change to the disk; returns how many more there could have been."""
    left = [step]

    def crashing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 and not after:
                raise Crash
            result = real(*args, **kwargs)
            if left[0] == -1:
                raise Crash
            return result

        return call

    for name in ("pwrite", "ftruncate", "fdatasync"):
        patched.setattr(os, name, crashing(getattr(os, name)))
    patched.setattr(Path, "touch", crashing(Path.touch))
    return lambda: left[0]


def test_after_the_loss_of_the_host_what_was_reserved_may_have_been_sent_and_there_is_no_close_row(
    tmp_path: Path, clock: StillClock
) -> None:
    prober = died_in_flight(tmp_path, clock)
    clock.boot = "boot-2"
    (done,) = recover(tmp_path, clock)
    assert done.outcome == "lost"
    rows = rows_of(done.folder)
    assert [(r.partition, r.f, r.type, r.error) for r in rows[3:]] == [
        (0, "send", "info", HOST_LOST),
        (1, "send", "info", HOST_LOST),
        (1, "send", "info", HOST_LOST),
        (0, "send", "info", HOST_LOST),
        (1, "send", "info", HOST_LOST),
    ]
    assert rows[-2].sent == (Run(10, 10, None, 990),) and rows[-1].sent == (Run(10, 10, None, 990),)
    assert prober.seq == {0: 10, 1: 10}
    # They left after all that its journal tells, before the host came back, and no later clock timed them.
    told = max(row.invoked for row in rows[:-2])
    assert {(row.invoked, row.completed, row.boot, row.mono_completed) for row in rows[-2:]} == {
        (told, clock.now(), "boot-1", None)
    }
    assert {(row.completed, row.mono_completed) for row in rows[3:]} == {(clock.now(), None)}
    assert recover(tmp_path, clock) == []


@pytest.mark.parametrize("torn", [0, 8], ids=["clean end", "torn end"])
def test_what_was_written_and_is_missing_may_have_been_sent_and_there_is_no_close_row(
    tmp_path: Path, clock: StillClock, torn: int
) -> None:
    prober = died_in_flight(tmp_path, clock)
    path = segments(prober.journal.folder)[0][1]
    last = frames(path.read_bytes())[0][-2].end
    path.write_bytes(path.read_bytes()[: last + torn])
    clock.tick(60)
    (done,) = recover(tmp_path, clock)
    assert done.outcome == "lost"
    rows = rows_of(done.folder)
    assert [(r.partition, r.f, r.type, r.error) for r in rows[3:]] == [
        (0, "send", "info", DIED),
        (1, "send", "info", DIED),
        (1, "send", "info", DIED),
        (0, "send", "info", DIED),
        (1, "send", "info", DIED),
    ]
    assert rows[-2].sent == (Run(10, 10, None, 990),) and rows[-1].sent == (Run(10, 10, None, 990),)
    assert {row.completed for row in rows[3:]} == {clock.now()}
    assert {row.mono_completed for row in rows[3:-2]} == {clock.monotonic_ns()}
    assert recover(tmp_path, clock) == []


@pytest.mark.parametrize("told", [True, False], ids=["told", "told by nobody"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_what_is_missing_is_missing_for_the_recovery_after_one_that_is_killed_too(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, after: bool, told: bool
) -> None:
    step = crashed = 0
    while True:
        base = tmp_path / str(step)
        prober = Prober.start(base, 1, clock)
        prober.send(0)
        prober.kill()
        path = segments(prober.journal.folder)[-1][1]
        data = path.read_bytes()
        ends = [one.end for one in frames(data)[0]]
        path.write_bytes(data[: ends[-1] - 5])
        if not told:
            (prober.journal.folder / WRITTEN).unlink()
            forget(prober.journal.folder)
        with monkeypatch.context() as patched:
            countdown = crash_at(patched, step, after)
            try:
                recover(base, clock)
            except Crash:
                crashed += 1
        clock.tick()
        recover(base, clock)
        reader = LifeReader(prober.journal.folder)
        reader.read(1 << 30)
        assert reader.progress.lost and reader.unread() == 0
        assert recover(base, clock) == []
        if countdown() >= 0:
            break
        step += 1
    assert crashed == step >= 2


@pytest.mark.parametrize(("forgotten", "outcome"), [(True, "closed"), (False, "lost")])
def test_of_a_journal_cut_between_two_rows_together_with_what_tells_of_it_only_the_hosts_memory_knows(
    tmp_path: Path, clock: StillClock, forgotten: bool, outcome: str
) -> None:
    """As a disk leaves it that was cut off, and came back while its host went on. Where the host has no memory for it,
    and of what an earlier version wrote, nobody knows."""
    prober = died_in_flight(tmp_path, clock)
    path = segments(prober.journal.folder)[0][1]
    path.write_bytes(path.read_bytes()[: frames(path.read_bytes())[0][-2].end])
    (prober.journal.folder / WRITTEN).write_bytes(b"")
    if forgotten:
        forget(prober.journal.folder)
    (done,) = recover(tmp_path, clock)
    assert done.outcome == outcome


def test_what_is_told_in_memory_goes_with_the_lifes_folder(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr("probes.log.journals.written.MEMORY", memory)
    folder, history = tmp_path / "journals", tmp_path / "history"
    over, gone, living = (Prober.start(folder, process, clock) for process in (1, 2, 3))
    elsewhere = Prober.start(tmp_path / "others", 1, clock)
    held = memory / f"offsetwatch-{os.geteuid()}"
    assert len(list(held.iterdir())) == 4 and held.stat().st_mode & 0o777 == 0o700
    over.close()
    gone.kill()
    shutil.rmtree(gone.journal.folder)
    for place in held.iterdir():
        assert os.fsencode(tmp_path) in place.read_bytes()
    with committer(folder, history, clock):
        assert len(list(held.iterdir())) == 4, "its disk may only be away"
    for place in held.iterdir():
        os.utime(place, (0, 0))
    with committer(folder, history, clock, CommitPace(keep=timedelta(seconds=60))) as one:
        assert len(list(held.iterdir())) == 3
        for _ in range(3):
            clock.tick(61)
            living.alive()
            one.commit()
    assert not over.journal.folder.exists()
    assert len(list(held.iterdir())) == 2
    elsewhere.kill()


def test_memory_that_is_full_keeps_no_probe_from_its_work(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container it may be 64 MB, which others use as well."""
    real, memory = os.pwrite, tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr("probes.log.journals.written.MEMORY", memory)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(memory):
            raise OSError(28, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    prober = Prober.start(tmp_path / "journals", 1, clock)
    prober.send(0)
    prober.kill()
    (done,) = recover(tmp_path / "journals", clock)
    assert done.outcome == "closed"


@pytest.mark.parametrize("kind", ["none", "a file", "another's"])
def test_where_the_host_has_no_memory_for_it_the_journal_is_written_all_the_same(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    memory = tmp_path / "memory"
    monkeypatch.setattr("probes.log.journals.written.MEMORY", memory)
    if kind != "none":
        memory.mkdir()
        place = memory / f"offsetwatch-{os.geteuid()}"
        place.write_text("") if kind == "a file" else place.symlink_to(tmp_path)
    prober = Prober.start(tmp_path / "journals", 1, clock)
    prober.send(0)
    prober.kill()
    (done,) = recover(tmp_path / "journals", clock)
    assert done.outcome == "closed"
    assert kind == "none" or not [one for one in tmp_path.iterdir() if one.name not in ("memory", "journals")]


def test_a_journal_broken_in_the_middle_is_declared_and_left_as_it_is(tmp_path: Path, clock: StillClock) -> None:
    prober = died_in_flight(tmp_path, clock)
    path = segments(prober.journal.folder)[0][1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    for _ in range(2):
        (done,) = recover(tmp_path, clock)
        assert done.outcome == "broken" and done.reason is not None and "with good frames after it" in done.reason
        assert path.read_bytes() == data


def test_a_journal_without_a_readable_beginning_is_declared(tmp_path: Path, clock: StillClock) -> None:
    prober = died_in_flight(tmp_path, clock)
    path = segments(prober.journal.folder)[0][1]
    path.write_bytes(path.read_bytes()[:20])
    (done,) = recover(tmp_path, clock)
    assert done.outcome == "broken" and done.life is None


def test_recovery_reads_only_the_last_segment(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock, segment_bytes=800)
    op = prober.invoke(1)
    for _ in range(20):
        prober.send(0)
    prober.kill()
    for _, path in segments(prober.journal.folder)[:-1]:
        path.unlink()
    (done,) = recover(tmp_path, clock)
    base = segments(done.folder)[0][0]
    reader = LifeReader(done.folder, base)
    rows = [unpack(row, reader.life.shared) for row in reader.read(1 << 20)]
    assert done.in_flight == 1 and [row.op for row in rows if row.partition == 1] == [op, prober.op]
    assert [row.slice for row in rows if row.partition == 1] == [1, 2]


def test_rubbish_of_unfinished_beginnings_goes_after_a_while(tmp_path: Path, clock: StillClock) -> None:
    died = tmp_path / LIVES / f"writer-9{NEW}"
    died.mkdir(parents=True)
    os.utime(died, (clock.now().timestamp(),) * 2)
    recover(tmp_path, clock)
    assert died.exists()
    clock.tick(61)
    recover(tmp_path, clock)
    assert not died.exists()
