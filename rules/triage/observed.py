"""What rows say by themselves, and of a log's ends, commits and settings beside what was said before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import COMMIT, OFFSETS, OK, SEND, TXN, ZOMBIE
from rules.arrays.intervals import Ints, indices, some
from rules.triage.latest import MOST, Latest
from rules.triage.rows import Rows, label
from rules.vocabulary.settings import ASKED

_UNANSWERED: Final = "_TIMED_OUT"
_HARMLESS: Final = pa.array(
    [
        "_ASSIGNMENT_LOST",
        "_CRASHED",
        "_PURGE_QUEUE",
        "_REVOKE_PARTITIONS",
        "CONCURRENT_TRANSACTIONS",
        "ILLEGAL_GENERATION",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "UNSTABLE_OFFSET_COMMIT",
    ]
)
"""What comes of the probes' own unrest: of clients that are abandoned, and members that come and go."""
BEHIND: Final = 4
"""Looks after which somebody is expected to have polled what was acknowledged."""


class Observed:
    """Signs that no value shows."""

    def __init__(self) -> None:
        self._ends = {name: Latest(1) for name in ("log_start", "log_end", "last_stable")}
        self._committed = Latest(2)
        self._settings: dict[tuple[int, str], str] = {}
        self._polled = Latest(1)
        self._stable = Latest(1)
        self._acknowledged: deque[tuple[Ints, Ints]] = deque(maxlen=BEHIND)

    def look(self, rows: Rows) -> Iterator[str]:
        """The signs in these rows."""
        if rows.tells("irregular"):
            yield "irregular records"
        if rows.tells("altered"):
            yield "altered records"
        if some(rows.does(ZOMBIE) & (rows.type == OK)):
            yield "a zombie's request that was not refused"
        if _in_trouble(rows):
            yield "an error that a healthy cluster does not give"
        if _lost(rows):
            yield "a lost process"
        yield from self._ends_of(rows)
        if self._commits(rows):
            yield "a committed offset that went back"
        if self._set_anew(rows):
            yield "other settings"
        if self._unpolled(rows):
            yield "acknowledged records that nobody polled yet"

    def _ends_of(self, rows: Rows) -> Iterator[str]:
        observed = rows.does(OFFSETS)
        for name, latest in self._ends.items():
            told: Ints = getattr(rows, name)
            at = indices(observed & (told >= 0))
            if len(at) and some(told[at] < latest.follow(label(rows.process[at], rows.place[at]), told[at])[0]):
                yield f"{name} went back"

    def _commits(self, rows: Rows) -> bool:
        told = indices((rows.committed >= 0) & (rows.type == OK) & rows.does(COMMIT, OFFSETS, TXN))
        if not len(told):
            return False
        told = told[rows.completed[told].argsort(kind="stable")]
        keys = label(rows.groups()[told], rows.place[told])
        listed = rows.f[told] == OFFSETS
        offset, completed = self._committed.follow(keys, rows.committed[told], rows.completed[told], keep=~listed)
        return some(listed & (completed >= 0) & (completed < rows.invoked[told]) & (rows.committed[told] < offset))

    def _set_anew(self, rows: Rows) -> bool:
        """Do the observers tell of other settings, leaders or brokers than they did?"""
        told = indices(rows.does(OFFSETS) & rows.table["settings"].is_valid().to_numpy(zero_copy_only=False))
        anew = False
        if len(self._settings) > MOST:
            self._settings.clear()  # of topics that were made again and again
        for place, settings in zip(rows.place[told].tolist(), rows.plain(told, "settings"), strict=True):
            for name, value in settings:
                if name == ASKED:
                    continue  # it is another time each time
                key = (place, name)
                anew |= self._settings.get(key, value) != value
                self._settings[key] = value
        return anew

    def _unpolled(self, rows: Rows) -> bool:
        """Is there somewhere an acknowledged record that could be read some looks ago, beyond all that is polled?"""
        polled, listed = rows.polled, indices(rows.last_stable >= 0)
        self._stable.grow(rows.place[listed], rows.last_stable[listed])
        self._polled.grow(rows.place[polled.row], polled.offset + polled.length)
        sent = rows.sent
        sure = (sent.offset >= 0) & (rows.does(SEND, TXN) & (rows.type == OK))[sent.row]
        place, end = rows.place[sent.row][sure], (sent.offset + sent.length)[sure]
        readable = end <= self._stable.of(place)
        late = False
        if len(self._acknowledged) == BEHIND:
            before, acknowledged = self._acknowledged[0]
            late = some(acknowledged > self._polled.of(before)) if len(before) else False
        self._acknowledged.append((place[readable], end[readable]))
        return late


def _in_trouble(rows: Rows) -> bool:
    """Does any row tell of an error that is none of those by which probes are refused what they may not do, or told to
    ask again? Who asks what a group has committed waits in vain, for a minute, where a transaction that was abandoned
    holds that back; a cluster that answers nobody leaves others without an answer as well."""
    if not rows.tells("error"):
        return False
    error, of_group = rows.table["error"], rows.table["group"].is_valid()
    told = pc.and_(error.is_valid(), pc.invert(pc.is_in(error, _HARMLESS)))
    told = pc.and_not(told, pc.and_(of_group, pc.fill_null(pc.equal(error, _UNANSWERED), False)))
    return some(told.to_numpy(zero_copy_only=False) & ~rows.does(ZOMBIE))


def _lost(rows: Rows) -> bool:
    """Does a mark tell of a process whose log's end may be missing?"""
    if not rows.tells("marks"):
        return False
    return bool(pc.any(pc.list_flatten(rows.table["marks"].combine_chunks()).field("lost")).as_py())
