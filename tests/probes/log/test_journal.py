"""A journal holds what it was told, refuses whole calls, and can be read while it is written."""

import errno
import os
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from probes.log.errors import JournalDamaged, JournalUnwritable
from probes.log.journals.journal import Journal
from probes.log.journals.progress import encode, head
from probes.log.journals.reader import BrokenJournal, LifeReader
from probes.log.journals.segments import BROKEN, OVER, is_held, segments
from probes.log.rows import unpack
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros
from tests.probes.log.lives import BEGIN, TOPIC, TOPIC_ID, Prober, StillClock, a_life


def read_all(prober: Prober, at: int = 0, limit: int = 1 << 20) -> tuple[list[Slice], LifeReader]:
    reader = LifeReader(prober.journal.folder, at)
    rows, offset = [], -1
    while reader.offset != offset:
        offset = reader.offset
        rows += reader.read(limit)
    return [unpack(row, reader.life.shared) for row in rows], reader


def test_slices_are_numbered_per_partition_and_read_back_as_they_were_appended(
    tmp_path: Path, clock: StillClock
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.send(0)
    prober.send(0, 1)
    prober.poll(1)
    rows, _ = read_all(prober)
    told = prober.told
    for partition in (0, 1):
        assert [row.slice for row in told[partition]] == list(range(len(told[partition])))
        assert [row for row in rows if row.partition == partition] == told[partition]


def test_one_append_may_hold_several_rows_of_one_partition(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.append([prober.row(0, "poll"), prober.row(0, "commit"), prober.row(1, "poll")])
    assert [(row.partition, row.slice) for row in read_all(prober)[0][2:]] == [(0, 1), (0, 2), (1, 1)]


def test_what_is_opened_is_not_logged_and_holds_through_until_it_is_finished(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    first = clock.tick()
    one = prober.invoke(0)
    second = clock.tick()
    two = prober.invoke(1)
    clock.tick()
    prober.alive()
    rows, reader = read_all(prober)
    assert {row.f for row in rows} == {"start"} and reader.progress.through == micros(first)
    prober.complete(one, "info")
    assert read_all(prober)[1].progress.through == micros(second)
    prober.complete(two)
    assert read_all(prober)[1].progress.through == micros(clock.now())


def test_through_is_not_the_time_of_a_rows_completion(tmp_path: Path, clock: StillClock) -> None:
    """What was invoked during a poll may be logged after it."""
    prober = Prober.start(tmp_path, 1, clock)
    began = clock.tick()
    prober.poll()
    assert read_all(prober)[1].progress.through == micros(began) < micros(clock.now())


def test_reservations_are_on_disk_before_it_returns(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    synced: list[int] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    prober.journal.reserve(TOPIC_ID, TOPIC, 0, 65_536)
    assert synced == [prober.journal.offset]
    assert read_all(prober)[1].progress.sent[TOPIC_ID, 0].reserved == 65_536
    prober.send(0)
    assert len(synced) == 1


def test_segments_are_rolled_and_read_as_one(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock, segment_bytes=600)
    left_open = prober.invoke(1)
    for _ in range(50):
        prober.send(0)
    parts = segments(prober.journal.folder)
    assert len(parts) > 4 and all(base == end for (base, _), end in zip(parts[1:], ends(parts), strict=False))
    rows, reader = read_all(prober, limit=700)
    assert [row for row in rows if row.partition == 0] == prober.told[0]
    assert reader.progress == read_all(prober, at=parts[3][0])[1].progress
    assert encode(head(reader.life, reader.progress, 0)) == encode(head(reader.life, prober.journal.progress, 0))
    assert left_open in reader.progress.open
    # The beginning may go; what is left tells the same.
    for _, path in parts[:3]:
        path.unlink()
    assert read_all(prober, at=parts[3][0])[1].progress == reader.progress
    with pytest.raises(BrokenJournal, match="no segment with byte 0"):
        read_all(prober)


def ends(parts: list[tuple[int, Path]]) -> list[int]:
    return [base + path.stat().st_size for base, path in parts]


def test_reading_goes_on_from_any_frame_and_stops_where_it_is_told_to(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock, segment_bytes=2_000)
    for _ in range(20):
        prober.send(0)
    reader = LifeReader(prober.journal.folder)
    steps = [(reader.offset, reader.read(1)) for _ in range(60)]
    assert len({offset for offset, _ in steps}) > 40
    for (start, rows), (end, _) in pairwise(steps):
        assert LifeReader(prober.journal.folder, start).read_to(end) == rows
    with pytest.raises(BrokenJournal, match="no longer holds"):
        LifeReader(prober.journal.folder).read_to(prober.journal.offset + 1)


def test_a_frame_larger_than_the_limit_is_read_all_the_same(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.append([prober.row(0, "poll", error="x" * 300_000), prober.row(1, "poll")])
    assert [len(row.error or "") for row in read_all(prober, limit=10)[0][2:]] == [300_000, 0]


def test_a_living_process_holds_its_life_and_a_dead_one_does_not(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    assert is_held(prober.journal.folder)
    prober.kill()
    assert not is_held(prober.journal.folder)


def test_a_journal_is_never_begun_over_another(tmp_path: Path, clock: StillClock) -> None:
    first = Prober.start(tmp_path, 1, clock)
    with pytest.raises(JournalUnwritable, match="cannot begin a journal"):
        Prober.start(tmp_path, 1, clock)
    assert is_held(first.journal.folder)


def test_closing_in_order_ends_the_life_and_anything_less_leaves_it_to_recovery(
    tmp_path: Path, clock: StillClock
) -> None:
    whole, no_close_rows, in_flight = (Prober.start(tmp_path, n, clock) for n in (1, 2, 3))
    in_flight.invoke(0)
    whole.close()
    no_close_rows.journal.close()
    in_flight.close()
    over = [(p.journal.folder / OVER).exists() for p in (whole, no_close_rows, in_flight)]
    assert over == [True, False, False]
    assert [read_all(p)[1].progress.closed for p in (whole, no_close_rows, in_flight)] == over
    assert not any(is_held(p.journal.folder) for p in (whole, no_close_rows, in_flight))
    whole.journal.close()
    with pytest.raises(ValueError, match="closed"):
        whole.alive()


@pytest.mark.parametrize("written", [0, 1, 9, 11, 20])
def test_a_refused_write_leaves_nothing_and_the_same_call_succeeds_later(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    before = prober.journal.offset
    real = os.pwrite

    def full(descriptor: int, data: bytes, position: int) -> int:
        if position - before >= written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: written - (position - before)], position)

    rows = [prober.row(0, "poll", polled=())]
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        # Not even what was written before the disk was full can be taken back.
        patched.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(JournalUnwritable, match="No space left on device"):
            prober.journal.append(rows)
    assert rows[0].slice == -1
    assert len(read_all(prober)[0]) == 2 and read_all(prober)[1].broken is None
    prober.append(rows)
    assert rows[0].slice == 1
    assert [row.slice for row in read_all(prober)[0] if row.partition == 0] == [0, 1]


def test_a_refused_segment_leaves_the_old_one_in_use(
    tmp_path: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(tmp_path, 1, clock, segment_bytes=10)

    def refused(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refused)
        with pytest.raises(JournalUnwritable, match="No space"):
            prober.append([prober.row(0, "poll")])
    prober.append([prober.row(0, "poll")])
    assert [row.slice for row in read_all(prober)[0] if row.partition == 0] == [0, 1]


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnwritable, match=r"cannot begin a journal in .*file"):
        Journal.create(tmp_path / "file", a_life(1))


def test_a_reader_waits_at_a_torn_end_and_stops_for_ever_at_a_broken_frame(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.send(0)
    path = segments(prober.journal.folder)[0][1]
    good = path.read_bytes()
    _, before = read_all(prober)
    prober.send(0)
    whole = path.read_bytes()
    for cut in range(len(good), len(whole)):
        path.write_bytes(whole[:cut])
        rows, reader = read_all(prober)
        assert reader.broken is None and reader.unread() == cut - reader.offset
        assert len(rows) == 3 and (reader.offset == before.offset) == (cut < first_end(whole, len(good)))
    path.write_bytes(whole)
    assert len(read_all(prober)[0]) == 4
    damaged = bytearray(whole)
    damaged[len(good) + 12] ^= 1
    path.write_bytes(bytes(damaged))
    rows, reader = read_all(prober)
    assert len(rows) == 3 and reader.broken == f"at byte {len(good)}: a damaged frame with good ones after it"


def first_end(data: bytes, at: int) -> int:
    return at + 10 + int.from_bytes(data[at + 2 : at + 6], "little")


def test_good_bytes_with_impossible_content_break_the_journal_too(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.journal.progress.slices[TOPIC_ID, 0] = 7
    prober.append([prober.row(0, "poll")])
    rows, reader = read_all(prober)
    assert len(rows) == 2 and reader.broken is not None and "slice 7 where 1 must follow" in reader.broken


def test_times_are_kept_to_the_microsecond(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    clock.time = BEGIN + timedelta(microseconds=123_457)
    prober.append([prober.row(0, "poll")])
    assert read_all(prober)[0][-1].invoked == clock.time


@pytest.mark.parametrize("how", ["cut", "emptied", "removed", "broken"])
def test_a_journal_that_is_damaged_while_it_is_written_says_so_once_and_can_be_ended(
    tmp_path: Path, clock: StillClock, how: str
) -> None:
    prober = Prober.start(tmp_path, 1, clock)
    prober.send(0)
    prober.alive()
    path = segments(prober.journal.folder)[-1][1]
    match how:
        case "cut":
            os.truncate(path, path.stat().st_size - 1)
        case "emptied":
            os.truncate(path, 0)
        case "removed":
            path.unlink()
        case _:
            (prober.journal.folder / BROKEN).write_text("it is broken at byte 7: why")
    why = "it is broken at byte 7: why" if how == "broken" else "it was cut, or taken away"
    with pytest.raises(JournalDamaged) as told:
        prober.alive()
    assert str(told.value) == f"the journal {prober.journal.folder} is damaged: {why}"
    prober.alive()
    prober.close()
    assert prober.journal.progress.over and not is_held(prober.journal.folder)


def test_a_journal_that_goes_on_in_another_segment_is_whole(tmp_path: Path, clock: StillClock) -> None:
    prober = Prober.start(tmp_path, 1, clock, segment_bytes=300)
    for _ in range(20):
        prober.send(0)
        prober.alive()
    assert len(segments(prober.journal.folder)) > 3
