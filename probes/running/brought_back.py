"""A journal folder that is an older copy of itself: brought back from a backup or a snapshot.

Its probes have sent and polled since then what its journals do not tell. To go on under the same run would make every
such record one that nobody sent, and every commit of theirs a stranger's. So the lives that it holds are lost, as those
of a host that went down, and a new run begins: what the old one left in the topics proves nothing any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from probes.clock import Clock
from probes.log.commits.append_plan import load
from probes.log.commits.recovery import recover
from probes.log.errors import HistoryMismatch
from probes.log.journals.reader import BrokenJournal, LifeReader
from probes.log.journals.segments import life_folders, segments
from probes.log.rows import AT
from probes.running.probe_run import begin_run

KILLED: Final = 5_000_000
"""Microseconds by which records may be younger than journals: a life tells of itself each fifth of a second, and the
kernel keeps what it was told. A copy that is no older is not told from the folder itself."""
HOST_WENT_DOWN: Final = 60_000_000
"""The same where the host went down since, and took with it what the kernel had not written yet."""


def known_through(journal_folder: Path, boot: str) -> int:
    """Until when its journals tell, at least, of what was sent under its run (microseconds by the probes' clock): a
    record of its run that is younger was sent by who went on without this folder. 0 where they tell of nothing. `boot`:
    the one that the host is in."""
    told, boots = _last_told(journal_folder)
    return told and told + (KILLED if boots == {boot} else HOST_WENT_DOWN)


def give_up(journal_folder: Path, run: str, clock: Clock) -> str:
    """Take what the folder holds for lost, and begin another run; returns its id. Nobody may be at work in the folder.
    Raises `JournalUnwritable` and ProbeError."""
    recover(journal_folder, clock, lost=True)
    return begin_run(journal_folder, run)


def _last_told(journal_folder: Path) -> tuple[int, set[str]]:
    """The last moment that the folder tells of, by its probes' clock (microseconds), and the boots of those who do."""
    told, boots = 0, set()
    appended: dict[str, int] = {}
    try:
        if (plan := load(journal_folder)) is not None:
            told = plan.now
            boots |= {row[AT["boot"]] for rows in plan.marks.values() for row in rows}
            appended = {name: part.end for name, part in plan.parts.items()}
    except HistoryMismatch:  # the committer says so
        pass
    for life_folder in life_folders(journal_folder):
        if not (parts := segments(life_folder)):
            continue
        try:
            reader = LifeReader(life_folder, parts[-1][0])
        except (BrokenJournal, OSError):
            continue
        boots.add(reader.life.boot)
        if parts[-1][0] + parts[-1][1].stat().st_size != appended.get(life_folder.name):
            told = max(told, _newest(reader))  # the plan tells no less of what is appended
        reader.close()
    return told, boots


def _newest(reader: LifeReader) -> int:
    before = -1
    while reader.offset > before:
        before = reader.offset
        reader.read(1 << 20)
    in_flight: list[int] = [row[AT["invoked"]] for rows in reader.progress.open.values() for row in rows]
    return max([reader.progress.newest, *in_flight])
