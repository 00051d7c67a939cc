"""What of each committer's appends the table has, by the start of the committer that made them.

Within one start numbers only rise, so that the newest one tells which appends are there. A committer that begins anew
makes its last append again, whose start it has followed; and a journal folder and a copy of it may both append in the
committer's name for a while. So the newest numbers of its two last starts stand in the table, and an intake remembers
those of some more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from probes.log.commits.numbers import number_of, recorded, start_of
from probes.log.evidence.messages import Append

STARTS: Final = 8
"""Of each committer, so many are remembered,"""
COMMITTERS: Final = 4096
"""and of so many committers."""
LAST: Final = "/last"
"""With the committer's name: by what the table knows its start that has appended last. By the name alone an earlier
version of the monitor goes, which numbers alone are enough for."""
BEFORE: Final = "/before"
"""And the one that had before that."""

Starts = dict[int, int]
"""The newest number of each start, in the order in which they have appended last."""


class New(NamedTuple):
    """An append that the table does not have. `lacking`: so many before it are missing in the topic. `known`: the
    table has others of its committer. `beside`: another start of it has gone on from the same append."""

    append: Append
    lacking: int
    known: bool
    beside: bool


class Taken:
    """Of one table. What the table tells counts, and what is remembered only where it tells nothing."""

    def __init__(self) -> None:
        self._kept: dict[str, Starts] = {}

    def ask(self, appends: Sequence[Append], known: Mapping[str, int]) -> set[str]:
        """What the table has to be asked about as well, once it has told the last start of each committer."""
        found = set()
        for one in appends:
            last = known.get(one.app + LAST)
            if not last:
                found.add(one.app)
            elif start_of(last) != one.start:
                found.add(one.app + BEFORE)
        return found

    def starts(self, appends: Iterable[Append], known: Mapping[str, int]) -> dict[str, Starts]:
        """By committer, as the table and this object know them."""
        found = {}
        for app in {one.app for one in appends}:
            last = known.get(app + LAST)
            told = [known.get(app + BEFORE), last] if last else [known.get(app)]
            starts = dict(self._kept.get(app, {}))
            for version in filter(None, told):
                starts.pop(start_of(version), None)
                starts[start_of(version)] = number_of(version)
            found[app] = starts
        return found

    def note(self, starts: Mapping[str, Starts]) -> None:
        """The table has these now."""
        for app, told in starts.items():
            self._kept.pop(app, None)
            self._kept[app] = dict(list(told.items())[-STARTS:])
        while len(self._kept) > COMMITTERS:
            del self._kept[next(iter(self._kept))]


def sorted_out(appends: Iterable[Append], starts: Mapping[str, Starts], *, again: bool) -> list[New]:
    """Those that the table does not have, each once, in their order; `starts` then tells of them, too. `again`: what
    was read before may be among them, also of starts that nobody remembers: their numbers are below all known ones."""
    found = []
    for append in appends:
        known = starts[append.app]
        before, most = known.get(append.start, 0), max(known.values(), default=0)
        forgotten = min(known.values()) if again and len(known) > 1 else 0
        if append.version <= (before or forgotten):
            continue
        last = next(reversed(known), None)
        known.pop(append.start, None)
        beside = last != append.start if before else append.version <= most
        lacking = max(0, append.version - (before or most) - 1)
        known[append.start] = append.version
        found.append(New(append, lacking, bool(most), beside))
    return found


def versions(new: Iterable[New], starts: Mapping[str, Starts]) -> dict[str, int]:
    """What the table is to record with them."""
    found: dict[str, int] = {}
    for app in {one.append.app for one in new}:
        told = [recorded(start, number) for start, number in list(starts[app].items())[-2:]]
        found |= dict(zip((app + LAST, app + BEFORE), reversed(told), strict=False))
    return found
