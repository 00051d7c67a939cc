"""Logs that were cut, and what follows from it.

A leader that lacks records, by an unclean election or with an older disk, cuts each log that it leads. What comes of it
has a dozen names in each topic: readers go back, offsets hold two values, commits are gone. Who was woken by it knows
that already. So what the cut of a log explains is folded under the one `log-truncation` of its cluster.

Each finding stays one, with its evidence. A sign (`SIGNS`) joins where it was found at an offset that was cut off, and
anywhere in the cluster about when one was cut: groups' offsets and transforms' outputs are kept in other partitions.
Records that are lost (`LOST`), and those that may be (`MISSING`), join only where they were in a log that was cut; a
loss elsewhere is told for itself, and so is one of what was written behind the old end, a minute after the cut. A log
that ends too low, and to which nobody has written since, was cut as well (`UNWRITTEN`). A writer of such a log, of
whose last records the leader lacks some, is refused by its sequence numbers (`REFUSED`) until it begins anew.
A log that was cut gives its offsets again for as long as it grows through its old range, hours where it was long: that
an offset there holds two values, what was lost and what is there now, was said with the cut (`CutLogs.said`), and so
were differences between a reading before it and one after it, whenever the two are compared: also just below where the
new leader's log ended, where replicas had differed already (`BELOW`). A reader that went back
over it when it was cut is no news either, whenever that is found, as where the state is rebuilt.
Logs that are cut later than `AFTER` are another disaster, and another incident. What was found in other partitions
before any of these logs was cut, each of which was known whole at some time, has another cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from alerts.event import FindingEvent
from alerts.incidents.keys import SIGNS_IN_A_LOG, Key, objects, place_of, subject_of
from rules.vocabulary.times import from_micros, micros

TRUNCATION: Final = "log-truncation"
SIGNS: Final = frozenset(
    {
        "eos-violation",
        "inconsistent-offsets",
        "int-nonmonotonic-poll",
        "int-poll-skip",
        "lost-commit",
        "nonmonotonic-poll",
        "nonmonotonic-send",
        "offset-regression",
        "poll-skip",
        "sequence-loss",
        "spurious-zero-offset",
    }
)
SOON: Final = timedelta(seconds=10)
"""The cut is found so long after its signs, at most: where its leader begins anew, the end of the log is listed some
seconds after the first write."""
TORN: Final = "torn-transaction"
LOST: Final = frozenset({"late-record", "lost-write", "nonlinearizable-register", TORN, "vanished-record"})
DUPLICATE: Final = "duplicate"
IN_A_CUT_LOG: Final = frozenset({DUPLICATE, "zombie-write"})
"""A writer that was never answered by the leader that is gone sends again to the next one, which may have the record
elsewhere; where a marker is gone a transaction may end otherwise. In that log alone: in others it has another cause."""
UNWRITTEN: Final = "stale-log-end"
COMPARED: Final = frozenset({"late-record", "vanished-record"})
"""Differences between two readings of an offset."""
MISSING: Final = frozenset({"suspected", "unseen"})
"""Conditions that end when what is missing is found, and when it is found to be lost: so it is called in a log that was
cut, until that is known."""
REFUSED: Final = "refused-writes"
OUT_OF_SEQUENCE: Final = frozenset({"OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID"})
BEFORE: Final = timedelta(seconds=90)
"""A cut is found with the first write after it, and readers have gone back by then: groups ask for their offsets once
brokers are back, and writers that have waited for long come again after a minute."""
SKIPS: Final = frozenset({"int-poll-skip", "poll-skip"})
"""Whoever reads such a log anew goes over what stood just below the cut, and is there no more."""
BELOW: Final = 1024
"""Offsets. A replica that was behind may hold other records than its leader below its own end as well, or none where
the new leader has written markers before its end was listed."""
READ_BEFORE: Final = timedelta(seconds=30)
"""What was read longer before a cut is found was read before it."""
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
    subjects: dict[str, Key] = field(default_factory=dict)
    """They by their names, as they stand in incidents, and in what is found of several partitions."""
    whole: datetime | None = None
    """When each of them may have been cut already: the first at which an offset was known that one of them lost. None
    where of one that is not told."""
    again: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """By place, the first offset and the last that the log gives again."""

    def note(self, cut: FindingEvent) -> None:
        """One more log was cut."""
        known_since = cut.evidence.get("known_since")
        since = from_micros(known_since) if isinstance(known_since, int) else None
        if not self.places:
            self.whole = since
        elif self.whole is not None:
            self.whole = None if since is None else min(self.whole, since)
        self.first, self.newest = min(self.first, cut.at), max(self.newest, cut.at)
        place = place_of(cut)
        if len(self.places) < PLACES:
            self.places.add(place)
            self.subjects[subject_of(cut)] = place
        told = [cut.evidence.get(name) for name in ("log_end", "written_again", "known")]
        end, written, known = (one if isinstance(one, int) else None for one in told)
        if place in self.places and end is not None and known is not None:
            first, last = self.again.get(place, (end, known))
            self.again[place] = min(first, end, end if written is None else written), max(last, known)

    def said(self, event: FindingEvent) -> bool:
        """Does this finding only tell what one log's order was like when that was cut, or compare what an offset of it
        held before with what it has held since?"""
        if event.anomaly in SIGNS_IN_A_LOG and place_of(event) in self.places and self.near(event.at):
            return True
        first, last = self.again.get(place_of(event), (0, -1))
        if event.anomaly in SKIPS:
            over = [one.get("offset") for one in objects(event.evidence, "skipped")]
            return bool(over) and all(isinstance(one, int) and first - BELOW <= one < first for one in over)
        offset = event.evidence.get("offset")
        more = event.evidence.get("more_of_the_same", 0)  # found with it, further on
        if event.anomaly in COMPARED and _led_by_others(event):
            first -= BELOW
        if not isinstance(offset, int) or not first <= offset <= last - more or event.at < self.first - READ_BEFORE:
            return False
        if event.anomaly == "inconsistent-offsets":
            values = event.evidence.get("values")
            return isinstance(values, list) and len(values) == 2
        apart = event.evidence.get("apart_s")  # two readings, of which the later one is told as when it was
        if event.anomaly not in COMPARED or not isinstance(apart, int | float):
            return False
        return event.at - timedelta(seconds=apart) <= self.newest + READ_BEFORE

    def holds(self, event: FindingEvent) -> bool:
        """Is this finding one of them, or does it follow from them?"""
        here = place_of(event) in self.places
        if event.anomaly == TORN and not here:
            return self.near(event.at) and self._tore(event)
        if event.anomaly in LOST:
            if not here or event.at < self.first - READ_BEFORE or self._one_leader_did(event):
                return False
            return self.near(event.at) or self._gave_up(event)
        if event.anomaly in SIGNS and here and event.at >= self.first - BEFORE and self._gave_up(event):
            return True
        if event.anomaly in MISSING | IN_A_CUT_LOG:
            return here and self.near(event.at)
        if event.anomaly == REFUSED:
            return here and self._lacks_records_of(event)
        return (event.anomaly in (TRUNCATION, UNWRITTEN) or event.anomaly in SIGNS) and self.near(event.at)

    def explains(self, anomaly: str, subjects: Collection[str]) -> bool:
        """Is what was told under this name, in these places, a sign of them where it was told just before?"""
        return anomaly in SIGNS or (anomaly == DUPLICATE and self.subjects.keys() >= set(subjects))

    def _tore(self, torn: FindingEvent) -> bool:
        """Did this transaction of several partitions lose what is absent, or its marker, where a log was cut?"""
        absent = torn.evidence.get("absent")
        if not isinstance(absent, dict):
            return False
        place = self.subjects.get(f"{absent.get('topic')}/{absent.get('partition')}")
        first, last = self.again.get(place or (), (0, -1))
        offset = absent.get("offset")
        return isinstance(offset, int) and first - BELOW <= offset <= last

    def _one_leader_did(self, event: FindingEvent) -> bool:
        """Was a record below the cut taken away under the leader that had given it? No election did that."""
        first, _ = self.again.get(place_of(event), (0, -1))
        offset = event.evidence.get("offset")
        below = isinstance(offset, int) and offset < first
        before, after = _leaders(event)
        return below and event.anomaly == "vanished-record" and before in after

    def _lacks_records_of(self, refused: FindingEvent) -> bool:
        """Has this writer had its last acknowledgement there before the log was cut, and been out of sequence since?"""
        acknowledged = refused.evidence.get("acknowledged", -1)
        was = isinstance(acknowledged, int) and 0 <= acknowledged <= micros(self.newest)
        return was and refused.evidence.get("error") in OUT_OF_SEQUENCE

    def _gave_up(self, event: FindingEvent) -> bool:
        """Is it about an offset that was cut off? What is lost behind those, once the log goes on, is another loss."""
        if place_of(event) not in self.again:
            return True  # nobody told which they are
        absent = event.evidence.get("absent")
        offset = event.evidence.get("offset", absent.get("offset") if isinstance(absent, dict) else None)
        first, last = self.again[place_of(event)]
        return isinstance(offset, int) and first <= offset <= last

    def near(self, at: datetime) -> bool:
        """Is this log time about when a log was cut?"""
        return self._earliest() <= at <= self.newest + AFTER

    def _earliest(self) -> datetime:
        """When the first sign of them may have been found."""
        early = self.first - BEFORE
        return early if self.whole is None else max(early, self.whole - SOON)


def _leaders(compared: FindingEvent) -> tuple[int | None, list[int]]:
    """The epochs of the leader that gave a record, and of those that gave none; those that are known."""
    before, after = compared.evidence.get("leader_epoch"), compared.evidence.get("passed_leader_epochs")
    known = [one for one in (after if isinstance(after, list) else [after]) if isinstance(one, int)]
    return before if isinstance(before, int) else None, known


def _led_by_others(compared: FindingEvent) -> bool:
    """Had the partition another leader at each of the two readings?"""
    before, after = _leaders(compared)
    return before is not None and bool(after) and before not in after


class Cuts:
    """The incidents of logs that were cut: `KEPT` of each cluster, the newest."""

    def __init__(self) -> None:
        self._of: dict[str, list[CutLogs]] = {}

    def holding(self, event: FindingEvent) -> Iterator[int]:
        """The numbers of the incidents that this finding belongs to, the newest first."""
        return (cuts.number for cuts in reversed(self._of.get(event.cluster, [])) if cuts.holds(event))

    def saying(self, event: FindingEvent) -> Iterator[CutLogs]:
        """The incidents that say already what this finding says, the newest first, however long ago they were."""
        return (cuts for cuts in reversed(self._of.get(event.cluster, [])) if cuts.said(event))

    def note(self, cut: FindingEvent, number: int) -> CutLogs:
        """A log was cut, in this incident."""
        known = self._of.setdefault(cut.cluster, [])
        cuts = next((one for one in known if one.number == number), None)
        if cuts is None:
            cuts = CutLogs(number, cut.at, cut.at)
            known[:] = [*known, cuts][-KEPT:]
        cuts.note(cut)
        return cuts
