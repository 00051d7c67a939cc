"""A journal folder and a copy of it whose committers append to one table: nothing that was logged is missing there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from probes.log.commits.append_plan import PLAN, load
from probes.log.commits.committer import committer
from probes.log.commits.history import History
from probes.log.commits.numbers import number_of
from probes.log.errors import FolderCopied, HistoryMismatch, HistoryUnavailable
from probes.log.journals.segments import OVER, life_folders
from tests.probes.log.faults import MODES, Killed, Mode, fault
from tests.probes.log.lives import Prober, StillClock, check_marks, check_slices, closes, logged, table_rows


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in [folder / PLAN, *folder.rglob("lives/*/*")]}


def an_original(folder: Path, history: Path, clock: StillClock) -> None:
    """A host that has worked there, and has ended."""
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        prober.send(0)
        prober.close()
        one.drain()


def copy_of(folder: Path) -> Path:
    copied = folder.with_name("copy")
    shutil.copytree(folder, copied)
    return copied


def both_at_work(folder: Path, copied: Path, history: Path, clock: StillClock) -> list[Prober]:
    """Neither has claimed the folder: the table could not be reached when they began."""
    probers = []
    with committer(folder, history, clock) as original, committer(copied, history, clock) as copy:
        for process, at in ((2, folder), (3, copied)):
            probers.append(Prober.start(at, process, clock))
        for _ in range(3):
            for prober, one in zip(probers, (original, copy), strict=True):
                prober.send(0, 1)
                prober.alive()
                assert one.commit() > 0
        for prober in probers:
            prober.kill()
        original.drain()
        copy.drain()
        assert (original.copied, type(copy.copied)) == (None, FolderCopied)
    return probers


def test_what_a_copy_and_its_original_log_is_all_in_the_table(folder: Path, history: Path, clock: StillClock) -> None:
    an_original(folder, history, clock)
    probers = both_at_work(folder, copy_of(folder), history, clock)
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        process = prober.journal.life.process
        assert logged(rows, process) == prober.must_be_logged()
        assert closes(rows, process) == {0: ["info"], 1: ["info"]}
    assert check_marks(history) > 0
    told = {mark["process"] for row in rows for mark in row["marks"] or () if mark["ended"] is not None}
    assert told == {1, 2, 3}, "nobody is waited for"


def test_of_what_both_hold_the_original_alone_tells_the_end(folder: Path, history: Path, clock: StillClock) -> None:
    prober = Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        prober.invoke(0)
        one.commit()
    prober.kill()
    both_at_work(folder, copy_of(folder), history, clock)
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and closes(rows, 1) == {0: ["info"], 1: ["info"]}


@pytest.mark.parametrize("claiming", [True, False])
def test_a_copy_that_has_nothing_of_its_own_is_refused(
    folder: Path, history: Path, clock: StillClock, claiming: bool
) -> None:
    an_original(folder, history, clock)
    copied = copy_of(folder)
    with committer(folder, history, clock) as one:
        one.claim()
        one.commit()
    before, version = files(copied), DeltaTable(str(history)).version()
    with committer(copied, history, clock) as one, pytest.raises(FolderCopied, match="copy of this folder is, or was"):
        one.claim() if claiming else one.commit()
    left = files(copied)
    assert {name for name in before if left[name] != before[name]} == set()
    assert DeltaTable(str(history)).version() == version


def test_of_two_that_claim_a_folder_the_first_one_has_it(folder: Path, history: Path, clock: StillClock) -> None:
    an_original(folder, history, clock)
    copied = copy_of(folder)
    with committer(folder, history, clock) as original, committer(copied, history, clock) as copy:
        copy.claim()
        with pytest.raises(FolderCopied):
            original.claim()
        prober = Prober.start(copied, 2, clock)
        prober.send(0)
        copy.commit()
        assert copy.copied is None
    for _ in range(2):
        with committer(copied, history, clock) as copy:
            copy.claim()  # it goes on with it
            copy.commit()
    assert logged(table_rows(history), 2) == prober.must_be_logged()


def test_whoever_is_alone_keeps_its_folder(folder: Path, history: Path, clock: StillClock) -> None:
    """It is started again at once, after an hour, at another path, after a reboot, by an earlier version's plan."""
    prober = Prober.start(folder, 1, clock)
    for turn in range(6):
        with committer(folder, history, clock) as one:
            one.claim()
            assert one.status().error is None
            prober.send(0, 1)
            prober.alive()
            if turn != 2:  # as if it were killed before it has appended anything
                assert one.commit() > 0
        if turn == 1:
            clock.tick(3600)
        if turn == 3:
            prober.kill()
            folder = folder.rename(folder.with_name("elsewhere"))
            prober.journal = Prober.start(folder, 2, clock).journal
            prober.told.clear()
            prober.seq.clear()
        if turn == 4:
            clock.boot = "boot-2"
    rows = table_rows(history)
    check_slices(rows)
    assert check_marks(history) > 0
    assert len({row["process"] for row in rows if row["f"] == "mark"}) == 1, "it is the same committer"


