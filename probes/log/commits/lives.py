"""The lives whose journals a committer reads: who is there, who has died, whose log is not to be had, what can go."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from probes.clock import Clock
from probes.log.commits.append_plan import Part
from probes.log.commits.recovery import clear_rubbish, is_whole, recover_life
from probes.log.journals import written
from probes.log.journals.reader import BrokenJournal, LifeReader
from probes.log.journals.segments import BROKEN, LIVES, NEW, OVER, is_held, life_folders, segments

log = logging.getLogger("offsetwatch.committer")

HOST_LOST = "its host went down with it, and the end of its journal may be missing"
END_LOST = "the end of its journal is missing"


SILENT: Final = 5_000_000_000
"""Nanoseconds in which a living probe writes many times over that it lives, whatever it waits for."""
TURNS: Final = 3
"""And so many turns: who takes none for long was frozen itself."""


class Lives:
    """The journals of one folder, each read from where the last plan ended.

    `unverifiable`: name and reason of each journal that does not tell all that its process did. `unreadable`: of these
    the dead whose journals no longer hold what was read of them, so that they cannot be read on."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.unverifiable: dict[str, str] = {}
        self.unreadable: list[str] = []
        self._clock = clock
        self._readers: dict[str, LifeReader] = {}
        self._still: dict[str, tuple[int, int, int]] = {}
        """Of each life through where its journal was read, since when it has not grown (monotonic), and at how many
        turns."""

    def path(self, name: str) -> Path:
        return self.folder / LIVES / name

    def reading(self) -> list[LifeReader]:
        return [reader for reader in self._readers.values() if reader.broken is None]

    def reader(self, name: str, at: int) -> LifeReader:
        """The life's reader, begun at `at` where there is none yet. Raises `BrokenJournal`."""
        if name not in self._readers:
            self._readers[name] = LifeReader(self.path(name), at)
        return self._readers[name]

    def discover(self, read_to: Mapping[str, Part]) -> list[LifeReader]:
        """The readers of all lives that are still of interest; those that have died are finished first.

        Raises `JournalUnwritable` where a dead life cannot be finished."""
        folders = {folder.name: folder for folder in life_folders(self.folder)}
        for name in self._readers.keys() - folders.keys():
            self._taken_away(name)
        self.unreadable = []
        found = self._open(folders, read_to)
        for reader in found:
            if reader.broken is None and not reader.progress.over and not is_held(reader.folder):
                self._finish(reader)
        return found

    def newcomers(self, read_to: Mapping[str, Part]) -> list[LifeReader]:
        """The readers of lives that have begun since `discover`, which takes its time where many have died."""
        folders = {folder.name: folder for folder in life_folders(self.folder)}
        return self._open({name: folders[name] for name in folders.keys() - self._readers.keys()}, read_to)

    def _open(self, folders: Mapping[str, Path], read_to: Mapping[str, Part]) -> list[LifeReader]:
        """The readers of those that can be read, and are still of interest."""
        found = []
        for name, folder in folders.items():
            part = read_to.get(name)
            if part is not None and part.until is not None and name not in self._readers:
                continue
            try:
                found.append(self.reader(name, part.end if part is not None else 0))
            except BrokenJournal as reason:
                self.unverifiable[name] = str(reason)
                if part is not None and name not in self.unreadable and not is_held(folder):
                    self.unreadable.append(name)
        return found

    def _finish(self, reader: LifeReader) -> None:
        """Finish a life that has died. What was read of its journal, and is no longer there, is not written again."""
        if reader.is_cut_short():
            reader.broken = f"at byte {reader.offset}: what was read before it is gone"
            return
        if is_whole(reader.folder):
            return
        recovered = recover_life(reader.folder, self._clock)
        if recovered is not None and recovered.reason is not None:
            self.unverifiable[reader.name] = recovered.reason
            if not reader.unread():  # the damage lies in what was read already, and no end follows
                reader.broken = f"at byte {reader.offset}: {recovered.reason}"

    def look(self, readers: Iterable[LifeReader], mono: int) -> None:
        """Take note of who goes on writing, at this turn."""
        before, self._still = self._still, {}
        for reader in readers:
            if reader.progress.over:
                continue
            end, since, turns = before.get(reader.name, (-1, 0, 0))
            grows = reader.offset != end or reader.unread() > 0
            self._still[reader.name] = (reader.offset, mono, 1) if grows else (end, since, turns + 1)

    def is_silent(self, reader: LifeReader, mono: int) -> bool:
        """Has it not said for long that it lives, and has not ended either? Its process was frozen, or hangs: what it
        is at nobody knows, not even that it tries anything."""
        if reader.broken is not None or reader.progress.over or reader.progress.lost:
            return False
        _, since, turns = self._still.get(reader.name, (0, mono, 0))
        return bool(turns >= TURNS and mono - since >= SILENT)

    def after(self, reader: LifeReader, now: int) -> int | None:
        """Until when to vouch for a life, in microseconds of log time; None as long as its end is not read."""
        if reader.broken is not None:
            lives = is_held(reader.folder)
            if reader.name not in self.unverifiable:
                log.warning(
                    "the journal %s is broken %s: what it holds from there on is lost", reader.folder, reader.broken
                )
                if lives:  # its process would go on, and nobody could say of anything that it did
                    with contextlib.suppress(OSError):
                        (reader.folder / BROKEN).write_text(f"it is broken {reader.broken}")
            self.unverifiable[reader.name] = f"its journal is broken {reader.broken}"
            return None if lives else now
        if reader.progress.lost:
            self.unverifiable[reader.name] = HOST_LOST if reader.life.boot != self._clock.boot else END_LOST
        return now if reader.progress.over else None

    def clear(self, parts: Mapping[str, Part], now: int, keep: timedelta) -> None:
        """Delete what `parts`, which are in the table, make superfluous: whole segments of lives that go on, and the
        journals of those that were over for `keep`. A broken journal is kept as it is."""
        kept = keep // timedelta(microseconds=1)
        for name, part in parts.items():
            folder = self.path(name)
            if part.until is None:
                for (_, path), (following, _) in pairwise(segments(folder)):
                    if following <= part.end:
                        path.unlink(missing_ok=True)
            elif part.until < now:
                self._let_go(name)
                if part.until + kept < now and (folder / OVER).exists():
                    self._delete(folder)
        clear_rubbish(self.folder, self._clock)

    def forget(self) -> None:
        """Let go of all readers: the next ones begin where they are told to."""
        for name in list(self._readers):
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        if (reader := self._readers.pop(name, None)) is not None:
            reader.close()

    def _taken_away(self, name: str) -> None:
        if not self._readers[name].progress.over:
            self.unverifiable[name] = "its journal was taken away"
        self._let_go(name)

    def _delete(self, folder: Path) -> None:
        # Under another name first: a life's folder is there whole or not at all.
        away = folder.with_name(folder.name + NEW)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)
        written.forget(folder)
        self.unverifiable.pop(folder.name, None)
