"""A journal's messages as its frames hold them: by what they differ from the messages before.

Rows of one life follow from each other: a reader goes on where it was, a writer counts, an operation's rows have its
times. As they are they are most of what a canary writes to its disk, and twice: in the journal, and in the copy of it
that is synced. So what goes on by itself in each partition is told from what it was there, what is left is told from
the row before, and what is as it was there is left out. Compressed that takes half of what the rows do, measured.

    0, rows           for  rows
    1, op, rows       for  opened: op from the one that was opened before
    2, time           for  alive: from the one before

A row's value is a number where it differs from a number by that, 0 where it is what it was; other numbers, and
mappings, are in a mapping, {"": value}. All other messages, and those that cannot be told so, are as
`probes.log.journals.progress` says; an earlier version wrote them all like that.

Who reads follows from a segment's first frame on, and forgets where a new stream of compressed payloads begins. What is
remembered is one row, and numbers of each partition and of each writer in it: some `MOST`, then they are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Any, Final

import orjson

from probes.log.journals.frames import CONTINUED, Frame, Packer, Unpacker
from probes.log.journals.progress import Inconsistent, decode
from probes.log.rows import AT, Row

MOST: Final = 500
_ROWS, _OPENED, _ALIVE = 0, 1, 2
_INVOKED, _COMPLETED, _ENDING = AT["invoked"], AT["completed"], AT["end_invoked"]
_CLOCKS: Final = ((AT["mono_invoked"], _INVOKED), (AT["mono_completed"], _COMPLETED), (AT["mono_end_invoked"], _ENDING))
"""Nanoseconds of the monotonic clock and microseconds of the wall clock, at the same moment."""
_TOPIC_ID, _PARTITION, _SLICE = AT["topic_id"], AT["partition"], AT["slice"]
_BEFORE, _AFTER = AT["position_before"], AT["position_after"]
_GOING_ON: Final = tuple(AT[name] for name in ("log_start", "log_end", "last_stable", "committed"))
_RUNS: Final = (AT["sent"], AT["polled"])
_OFTEN: Final = AT["mode"] + 1
_NEW: Final = -1
"""In place of a writer's number, before its id."""


class Told:
    """What one side remembers: whoever writes, or whoever reads."""

    def __init__(self) -> None:
        self._last: Row = []
        self._op = self._time = 0
        self._at: dict[Any, int] = {}
        self._writers: dict[int, int] = {}
        """In the order of their numbers."""

    def differences(self, message: list[Any]) -> list[Any]:
        """The message as it is written."""
        kind = message[0]
        if kind == "rows":
            return [_ROWS, self._told(message[1], opened=False)]
        if kind == "opened":
            before, self._op = self._op, message[1]
            return [_OPENED, self._op - before, self._told(message[2], opened=True)]
        if kind == "alive":
            before, self._time = self._time, message[1]
            return [_ALIVE, self._time - before]
        return message

    def whole(self, message: list[Any]) -> list[Any]:
        """The message of which these are the `differences`. Raises `Inconsistent` where they follow from nothing."""
        kind = message[0]
        try:
            if kind == _ROWS:
                return ["rows", self._whole(message[1], opened=False)]
            if kind == _OPENED:
                self._op += message[1]
                return ["opened", self._op, self._whole(message[2], opened=True)]
            if kind == _ALIVE:
                self._time += message[1]
                return ["alive", self._time]
        except (AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError) as reason:
            raise Inconsistent(f"it differs from what was not told: {reason}") from reason
        return message

    def _told(self, rows: list[Row], *, opened: bool) -> list[list[Any]]:
        self._forget()
        told = []
        for row in rows:
            going_on = self._going_on(list(row), opened)
            told.append(_differences(self._last, going_on))
            self._last = going_on
        return told

    def _whole(self, told: list[list[Any]], *, opened: bool) -> list[Row]:
        self._forget()
        rows = []
        for one in told:
            self._last = _applied(self._last, one)
            rows.append(self._gone_on(list(self._last), opened))
        return rows

    def _forget(self) -> None:
        if len(self._at) > MOST:
            self._at.clear()
            self._writers.clear()

    def _going_on(self, row: Row, opened: bool) -> Row:
        """The row with the numbers of its partition as differences from the last ones there."""
        place, length = (row[_TOPIC_ID], row[_PARTITION]), len(row)
        for mono, wall in _CLOCKS:
            if length > mono and row[mono] is not None and row[wall] is not None:
                row[mono] -= row[wall] * 1000
        row[_COMPLETED] -= row[_INVOKED]
        if not opened:  # slices have no number before
            row[_SLICE] = self._step((place, _SLICE), row[_SLICE])
        for column in _GOING_ON:
            if length > column and row[column] is not None:
                row[column] = self._step((place, column), row[column])
        if length > _BEFORE and row[_BEFORE] is not None:
            before = row[_BEFORE]
            row[_BEFORE] = before - self._at.get((place, _AFTER), 0)
        else:
            before = 0
        if length > _AFTER and row[_AFTER] is not None:
            self._at[place, _AFTER] = row[_AFTER]
            row[_AFTER] -= before
        for column in _RUNS:
            if length > column and row[column]:
                row[column] = list(chain.from_iterable(self._run((place, column, opened), *run) for run in row[column]))
        return row

    def _gone_on(self, row: Row, opened: bool) -> Row:
        """The row of which that is `_going_on`, in the same order."""
        place, length = (row[_TOPIC_ID], row[_PARTITION]), len(row)
        row[_COMPLETED] += row[_INVOKED]
        for mono, wall in _CLOCKS:
            if length > mono and row[mono] is not None and row[wall] is not None:
                row[mono] += row[wall] * 1000
        if not opened:
            row[_SLICE] = self._stepped((place, _SLICE), row[_SLICE])
        for column in _GOING_ON:
            if length > column and row[column] is not None:
                row[column] = self._stepped((place, column), row[column])
        before = 0
        if length > _BEFORE and row[_BEFORE] is not None:
            before = row[_BEFORE] = row[_BEFORE] + self._at.get((place, _AFTER), 0)
        if length > _AFTER and row[_AFTER] is not None:
            row[_AFTER] += before
            self._at[place, _AFTER] = row[_AFTER]
        for column in _RUNS:
            if length > column and row[column]:
                row[column] = list(self._runs((place, column, opened), iter(row[column])))
        return row

    def _step(self, key: Any, value: int) -> int:
        before, self._at[key] = self._at.get(key, 0), value
        return value - before

    def _stepped(self, key: Any, step: int) -> int:
        value = self._at[key] = self._at.get(key, 0) + step
        return value

    def _run(self, key: Any, writer: int, seq: int, offset: int | None, length: int) -> list[Any]:
        """A run from where that writer was, and from the offset after the run before."""
        number = self._writers.get(writer)
        of = (key, writer)
        told: list[Any] = [_NEW, writer] if number is None else [number]
        if number is None:
            self._writers[writer] = len(self._writers)
        told += [seq - self._at.get(of, 0), None if offset is None else offset - self._at.get(key, 0), length]
        self._at[of] = seq + length
        if offset is not None:
            self._at[key] = offset + length
        return told

    def _runs(self, key: Any, told: Iterator[Any]) -> Iterator[list[Any]]:
        writers = list(self._writers)
        for number in told:
            writer = next(told) if number == _NEW else writers[number]
            if number == _NEW:
                self._writers[writer] = len(writers)
                writers.append(writer)
            seq, offset, length = next(told) + self._at.get((key, writer), 0), next(told), next(told)
            self._at[key, writer] = seq + length
            if offset is not None:
                offset += self._at.get(key, 0)
                self._at[key] = offset + length
            yield [writer, seq, offset, length]


