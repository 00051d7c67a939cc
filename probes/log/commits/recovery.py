"""Finishing dead lives, so that nothing that was in flight is taken for a failure, and nothing stays open for ever.

A life is dead when nobody holds its journal's lock and the journal has no end. What it had opened and not finished is
logged as `info`, and each partition gets a close row of type `info`, in one frame together with the journal's end: a
crash of the recovery leaves all of it or nothing, and doing it again changes nothing.

Nobody saw an operation in flight end: it went on at least until the journal last heard of it, and until the process
died at most. Its row completes when the life is found dead, which is never too early: nothing that it polled, and
nothing that saw what it sent, is taken to have come after its end.

Where the host itself went down (another boot id), the last second or so of the journal may be gone. So is the end of a
journal that does not hold all that was written (`probes.log.journals.written`), as a bad disk leaves it; where nobody
tells how much that was, a torn end is taken for a sign of it. Then the sequence numbers that were reserved and not
logged are logged as `info` sends as well, since they may have left, and there is no close row: that process stays
unverifiable. So does one whose journal is broken in the middle, which is left as it is.
Of a boot that is over, the monotonic clock tells no end: what was in flight then completed by the wall clock alone.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from probes.clock import Clock
from probes.log.errors import JournalUnwritable
from probes.log.journals import written
from probes.log.journals.differences import messages_of
from probes.log.journals.frames import frames
from probes.log.journals.journal import Journal, OpenSegment
from probes.log.journals.progress import Inconsistent, Life, LifeProgress, from_head
from probes.log.journals.segments import LIVES, NEW, OVER, SUFFIX, is_held, life_folders, lock, segments
from probes.log.rows import unpack
from rules.vocabulary.slices import DIED, Run, Slice
from rules.vocabulary.times import from_micros

HOST_LOST = "host-lost"
"""The error code of rows that recovery writes for a process whose host went down with it; else it is `DIED`."""

ABANDONED = timedelta(minutes=1)
"""A life's folder that was not finished being made or deleted after this time is rubbish."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A dead life and what was done about it. `closed`: its log is complete. `lost` (the host went down, or the end of
    the journal is missing) and `broken` (with the reason): it stays unverifiable. `in_flight` operations had no
    outcome."""

    folder: Path
    life: Life | None
    outcome: Literal["closed", "lost", "broken"]
    in_flight: int = 0
    reason: str | None = None


def recover(folder: Path, clock: Clock, *, lost: bool = False) -> list[Recovered]:
    """Finish every dead life under `folder`, the journal folder; returns those that were found unfinished. `lost`: the
    ends of their journals are known to be missing.

    The committer does this as it goes; call it as well before the first probe starts, where no committer runs. Raises
    `JournalUnwritable`."""
    clear_rubbish(folder, clock)
    done = []
    for life_folder in life_folders(folder):
        if not (life_folder / OVER).exists() and (one := recover_life(life_folder, clock, lost=lost)) is not None:
            done.append(one)
    return done


def is_whole(life_folder: Path) -> bool:
    """Has the life ended in order, and does its journal hold all that was written? Then there is nothing to finish, and
    who only wants to know that need not take its messages apart."""
    through = written.told(life_folder) if (life_folder / OVER).exists() else None
    parts = segments(life_folder)
    if through is None or not parts:
        return False
    base, path = parts[-1]
    data = path.read_bytes()
    return base + len(data) >= through and frames(data)[1] == "clean"


def recover_life(life_folder: Path, clock: Clock, *, lost: bool = False) -> Recovered | None:
    """Finish one life if it is dead and unfinished; None where it lives, is over already, or has gone. `lost`: the end
    of its journal is known to be missing."""
    held = lock(life_folder)
    if held is None:
        return None
    try:
        journal, lacks_end = _take_over(life_folder, held)
    except BrokenEnd as broken:
        os.close(held)
        return Recovered(life_folder, broken.life, "broken", reason=str(broken))
    except OSError as refused:
        os.close(held)
        raise JournalUnwritable(f"cannot recover the journal {life_folder}: {refused.strerror}") from refused
    except BaseException:
        os.close(held)
        raise
    try:
        if journal.progress.over:
            return None
        lost = lost or lacks_end or journal.life.boot != clock.boot
        in_flight = len(journal.progress.open)
        rows = list(last_rows(journal.life, journal.progress, clock, lost=lost))
        journal.finish(rows, lost_by=clock.now() if lost else None)
        return Recovered(life_folder, journal.life, "lost" if lost else "closed", in_flight)
    finally:
        journal.close()


def last_rows(life: Life, progress: LifeProgress, clock: Clock, *, lost: bool) -> Iterator[Slice]:
    """What is still to be logged for a dead life, `slice` numbers left out."""
    host_lost = life.boot != clock.boot
    code = HOST_LOST if host_lost else DIED
    topics = dict(progress.topics)
    left = [unpack(packed, life.shared) for rows in progress.open.values() for packed in rows]
    # Not earlier than what the dead process has logged, whatever the host's clock says now.
    said, mono = clock.both()
    now = max([said, from_micros(progress.newest), *(row.completed for row in left)])
    for row in left:
        row.type, row.error, row.completed = "info", row.error or code, now
        row.mono_completed = None if host_lost else max(mono, row.mono_completed or 0)
        topics.setdefault((row.topic_id, row.partition), row.topic)
        yield row
    op = progress.last_op
    if lost and life.writer is not None:
        # They left after all that the journal tells of, and before the life was found over.
        since = from_micros(progress.newest) if progress.newest else now
        for (topic_id, partition), sent in progress.sent.items():
            if sent.reserved > sent.used:
                op += 1
                run = Run(life.writer, sent.used, None, sent.reserved - sent.used)
                about = {"op": op, "f": "send", "invoked": since, "completed": now, "boot": life.boot, "sent": (run,)}
                yield _row(life, topic_id, sent.topic, partition, error=code, **about)
    if lost:
        return
    about = {"op": op + 1, "f": "close", "invoked": now, "completed": now, "boot": clock.boot}
    for (topic_id, partition), topic in topics.items():
        if (topic_id, partition) not in progress.ended:
            monotonic = {"mono_invoked": mono, "mono_completed": mono}
            yield _row(life, topic_id, topic, partition, error=code, **about, **monotonic)


def _row(life: Life, topic_id: str, topic: str, partition: int, **told: Any) -> Slice:
    """A row of type `info` in this place that the dead life did not log itself, its `slice` number left out."""
    return Slice(
        cluster=life.cluster,
        topic_id=topic_id,
        topic=topic,
        partition=partition,
        run=life.run,
        process=life.process,
        slice=-1,
        type="info",
        transactional_id=life.transactional_id,
        **told,
    )


def clear_rubbish(folder: Path, clock: Clock) -> None:
    """Delete folders of lives that were never finished being made, or being deleted."""
    try:
        entries = list((folder / LIVES).iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.endswith(NEW):
            try:
                age = clock.now().timestamp() - entry.stat().st_mtime
            except FileNotFoundError:
                continue
            if age > ABANDONED.total_seconds() and not is_held(entry):
                shutil.rmtree(entry, ignore_errors=True)


class BrokenEnd(Exception):
    """A journal's last segment does not tell how its life ended."""

    def __init__(self, reason: str, life: Life | None = None) -> None:
        super().__init__(reason)
        self.life = life


