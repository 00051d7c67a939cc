"""A committer that was away: what waits in journals is appended in pieces, and what marks say of it meanwhile."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from probes.log.commits.append_plan import load as planned
from probes.log.commits.append_plan import save
from probes.log.commits.committer import CommitPace, committer
from probes.log.commits.lives import SILENT, TURNS, Lives
from probes.log.journals.journal import Journal
from probes.log.journals.progress import LifeProgress
from probes.log.journals.segments import segments
from tests.known import known
from tests.probes.log.lives import (
    TOPIC_ID,
    Prober,
    StillClock,
    a_life,
    check_marks,
    check_slices,
    logged,
    table_rows,
)


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
    for _ in range(3_000):
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


@dataclass
class Unread:
    """A life's reader: so far it was read, and so much is left."""

    offset: int = 0
    left: int = 0
    name: str = "life"
    broken: str | None = None
    progress: LifeProgress = field(default_factory=LifeProgress)

    def unread(self) -> int:
        return self.left


@pytest.mark.parametrize(("left", "silent"), [(0, True), (9, False)])
def test_a_life_whose_journal_grows_is_not_silent_though_it_is_not_read_on(
    folder: Path, clock: StillClock, left: int, silent: bool
) -> None:
    """While there is a backlog each turn reads only so much."""
    lives, one = Lives(folder, clock), Unread(left=left)
    for turn in range(TURNS + 5):
        lives.look([one], turn * SILENT)  # type: ignore[list-item]
    assert lives.is_silent(one, (TURNS + 4) * SILENT) == silent  # type: ignore[arg-type]
