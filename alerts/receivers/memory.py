"""What a receiver was told, kept in a small file: a restart tells nobody anything twice, and leaves nothing out. Where
several monitors take turns, they keep it where all of them look.

It holds, for each occurrence of an incident that the receiver was told of, when it was told that it is open and that it
is over, how large it was when it was told last, and which times it was told where these tell alerts apart. Nothing is
lost with it but that: without the file, receivers are told again of what is open. An entry without a size is one of an
earlier version: what stands there is not told again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Size:
    """How large an incident was when it was told: its places, and the findings of its own name; which spell of it
    that was; whether records were lost, or inputs counted `twice`, with it, which its name does not tell of."""

    places: int
    findings: int
    spell: int = 1
    losses: bool = False
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """When a spell of an incident began, and when it was over, as its receiver was told; None while it was open. Its
    times may be known otherwise later: of another finding that belongs to it, or after a restart."""

    spell: int
    starts: datetime
    ends: datetime | None = None


@dataclass(slots=True)
class ToldTimes:
    """Machine times, None where it was not told. `size`: as it was told last, `sized` when that was; None where nobody
    knows. `stretch`: the times that were told with it."""

    open: datetime | None = None
    over: datetime | None = None
    size: Size | None = None
    sized: datetime | None = None
    stretch: Stretch | None = None

    @property
    def last(self) -> Literal["open", "over"] | None:
        """What it was told last."""
        if self.over is not None and (self.open is None or self.over >= self.open):
            return "over"
        return "open" if self.open is not None else None


class Kept(Protocol):
    """Where a text is kept. Both raise OSError, `read` FileNotFoundError where there is none yet."""

    def read(self) -> str: ...

    def write(self, text: str) -> None: ...


ROOM: Final = 8192
"""Bytes. A file takes at least half as much more than what stands in it, in blanks, and is a multiple of that."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file of this machine's, which is replaced as a whole.

    It has room, so that what has to be remembered while the disk is full is written into it where it stands: whoever
    was told of an outage then is to be told of its end after a restart too."""

    path: Path

    def read(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def write(self, text: str) -> None:
        told = text.encode()
        beside = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(told.ljust(-(-(len(told) + ROOM // 2) // ROOM) * ROOM))
            os.replace(beside, self.path)  # noqa: PTH105 - the same, and atomic by name
        except OSError as refused:
            beside.unlink(missing_ok=True)
            if refused.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._has_room(len(told)):
                raise
            with self.path.open("r+b") as file:
                file.write(told.ljust(self.path.stat().st_size))

    def _has_room(self, size: int) -> bool:
        return self.path.exists() and self.path.stat().st_size >= size


class Memory:
    """`began`: since when the receiver is told anything; what was over by then it is not told."""

    def __init__(self, kept: Kept | Path | None, now: datetime) -> None:
        self._kept = OnDisk(kept) if isinstance(kept, Path) else kept
        self.began = now
        self._told: dict[str, ToldTimes] = {}
        self._unwritten = False
        self._read()

    def of(self, occurrence: str) -> ToldTimes:
        """What the receiver was told of it; to change it, `note`."""
        return self._told.get(occurrence, ToldTimes())

    @property
    def newest(self) -> datetime:
        """When the receiver was told anything last, by the clock of whoever told it."""
        times = (at for told in self._told.values() for at in (told.open, told.over, told.sized) if at is not None)
        return max(times, default=self.began)

    @property
    def open(self) -> list[str]:
        """The occurrences that the receiver was told to be open, and not to be over."""
        return [one for one, told in self._told.items() if told.last == "open"]

    def note(self, occurrence: str, told: ToldTimes) -> None:
        """The receiver was told. Written at once; what cannot be written is tried again by `keep`."""
        self._told[occurrence] = told
        self._write()

    def keep(self, occurrences: Iterable[str]) -> None:
        """Forget all others: they are over for long."""
        known = set(occurrences)
        gone = [one for one in self._told if one not in known]
        for one in gone:
            del self._told[one]
        if gone or self._unwritten:
            self._write()

    def _read(self) -> None:
        if self._kept is None:
            return
        try:
            held = json.loads(self._kept.read())
            began = _time(held["began"]) or self.began
            told = {str(one): _told(kept) for one, kept in held["told"].items()}
        except FileNotFoundError:
            self._write()
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return  # it says nothing that can be understood: as if it were not there
        else:
            self.began, self._told = began, told

    def _write(self) -> None:
        if self._kept is None:
            return
        told = {one: _kept(told) for one, told in self._told.items()}
        try:
            self._kept.write(json.dumps({"began": _text(self.began), "told": told}))
        except OSError:
            self._unwritten = True
        else:
            self._unwritten = False


def _told(kept: list[Any]) -> ToldTimes:
    told = ToldTimes(_time(kept[0]), _time(kept[1]))
    size = kept[2] if len(kept) > 2 else None
    if size is not None:
        harm = bool(size.get("losses")), bool(size.get("twice"))
        told.size = Size(int(size["places"]), int(size["findings"]), int(size["spell"]), *harm)
        told.sized = _time(size["at"])
    if len(kept) > 3:
        spell, starts, ends = kept[3]
        told.stretch = Stretch(int(spell), datetime.fromisoformat(starts), _time(ends))
    return told


def _kept(told: ToldTimes) -> list[Any]:
    times: list[Any] = [_text(told.open), _text(told.over)]
    if told.size is not None:
        size = told.size
        times.append(asdict(size) | {"at": _text(told.sized)})
    if (stretch := told.stretch) is not None:
        times += [None] * (3 - len(times))
        times.append([stretch.spell, _text(stretch.starts), _text(stretch.ends)])
    return times


def _text(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat() if at is not None else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
