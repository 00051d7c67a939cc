"""What a receiver was told, kept in a small file: a restart tells nobody anything twice, and leaves nothing out.

It holds, for each occurrence of an incident that the receiver was told of, when it was told that it is open and that it
is over, and how large it was when it was told last. Nothing is lost with it but that: without the file, receivers are
told again of what is open. An entry without a size is one of an earlier version: what stands there is not told again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Size:
    """How large an incident was when it was told: its places, and the findings of its own name; which spell of it that
    was; and how often it had reached further by then."""

    places: int
    findings: int
    spell: int = 1
    grown: int = 0


@dataclass(slots=True)
class Told:
    """Machine times, None where it was not told. `size`: as it was told last, `sized` when that was; None where nobody
    knows."""

    open: datetime | None = None
    over: datetime | None = None
    size: Size | None = None
    sized: datetime | None = None

    @property
    def last(self) -> Literal["open", "over"] | None:
        """What it was told last."""
        if self.over is not None and (self.open is None or self.over >= self.open):
            return "over"
        return "open" if self.open is not None else None


class Memory:
    """`began`: since when the receiver is told anything; what was over by then it is not told."""

    def __init__(self, path: Path | None, now: datetime) -> None:
        self._path = path
        self.began = now
        self._told: dict[str, Told] = {}
        self._read()

    def of(self, occurrence: str) -> Told:
        """What the receiver was told of it; to change it, `note`."""
        return self._told.get(occurrence, Told())

    def note(self, occurrence: str, told: Told) -> None:
        """The receiver was told. Written at once; a disk that is full makes it a memory of this process alone."""
        self._told[occurrence] = told
        self._write()

    def keep(self, occurrences: Iterable[str]) -> None:
        """Forget all others: they are over for long."""
        known = set(occurrences)
        gone = [one for one in self._told if one not in known]
        for one in gone:
            del self._told[one]
        if gone:
            self._write()

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            held = json.loads(self._path.read_text(encoding="utf-8"))
            began = _time(held["began"]) or self.began
            told = {str(one): _told(kept) for one, kept in held["told"].items()}
        except FileNotFoundError:
            self._write()
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return  # it says nothing that can be understood: as if it were not there
        else:
            self.began, self._told = began, told

    def _write(self) -> None:
        if self._path is None:
            return
        told = {one: _kept(told) for one, told in self._told.items()}
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps({"began": _text(self.began), "told": told}), encoding="utf-8")
            os.replace(beside, self._path)  # noqa: PTH105 - the same, and atomic by name
        except OSError:
            return


def _told(kept: list[Any]) -> Told:
    told = Told(_time(kept[0]), _time(kept[1]))
    if len(kept) > 2:
        size = kept[2]
        grown = int(size.get("grown", 0))  # an earlier version did not tell how far a cut reached
        told.size = Size(int(size["places"]), int(size["findings"]), int(size["spell"]), grown)
        told.sized = _time(kept[2]["at"])
    return told


def _kept(told: Told) -> list[Any]:
    times: list[Any] = [_text(told.open), _text(told.over)]
    if told.size is not None:
        size = told.size
        times.append(
            {
                "places": size.places, "findings": size.findings, "spell": size.spell, "grown": size.grown,
                "at": _text(told.sized),
            }
        )  # fmt: skip
    return times


def _text(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat() if at is not None else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
