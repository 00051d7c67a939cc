"""What the table has survives the loss of the host in the journals too, although they are seldom synced."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from probes.log.commits.committer import committer
from probes.log.journals import copies
from probes.log.journals.segments import segments
from tests.probes.log.lives import Prober, StillClock, always_waits, check_marks, check_slices, logged, table_rows


def as_lost(path: Path, size: int, how: str) -> None:
    """The file as a host leaves it that went down when only its first `size` bytes had been written to the disk."""
    whole = path.read_bytes()
    left = {"cut": b"", "zeros": bytes(len(whole) - size), "a hole": bytes((len(whole) - size) // 2)}[how]
    path.write_bytes(whole[:size] + left + (whole[size + len(left) :] if how == "a hole" else b""))


@pytest.mark.long
@pytest.mark.parametrize("how", ["cut", "zeros", "a hole"])
@pytest.mark.parametrize("full", [copies.FULL, 150, 0], ids=["not full", "filled now and then", "always full"])
@pytest.mark.parametrize("every", [1, 3], ids=["each turn", "three turns"])
def test_a_lost_host_takes_back_nothing_that_the_table_has(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch, how: str, full: int, every: int
) -> None:
    monkeypatch.setattr(copies, "FULL", full)
    synced: dict[int, int] = {}
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        real(descriptor)
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    prober, other = (Prober.start(folder, n, clock, segment_bytes=400) for n in (1, 2))
    with committer(folder, history, clock, holding=always_waits()) as one:
        for turn in range(12):
            prober.send(turn % 2)
            if turn % 4 == 0:
                other.send(0)
            one.commit(may_wait=turn % every < every - 1)
        left_open = prober.invoke(0)
        one.commit()
        prober.poll(1)  # after the last append: this the loss may take
    for one_life in (prober, other):
        one_life.kill()
        for _, path in segments(one_life.journal.folder):
            as_lost(path, synced[path.stat().st_ino], how)
    clock.boot = "boot-2"
    clock.tick(20)
    with committer(folder, history, clock) as one:
        one.commit()
        assert all("its host went down" in reason for reason in one.status().unverifiable.values())
        assert len(one.status().unverifiable) == 2
    rows = table_rows(history)
    check_slices(rows)
    check_marks(history)
    told = [row for row in logged(rows, 1)[0] if row[0] <= left_open]
    assert told == prober.must_be_logged()[0] and told[-1][2] == "info"


def test_copies_of_a_boot_that_goes_on_put_nothing_back(folder: Path, history: Path, clock: StillClock) -> None:
    """A segment that was put back over what a living process writes would take from its journal."""
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
    path = segments(prober.journal.folder)[-1][1]
    path.write_bytes(before := path.read_bytes()[:-1] + b"?")
    with committer(folder, history, clock):
        assert path.read_bytes() == before and (folder / copies.COPIES).stat().st_size == 0


def test_a_journal_that_lost_its_end_with_its_disk_gets_it_back_in_the_same_boot(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """As after a file system that failed, and was repaired, while its host went on."""
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        prober.send(0)
        one.commit()
    prober.kill()
    path = segments(prober.journal.folder)[-1][1]
    before = path.read_bytes()
    path.write_bytes(before[: len(before) // 2])
    with committer(folder, history, clock):
        assert path.read_bytes() == before


def test_what_was_deleted_since_is_not_made_again(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
    path = segments(prober.journal.folder)[-1][1]
    path.unlink()
    clock.boot = "boot-2"
    with committer(folder, history, clock):
        assert not path.exists()


def test_what_is_synced_is_not_written_again(tmp_path: Path) -> None:
    """Each entry has pages of its own: one that began in the middle of a page had that page synced twice."""
    journal = tmp_path / "lives" / "writer-1" / "0.journal"
    journal.parent.mkdir(parents=True)
    held = [bytes([65 + n]) * length for n, length in enumerate((1, 3_000, 4_096, 9_000))]
    journal.write_bytes(b"".join(held))
    kept = copies.Copies(tmp_path, "boot-1")
    kept.open()
    at, ends = 0, [0]
    for data in held:
        kept.keep([copies.Piece(journal, at, data)])
        at += len(data)
        ends.append((tmp_path / copies.COPIES).stat().st_size)
    kept.close()
    assert [end % copies.PAGE for end in ends] == [0] * len(ends)
    assert [(end - before) // copies.PAGE for before, end in pairwise(ends)] == [1, 1, 2, 3]
    journal.write_bytes(b"")  # the host was lost
    copies.Copies(tmp_path, "boot-2").open()
    assert journal.read_bytes() == b"".join(held)
