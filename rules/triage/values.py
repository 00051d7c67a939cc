"""What rows say of values beside those before them: polled again, out of order, left out, at two places."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rules.arrays.columns import FAIL, OK, POLL, SEND, TXN, Runs
from rules.arrays.intervals import EMPTY, Ints, indices, merge_grouped, some, touched_grouped
from rules.triage.latest import Latest
from rules.triage.rows import Rows, label

LOOKS: Final = 12
"""What was sent is remembered for so many looks."""


class _Sent(NamedTuple):
    """Runs whose outcome is known: `value` numbers the writer in the partition."""

    place: Ints
    value: Ints
    writer: Ints
    seq: Ints
    end: Ints
    offset: Ints


class _Holes(NamedTuple):
    """Values [start, end) between two that a reader polled one after the other."""

    value: Ints
    start: Ints
    end: Ints
    looks: Ints


class Values:
    """Signs that values show."""

    def __init__(self) -> None:
        self._by_writer = Latest(2)
        self._by_reader = Latest(1)
        self._reflected = Latest(1)
        self._by_sender = Latest(2)
        self._acknowledged: deque[_Sent] = deque(maxlen=LOOKS)
        self._failed: deque[_Sent] = deque(maxlen=LOOKS)
        self._polled: deque[tuple[Ints, Ints, Ints]] = deque(maxlen=LOOKS)
        self._holes = _Holes(EMPTY, EMPTY, EMPTY, EMPTY)

    def look(self, rows: Rows) -> Iterator[str]:
        """The signs in these rows."""
        self._acknowledged.append(_sent(rows, OK))
        self._failed.append(_sent(rows, FAIL))
        polled = rows.polled
        good = (rows.type[polled.row] == OK) & rows.does(POLL, TXN)[polled.row]
        polled = polled if not some(~good) else polled.take(good)
        yield from self._order(rows, polled)
        acknowledged, failed = _all(self._acknowledged), _all(self._failed)
        self._polled.append(_committed(rows, polled))
        if self._was_polled(failed):
            yield "a polled value whose send or transaction had failed"
        if self._left_out(acknowledged, failed):
            yield "an acknowledged value that a reader left out"
        if self._acknowledged_back(self._acknowledged[-1]):
            yield "acknowledgements out of order"
        yield from _contradictions(rows, rows.polled, acknowledged)
        if self._reflected_again(rows):
            yield "an input that two transactions reflect"

    def _order(self, rows: Rows, polled: Runs) -> Iterator[str]:
        place, process = rows.place[polled.row], rows.process[polled.row]
        reader = label(process, place)
        end, until = polled.seq + polled.length, polled.offset + polled.length
        seq, offset = self._by_writer.follow(label(reader, polled.writer), end, until)
        onward = (offset >= 0) & (polled.offset >= offset)
        if some(onward & (polled.seq < seq)):
            yield "a value polled again, or out of order"
        alone = ~rows.subscribed[polled.row]  # who shares partitions with others begins again where the group stands
        if some(alone & (polled.offset < self._by_reader.follow(reader, until)[0])):
            yield "a reader that went back"
        left = indices(onward & (polled.seq > seq))
        value = label(polled.writer[left], place[left])
        fresh = _Holes(value, seq[left], polled.seq[left], np.zeros(len(left), np.int64))
        self._holes = _Holes(*(np.concatenate(pair) for pair in zip(self._holes, fresh, strict=True)))

    def _acknowledged_back(self, fresh: _Sent) -> bool:
        """Does a writer's later value stand before an earlier one?"""
        stands = indices(fresh.offset >= 0)
        until = fresh.offset[stands] + (fresh.end - fresh.seq)[stands]
        seq, offset = self._by_sender.follow(fresh.value[stands], fresh.end[stands], until)
        return some((offset >= 0) & (fresh.seq[stands] >= seq) & (fresh.offset[stands] < offset))

    def _was_polled(self, failed: _Sent) -> bool:
        """Was anything polled that had failed, whichever of the two was told first?"""
        polled = tuple(np.concatenate(columns) for columns in zip(*self._polled, strict=True))
        return some(touched_grouped((polled[0], polled[1], polled[2]), failed.value, failed.seq, failed.end))

    def _left_out(self, acknowledged: _Sent, failed: _Sent) -> bool:
        """Was anything acknowledged of what readers left out? What is known to have failed is asked about no more, what
        nobody has told the outcome of a few times."""
        holes = self._holes
        if not len(holes.value):
            return False
        bad = touched_grouped((acknowledged.value, acknowledged.seq, acknowledged.end), *holes[:3])
        known = touched_grouped((failed.value, failed.seq, failed.end), *holes[:3])
        keep = indices(~bad & ~known & (holes.looks < LOOKS))
        self._holes = _Holes(holes.value[keep], holes.start[keep], holes.end[keep], holes.looks[keep] + 1)
        return some(bad)

    def _reflected_again(self, rows: Rows) -> bool:
        sources = rows.sources
        row = sources.row
        good = indices((rows.type[row] == OK) & (sources.offset >= 0))
        if not len(good):
            return False
        good = good[rows.completed[row[good]].argsort(kind="stable")]
        until = sources.offset[good] + sources.length[good]
        return some(sources.offset[good] < self._reflected.follow(rows.place[row[good]], until)[0])


def _sent(rows: Rows, outcome: int) -> _Sent:
    sent = rows.sent
    at = indices((rows.type[sent.row] == outcome) & rows.does(SEND, TXN)[sent.row])
    place, writer, seq = rows.place[sent.row[at]], sent.writer[at], sent.seq[at]
    return _Sent(place, label(writer, place), writer, seq, seq + sent.length[at], sent.offset[at])


def _committed(rows: Rows, polled: Runs) -> tuple[Ints, Ints, Ints]:
    """What was polled at read_committed, merged, as (value, start, end)."""
    at = indices(rows.committed_only[polled.row])
    value = label(polled.writer[at], rows.place[polled.row[at]])
    return merge_grouped(value, polled.seq[at], polled.seq[at] + polled.length[at])


def _all(parts: deque[_Sent]) -> _Sent:
    return _Sent(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _contradictions(rows: Rows, polled: Runs, acknowledged: _Sent) -> Iterator[str]:
    stands = acknowledged.offset >= 0
    acked = _Sent(*(column[stands] for column in acknowledged))
    place = np.concatenate((rows.place[polled.row], acked.place))
    writer = np.concatenate((polled.writer, acked.writer))
    seq = np.concatenate((polled.seq, acked.seq))
    offset = np.concatenate((polled.offset, acked.offset))
    length = np.concatenate((polled.length, acked.end - acked.seq))
    if _contradict(label(writer, place), seq, length, offset - seq):
        yield "a value at two offsets"
    if _contradict(place, offset, length, label(writer, offset - seq)):
        yield "two values at an offset"


def _contradict(group: Ints, start: Ints, length: Ints, told: Ints) -> bool:
    """Do stretches of one group overlap that say something else?"""
    end = start + length
    _, alike_start, alike_end = merge_grouped(label(group, told), start, end)
    _, any_start, any_end = merge_grouped(group, start, end)
    return int((alike_end - alike_start).sum()) != int((any_end - any_start).sum())