def test_the_table_remembers_one_number_of_a_committer_however_often_it_begins(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    for _ in range(5):
        with committer(folder, history, clock) as one:
            one.claim()
            prober.send(0)
            one.commit()
    told = "".join(path.read_text() for path in (history / "_delta_log").glob("*.json"))
    assert told.count('"txn"') == 9 and len({line.split('"')[5] for line in told.splitlines() if '"txn"' in line}) == 1
    assert number_of(History(str(history)).last_version(app(folder)) or 0) == 9


def app(folder: Path) -> str:
    plan = load(folder)
    assert plan is not None
    return plan.app


def test_a_folder_and_a_table_of_an_earlier_version_go_on(
    folder: Path, history: Path, clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    prober = Prober.start(folder, 1, clock)
    with monkeypatch.context() as earlier:
        earlier.setattr("probes.log.commits.committer.drawn", lambda: 0)
        with committer(folder, history, clock) as one:
            for _ in range(3):
                prober.send(0)
                one.commit()
    assert History(str(history)).last_version(app(folder)) == 3
    for _ in range(2):
        with committer(folder, history, clock) as one:
            one.claim()
            prober.send(0)
            one.commit()
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 1) == prober.must_be_logged() and check_marks(history) > 0
    assert sorted({row["op"] for row in rows if row["f"] == "mark"}) == [1, 2, 3, 5, 7]


@pytest.mark.parametrize("mode", MODES)
def test_a_claim_that_fails_at_any_step_is_made_good(tmp_path: Path, clock: StillClock, mode: Mode) -> None:
    step = 0
    while True:
        folder, history = tmp_path / f"{step}-{mode}" / "journal", tmp_path / f"{step}-{mode}" / "history"
        an_original(folder, history, clock)
        copied = copy_of(folder)
        prober = Prober.start(folder, 2, clock)
        prober.send(0)
        with committer(folder, history, clock) as one, fault(step, mode) as countdown:
            try:
                one.claim()
            except (Killed, HistoryUnavailable, HistoryMismatch, OSError):
                pass
            except Exception as error:  # the journals' disk
                assert "cannot" in str(error), error
        with committer(folder, history, clock) as one:
            one.claim()
            prober.send(0)
            one.commit()
        with committer(copied, history, clock) as one, pytest.raises(FolderCopied):
            one.claim()
        rows = table_rows(history)
        check_slices(rows)
        assert logged(rows, 2) == prober.must_be_logged()
        prober.kill()
        if not countdown.hit:
            break
        step += 1
    assert step > 3


def test_what_was_done_before_a_kill_and_could_not_be_appended_is_not_lost(
    folder: Path, history: Path, clock: StillClock
) -> None:
    """The copy began while the table could not be reached, worked, and was killed: it is refused when it begins again,
    and what it did is in the table."""
    an_original(folder, history, clock)
    copied, away = copy_of(folder), history.with_name("away")
    history.rename(away)
    history.write_text("in the way")
    with committer(copied, history, clock) as copy:
        with pytest.raises(HistoryUnavailable):
            copy.claim()
        prober = Prober.start(copied, 3, clock)
        prober.send(0)
        with pytest.raises(HistoryUnavailable):
            copy.commit()
        prober.invoke(1)
        prober.kill()
    history.unlink()
    away.rename(history)
    with committer(folder, history, clock) as one:
        one.claim()
    with committer(copied, history, clock) as copy, pytest.raises(FolderCopied):
        copy.claim()
    rows = table_rows(history)
    check_slices(rows)
    assert logged(rows, 3) == prober.must_be_logged() and closes(rows, 3) == {0: ["info"], 1: ["info"]}
    assert all((life / OVER).exists() for life in life_folders(copied))
    with committer(copied, history, clock) as copy:
        copy.claim()  # by its own name nobody else goes