def _differences(before: Row, row: Row) -> list[Any]:
    # The columns behind these say the same, or nothing, in row after row.
    width = _OFTEN if before[_OFTEN:] == row[_OFTEN:] else max(len(before), len(row))
    told = [
        0 if new is old else new - old if type(new) is int and type(old) is int else _value(old, new)
        for old, new in zip_longest(before[:width], row[:width])
    ]
    while told and told[-1] == 0 and told[-1] is not False:
        told.pop()
    return told


def _value(old: Any, new: Any) -> Any:
    kind = type(new)
    if kind is type(old) and new == old:
        return 0
    return {"": new} if kind is int or kind is dict else new


def _applied(before: Row, told: list[Any]) -> Row:
    row: Row = [
        (old + new if new else old) if type(new) is int else new[""] if type(new) is dict else new
        for old, new in zip_longest(before[: len(told)], told)
    ]
    row += before[len(told) :]
    while row and row[-1] is None:
        row.pop()
    return row


class MessagePacker:
    """Makes frames of messages, in the order in which they are written."""

    def __init__(self) -> None:
        self._packer = Packer()
        self._told = Told()

    def restart(self) -> None:
        """As `Packer.restart`."""
        self._packer.restart()
        self._told = Told()

    def frame(self, message: list[Any]) -> bytes:
        """The message as the next frame. Raises `ValueError` as `Packer` does, and orjson's errors."""
        try:
            payload = orjson.dumps(self._told.differences(message))
        except (LookupError, TypeError, ValueError):  # a clock of another age: differences of more than 64 bits
            self.restart()
            payload = orjson.dumps(message)
        try:
            return self._packer.frame(payload)
        except ValueError:
            self.restart()
            raise


class MessageUnpacker:
    """Makes messages of what frames hold, in the order in which they were written, from a segment's first on."""

    def __init__(self) -> None:
        self._unpacker = Unpacker()
        self._told = Told()

    def message(self, held: bytes) -> list[Any]:
        """Raises `ValueError` as `Unpacker` does, and `Inconsistent`, which is one."""
        if held[:1] != CONTINUED:
            self._told = Told()
        return self._told.whole(decode(self._unpacker.payload(held)))


def messages_of(found: list[Frame]) -> Iterator[list[Any]]:
    """Those of a segment's frames, from the first on. Raises `ValueError` as `MessageUnpacker` does."""
    unpacker = MessageUnpacker()
    return (unpacker.message(one.held) for one in found)
