"""What the probe log does not have of the journals yet: it is told also while nothing can be appended, and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.log.commits import backlog as backlogs
from probes.log.commits.append_plan import Part
from probes.log.commits.backlog import Spool, backlog, planned
from probes.log.commits.committer import CommitPace, committer
from probes.log.commits.history import History
from probes.log.errors import HistoryUnavailable, JournalUnwritable
from probes.log.journals.segments import life_folders, segments
from rules.vocabulary.slices import UNWRITABLE
from tests.probes.log.lives import Prober, StillClock, table_rows, wait_for
from tests.probes.test_supervisor import Running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(backlogs, "LOOK_EVERY", 0.0)
    one = Running(folder)
    yield one
    one.stop()


def taken(folder: Path) -> int:
    """What all journals of the folder hold: nothing of them was deleted."""
    return sum(path.stat().st_size for life in life_folders(folder) for _, path in segments(life))


def sent(prober: Prober, times: int) -> None:
    for _ in range(times):
        prober.send(0)


def test_it_is_told_while_the_probe_log_is_away(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StillClock()
    prober, history = Prober.start(folder, 1, clock), tmp_path / "history"
    with committer(folder, history, clock) as one:
        one.drain()
        before = taken(folder)
        assert one.status().backlog == 0
        monkeypatch.setattr(History, "append", away)
        sent(prober, 300)
        for _ in range(2):  # as it was planned, and once more
            with pytest.raises(HistoryUnavailable):
                one.commit()
            assert one.status().backlog == taken(folder) - before
        sent(prober, 300)
        Prober.start(folder, 2, clock)
        assert one.status().backlog == taken(folder) - before, "also of what nobody has read, and of a new life"
        told = one.status().backlog
    monkeypatch.undo()
    with committer(folder, history, clock) as another:
        read = told - another.status().backlog
        assert 0 <= read < told / 2 + 500, "whether what was planned was appended, it has not asked yet"
        another.drain()
        assert another.status().backlog == 0
    assert len(table_rows(history)) > 600


def away(*_: object) -> None:
    raise HistoryUnavailable("it is away")


def test_what_is_over_and_appended_is_none(folder: Path, tmp_path: Path) -> None:
    clock = StillClock()
    first, second = (Prober.start(folder, n, clock) for n in (1, 2))
    sent(first, 20)
    first.close()
    with committer(folder, tmp_path / "history", clock, CommitPace()) as one:
        one.drain()
        sent(second, 20)
        rest = taken(folder) - sum(part.end for part in planned(folder).values())
        assert one.status().backlog == rest > 0
    assert backlog(folder, {}) == taken(folder), "where nothing is known of appends"
    broken = {life.name: Part(0, 10, until=1) for life in life_folders(folder)}
    assert backlog(folder, broken) == 0, "what cannot be read of a life that is over is waited for by nobody"
    assert backlog(tmp_path / "nowhere", {}) == 0


def test_a_bound_is_reached_and_left_with_a_tenth_between(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prober = Prober.start(folder, 1, StillClock())
    sent(prober, 200)
    size = taken(folder)
    monkeypatch.setattr(backlogs, "LOOK_EVERY", 0.0)
    Spool(folder, None).check()
    Spool(folder, size + 1).check()
    spool = Spool(folder, size)
    for planned_, full in ((None, True), (size // 20, True), (size // 9, False), (size // 20, False), (None, True)):
        appended = {} if planned_ is None else {life.name: Part(0, planned_) for life in life_folders(folder)}
        monkeypatch.setattr(backlogs, "planned", lambda _, of=appended: of)
        if full:
            with pytest.raises(JournalUnwritable, match=r"hold .* GB that the probe log does not have, of .* may"):
                spool.check()
        else:
            spool.check()


def test_it_is_looked_at_once_in_a_while(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []

    def planned(of: Path) -> dict[str, Part]:
        looked.append(of)
        return {}

    monkeypatch.setattr(backlogs, "planned", planned)
    spool = Spool(folder, 1000)
    for _ in range(5):
        spool.check()
    assert looked == [folder]


@pytest.mark.long
def test_probes_end_in_order_at_the_bound_and_begin_anew_below_it(running: Running) -> None:
    running.start(journal_max_gb=2e-6)
    running.until(1, "close")
    wait_for(lambda: running.supervisor.status()[0].lives > 3)
    assert running.diary.of("close") == ["scripted"], "nothing begins meanwhile"
    assert "probes.journal_max_gb" in (running.supervisor.status()[0].last_error or "")
    clock = StillClock(running.clock.now())
    with committer(running.folder, running.folder.parent / "history", clock) as one:
        one.drain()
        lives = running.supervisor.status()[0].lives
        wait_for(lambda: running.diary.did(lives, "turn") or running.diary.did(lives + 1, "turn"))
    running.stop()
    assert ("info", UNWRITABLE) in running.endings()
