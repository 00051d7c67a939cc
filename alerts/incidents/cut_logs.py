"""Logs that were cut, and what follows from it.

A leader that lacks records, by an unclean election or with an older disk, cuts each log that it leads. What comes of it
has a dozen names in each topic: readers go back, offsets hold two values, commits are gone. Who was woken by it knows
that already. So what the cut of a log explains is folded under the one `log-truncation` of its cluster.

Each finding stays one, with its evidence. A sign (`SIGNS`) joins where it was found in a log that was cut, and
anywhere in the cluster about when one was cut: groups' offsets and transforms' outputs are kept in other partitions.
Records that are lost (`LOST`), and those that may be (`MISSING`), join only where they were in a log that was cut; a
loss elsewhere is told for itself.
A log that was cut gives its offsets again for as long as it grows through its old range, hours where it was long: that
an offset there holds two values, what was lost and what is there now, was said with the cut (`Cuts.gave_again`).
Logs that are cut later than `AFTER` are another disaster, and another incident.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from alerts.event import FindingEvent
from alerts.incidents.keys import Key, place_of

TRUNCATION: Final = "log-truncation"
SIGNS: Final = frozenset(
    {
        "eos-violation", "inconsistent-offsets", "int-nonmonotonic-poll", "int-poll-skip", "lost-commit",
        "nonmonotonic-poll", "nonmonotonic-send", "offset-regression", "poll-skip", "sequence-loss",
        "spurious-zero-offset",
    }
)  # fmt: skip
LOST: Final = frozenset({"late-record", "lost-write", "torn-transaction", "vanished-record"})
MISSING: Final = frozenset({"suspected", "unseen"})
"""Conditions that end when what is missing is found, and when it is found to be lost: so it is called in a log that was
cut, until that is known."""
BEFORE: Final = timedelta(seconds=30)
"""A cut is found with the first write after it, and readers have gone back by then."""
AFTER: Final = timedelta(seconds=60)
PLACES: Final = 10_000
KEPT: Final = 100


@dataclass(slots=True)
class CutLogs:
    """The logs of a cluster that were cut one soon after the other: one incident, which has this `number`. Of the first
    and of the newest the log time, and the partitions, `PLACES` at most."""

    number: int
    first: datetime
    newest: datetime
    places: set[Key] = field(default_factory=set)
    again: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """By place, the first offset and the last that the log gives again."""

    def note(self, cut: FindingEvent) -> None:
        """One more log was cut."""
        self.first, self.newest = min(self.first, cut.at), max(self.newest, cut.at)
        place = place_of(cut)
        if len(self.places) < PLACES:
            self.places.add(place)
        end, known = cut.evidence.get("log_end"), cut.evidence.get("known")
        if place in self.places and isinstance(end, int) and isinstance(known, int):
            first, last = self.again.get(place, (end, known))
            self.again[place] = min(first, end), max(last, known)

    def gave_again(self, event: FindingEvent) -> bool:
        """Are the two values that this finding tells of what an offset held before its log was cut, and since?"""
        first, last = self.again.get(place_of(event), (0, -1))
        offset, values = event.evidence.get("offset"), event.evidence.get("values")
        more = event.evidence.get("more_of_the_same", 0)  # found with it, further on
        return (
            event.anomaly == "inconsistent-offsets"
            and isinstance(offset, int)
            and first <= offset <= last - more
            and isinstance(values, list)
            and len(values) == 2
            and event.at >= self.first - BEFORE
        )

    def holds(self, event: FindingEvent) -> bool:
        """Is this finding one of them, or does it follow from them?"""
        if event.anomaly in LOST or (event.anomaly in SIGNS and place_of(event) in self.places):
            return event.at >= self.first - BEFORE and place_of(event) in self.places
        if event.anomaly in MISSING:
            return place_of(event) in self.places and self.near(event.at)
        return (event.anomaly == TRUNCATION or event.anomaly in SIGNS) and self.near(event.at)

    def near(self, at: datetime) -> bool:
        """Is this log time about when a log was cut?"""
        return self.first - BEFORE <= at <= self.newest + AFTER


class Cuts:
    """The incidents of logs that were cut: `KEPT` of each cluster, the newest."""

    def __init__(self) -> None:
        self._of: dict[str, list[CutLogs]] = {}

    def holding(self, event: FindingEvent) -> Iterator[int]:
        """The numbers of the incidents that this finding belongs to, the newest first."""
        return (cuts.number for cuts in reversed(self._of.get(event.cluster, [])) if cuts.holds(event))

    def gave_again(self, event: FindingEvent) -> int | None:
        """The number of the incident that said already what this finding says, however long ago. What was found about
        when the log was cut belongs to it as all else does."""
        known = reversed(self._of.get(event.cluster, []))
        return next((cuts.number for cuts in known if cuts.gave_again(event) and not cuts.near(event.at)), None)

    def note(self, cut: FindingEvent, number: int) -> CutLogs:
        """A log was cut, in this incident."""
        known = self._of.setdefault(cut.cluster, [])
        cuts = next((one for one in known if one.number == number), None)
        if cuts is None:
            cuts = CutLogs(number, cut.at, cut.at)
            known[:] = [*known, cuts][-KEPT:]
        cuts.note(cut)
        return cuts