def _take_over(life_folder: Path, held: int) -> tuple[Journal, bool]:
    """The dead life's journal, open at the end of its last good frame; and whether it lacks some that was written."""
    parts = segments(life_folder)
    if not parts:
        raise BrokenEnd(f"{life_folder} holds no journal")
    for left_over in life_folder.glob(f"*{SUFFIX}{NEW}"):
        left_over.unlink(missing_ok=True)
    base, path = parts[-1]
    data = path.read_bytes()
    found, ending = frames(data)
    told = messages_of(found)
    life, progress = _head(told)
    if ending == "broken":
        raise BrokenEnd(f"{path} is damaged at byte {found[-1].end}, with good frames after it", life)
    try:
        for one in told:
            progress.apply(one)
    except (Inconsistent, LookupError, TypeError, ValueError) as reason:
        raise BrokenEnd(f"{path}: {reason}", life) from reason
    end = found[-1].end
    descriptor = os.open(path, os.O_RDWR)
    try:
        if ending == "torn" and progress.over:
            os.ftruncate(descriptor, end)
    except BaseException:
        os.close(descriptor)
        raise
    through = written.told(life_folder)
    lacks_end = ending == "torn" if through is None else base + end < through
    # No other segment is begun: what this one lacks could no longer be seen, should this recovery die.
    journal = Journal(life_folder, life, progress, held, OpenSegment(descriptor, base, end), sys.maxsize)
    return journal, lacks_end


def _head(told: Iterator[list[Any]]) -> tuple[Life, LifeProgress]:
    """What the first of a segment's messages tells."""
    try:
        life, progress, _ = from_head(next(told))
    except (Inconsistent, LookupError, StopIteration, TypeError, ValueError) as reason:
        raise BrokenEnd("the segment's head cannot be read") from reason
    return life, progress
