"""A committer whose journals, disk or host fail it: what is said, what goes on, and what is promised no further."""

import errno
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import probes.log.commits.history
import probes.log.commits.lives
from probes.log.commits.committer import CommitPace, Committer, committer
from probes.log.errors import HistoryUnavailable, JournalDamaged, JournalUnwritable
from probes.log.journals.segments import segments
from tests.probes.log.lives import (
    BEGIN,
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
        # Before it the table's first commit, and its names.
        assert order == ["fsync", "fsync", "fsync", *turn]
        order.clear()
        prober.send(0)
        one.commit()
        assert order == turn


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


def test_an_unusable_folder_is_one_clear_line(tmp_path: Path, history: Path, clock: StillClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnwritable, match="cannot use the journal folder"):
        Committer(tmp_path / "file", committer(tmp_path, history, clock)._history, clock).__enter__()
