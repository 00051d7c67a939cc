"""From events to operations: who did what, when, with which records, as flat numpy columns.

An invocation and the completion that follows it in the same process are one operation; it takes its place in the order
of completions. A process has one operation open at a time: one that invokes another before it is refused. An invocation
that is never completed is indefinite (`info`), and ends with the history. A completion without invocation stands for
both, and nobody knows when it was invoked: no earlier than its process had completed the one before, or than the
history begins. That is when it *began*, wherever it matters what had completed before. Of a process that has invoked
such an operation before it is a second completion, and refused.

The file's order is that of the events. Where a time goes back, completions are held to be no earlier than what stands
before them, so that one operation comes before another only where the file and the times both say so.

A process that crashes (`:f :crash`) is another process afterwards, should its id be used again. Assign and subscribe
forget what they do not keep, hence they concern every partition that the process had touched.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.history_files.errors import Malformed
from monitor.history_files.names import PLAIN_VALUES, Interned, Names, Numbering, jsonable, shown
from monitor.screen import harmless
from rules.arrays.columns import ASSIGN, FAIL, INFO, OK, POLL, SEND, SUBSCRIBE, TXN

Ints = NDArray[np.int64]

LARGEST: Final = 2**62
PARTITIONS: Final = 2**31
PROCESSES: Final = 2**62

_CRASH: Final = -1
_FUNCTIONS: Final = {"send": SEND, "poll": POLL, "txn": TXN, "assign": ASSIGN, "subscribe": SUBSCRIBE, "crash": _CRASH}
_FUNCTIONS.update({f":{name}": code for name, code in list(_FUNCTIONS.items())})
_INVOKE: Final = -1
_TYPES: Final = {"invoke": _INVOKE, "ok": OK, "fail": FAIL, "info": INFO}
_TYPES.update({f":{name}": code for name, code in list(_TYPES.items())})
_SEND, _POLL = 0, 1
_MICRO: Final = {"send": _SEND, ":send": _SEND, "poll": _POLL, ":poll": _POLL}
_NAMES: Final = {code: name for name, code in _FUNCTIONS.items() if name[0] != ":"}
_NOBODY: Final = frozenset({"nemesis", ":nemesis"})
_BESIDE: Final = frozenset({"debug-topic-partitions", ":debug-topic-partitions"})
"""Functions that say nothing of records."""

BLOCK: Final = 2**18


class Head(NamedTuple):
    """What the operations table says of one operation before its records: which, whose and when; codes and times are
    those of `Operations`."""

    ordinal: int
    process: int
    f: int
    type: int
    begun: int
    invoked: int
    completed: int


class Table:
    """Rows of integers, gathered as they come and kept as numpy blocks."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.fresh: list[int] = []
        self._blocks: list[Ints] = []

    def flush(self) -> None:
        """Turn the fresh rows into a block. They are extended in place, so that their list stays the same object."""
        if self.fresh:
            self._blocks.append(np.array(self.fresh, np.int64).reshape(-1, self.width))
            self.fresh.clear()

    def columns(self) -> list[Ints]:
        """All rows, as one contiguous array a column. The table is empty afterwards."""
        self.flush()
        blocks, self._blocks = self._blocks, []
        return [
            np.concatenate([block[:, i] for block in blocks]) if blocks else np.empty(0, np.int64)
            for i in range(self.width)
        ]


@dataclass(slots=True)
class Records:
    """Sent and polled records; those of one operation in its order. `op` is the number of the operation, `key` twice
    the key's code, plus one for a polled record; `offset` is -1 where unknown; `value` is the value itself, or -1 less
    its place in the table of interned values."""

    op: Ints
    key: Ints
    offset: Ints
    value: Ints


@dataclass(slots=True)
class Rows:
    """What operations did to partitions without records: `assigned` is 1, 0, or -1 where they changed nothing."""

    op: Ints
    key: Ints
    assigned: Ints


@dataclass(slots=True)
class Taken:
    """Partitions that a rebalance during the operation named."""

    op: Ints
    key: Ints


@dataclass(slots=True)
class Operations:
    """Operations in the order of their completions, numbered from 0, and what they did.

    `ordinal` is the place in the file of the event that completed it, from 0; `process` and the `key`s are codes, whose
    final numbers are `processes` and `partitions`; `f` and `type` are codes of `rules.arrays.columns`; times are
    nanoseconds, from 0 on; `begun` is no later than the true invocation. `subscribed`: 1 if the process reads by
    subscription. `rebalanced`: 1 if rebalances named no partition, so that they concern all."""

    ordinal: Ints
    process: Ints
    f: Ints
    type: Ints
    begun: Ints
    invoked: Ints
    completed: Ints
    subscribed: Ints
    rebalanced: Ints
    records: Records
    rows: Rows
    taken: Taken
    errors: dict[int, str]
    partitions: Ints
    processes: Ints
    names: Names


class Recorder:
    """Takes in events one by one, in the order of the file; `finish` gives the operations."""

    def __init__(self) -> None:
        self._keys = Numbering(PARTITIONS)
        self._processes = Numbering(PROCESSES)
        self._interned = Interned()
        self._operations = Table(9)
        self._records = Table(4)
        self._rows = Table(3)
        self._taken = Table(2)
        self._errors: dict[int, str] = {}
        self._indices = array("q")  # of every event, -1 where it has none
        self._last_index = -1
        self._open: dict[int, tuple[int, int, int, int, Any]] = {}  # ordinal, line, f, time, value, by process
        self._invoked: set[tuple[int, int]] = set()  # process, f
        self._touched: defaultdict[int, set[int]] = defaultdict(set)  # partitions, by process
        self._subscribed: set[int] = set()
        self._crashed: dict[int, int] = {}  # the process that a crashed one becomes, or -1 until its id is used again
        self._lives: dict[int, int] = {}
        self._count = 0
        self._clock: int | None = None
        self._earliest = self._latest = 0
        self._first: int | None = None  # when the history begins
        self._ended: dict[int, int] = {}  # when each process last completed an operation
        self._read_or_wrote = False

    def add(self, line: int, event: Any) -> None:
        """Take in the next event, which stands at `line`. Raises `Malformed` with a line."""
        try:
            self._add(line, event)
        except Malformed as e:
            if e.line is None:
                e.line = line
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as e:
            raise Malformed(f"this is not an event of a Kafka workload: {shown(event)}", line) from e

    def _add(self, line: int, event: Any) -> None:
        get = event.get
        if "type" in event:
            kind, process, f, value = get("type"), get("process"), get("f"), get("value")
            time, index, error = get("time"), get("index"), get("error")
        else:
            kind, process, f, value = get(":type"), get(":process"), get(":f"), get(":value")
            time, index, error = get(":time"), get(":index"), get(":error")
        ordinal = len(self._indices)
        self._indices.append(self._index(index))
        if kind not in _TYPES:
            raise Malformed(f"the event's type is {shown(kind)}: it must be invoke, ok, fail or info")
        if type(time) is int and -LARGEST < time < LARGEST:
            self._clock = time
        elif time is not None:
            raise Malformed(f"the event's time is {shown(time)}: it must be a number of nanoseconds")
        else:
            time = ordinal if self._clock is None else self._clock
        if self._first is None:
            self._first = self._latest = time
        self._earliest, self._latest = min(self._earliest, time), max(self._latest, time)
        if process in _NOBODY or f in _BESIDE:
            return
        if f not in _FUNCTIONS:
            known = ", ".join(sorted(_NAMES.values()))
            raise Malformed("the event has no f" if f is None else f"the event's f is {shown(f)}: it must be {known}")
        if process is None:
            raise Malformed("the event has no process")
        try:
            own = self._processes.codes[process]
        except (KeyError, TypeError):
            own = self._processes.code(process)
        while own in self._crashed:
            own = self._next_life(own, process)
        function, outcome = _FUNCTIONS[f], _TYPES[kind]
        opened = self._open.pop(own, None)
        if outcome == _INVOKE:
            if opened is not None:
                raise Malformed(
                    f"process {shown(process)} invokes {_NAMES[function]} before its {_NAMES[opened[2]]} of line"
                    f" {opened[1]} has completed: a process has one operation open at a time"
                )
            self._open[own] = (ordinal, line, function, time, value)
            self._invoked.add((own, function))
            return
        invoked, begun = time, min(time, self._ended.get(own, self._first))
        self._ended[own] = time
        if opened is not None:
            invoked = begun = opened[3]
            value = _completed(process, function, outcome, value, opened)
        elif (own, function) in self._invoked:
            raise Malformed(
                f"process {shown(process)} completes {_NAMES[function]} and has none open: an invocation has one"
                " completion"
            )
        self._record(Head(ordinal, own, function, outcome, begun, invoked, self._latest), value, event)
        if error is not None and outcome != OK:
            self._errors[self._count - 1] = harmless(shown(error))

    def _index(self, index: Any) -> int:
        """An event's `:index`, -1 where it has none. Raises `Malformed` where the events are not in their order."""
        if type(index) is not int or not 0 <= index < LARGEST:
            return -1
        if index <= self._last_index:
            raise Malformed(
                f"the event's index is {index} after {self._last_index}: events stand in the order in which they"
                " happened"
            )
        self._last_index = index
        return index

    def _next_life(self, own: int, process: Any) -> int:
        following = self._crashed[own]
        if following < 0:
            life = self._lives.get(own, 1) + 1
            following = self._crashed[own] = self._processes.code(f"{shown(process)}, life {life}")
            self._lives[following] = life
        return following

    def _abandon(self, own: int, opened: tuple[int, int, int, int, Any], time: int) -> None:
        """Nothing ever completed this invocation."""
        ordinal, line, function, invoked, value = opened
        try:
            self._record(Head(ordinal, own, function, INFO, invoked, invoked, time), value, {})
        except Malformed as e:
            e.line = line
            raise

    def _record(self, head: Head, value: Any, event: dict[str, Any]) -> None:
        """`event` is the completion, {} where there was none."""
        if head.f == _CRASH:
            self._crashed[head.process] = -1
            self._touched.pop(head.process, None)
            return
        if head.f in (ASSIGN, SUBSCRIBE):
            rewound = event.get("seek-to-beginning?") or event.get(":seek-to-beginning?")
            self._reassign(head, value, rewound=bool(rewound))
            return
        self._read_or_wrote = True
        if value:
            self._micro(head.process, value)
        rebalances = event.get("rebalance-log") or event.get(":rebalance-log")
        everything = self._rebalance(rebalances) if rebalances else 0
        self._operation(head, everything)

    def _operation(self, head: Head, rebalanced: int = 0) -> None:
        self._operations.fresh.extend((*head, head.process in self._subscribed, rebalanced))
        self._count += 1
        for table in (self._operations, self._records):
            if len(table.fresh) > BLOCK:
                table.flush()

    def _micro(self, own: int, value: Any) -> None:
        """Note the records of a list of micro-operations. The one loop through which every record passes."""
        op, codes, touched = self._count, self._keys.codes, self._touched[own]
        extend, intern = self._records.fresh.extend, self._interned.place
        for micro in value:
            try:
                what = _MICRO[micro[0]]
                if what == _SEND:
                    _, key, sent = micro
                    try:
                        code = codes[key]
                    except (KeyError, TypeError):
                        code = self._keys.code(key)
                    touched.add(code)
                    offset = -1
                    if type(sent) is list:
                        offset, sent = sent
                        if type(offset) is not int or not 0 <= offset < LARGEST:
                            offset = _unknown(offset)
                    if type(sent) is not int or not 0 <= sent < PLAIN_VALUES:
                        sent = -1 - intern(sent)
                    extend((op, 2 * code, offset, sent))
                elif len(micro) > 1 and micro[1]:
                    for key, pairs in micro[1].items():
                        try:
                            code = codes[key]
                        except (KeyError, TypeError):
                            code = self._keys.code(key)
                        touched.add(code)
                        code += code + 1
                        for offset, polled in pairs:
                            if type(offset) is not int or not 0 <= offset < LARGEST:
                                offset = _unknown(offset)
                            if type(polled) is not int or not 0 <= polled < PLAIN_VALUES:
                                polled = -1 - intern(polled)
                            extend((op, code, offset, polled))
            except (TypeError, ValueError, IndexError, KeyError, AttributeError) as e:
                raise Malformed(
                    f"{shown(micro)} is neither [send, key, value], [send, key, [offset, value]], [poll] nor"
                    " [poll, {key: [[offset, value], ...]}]"
                ) from e

    def _reassign(self, head: Head, value: Any, *, rewound: bool) -> None:
        if not isinstance(value, list | tuple | frozenset):
            raise Malformed(f"{shown(value)} is not the list of keys that an assign or subscribe must have")
        named = {self._keys.code(key) for key in value}
        touched = self._touched[head.process]
        if head.type == FAIL:
            self._explicit(head, dict.fromkeys(named, -1))
            return
        (self._subscribed.add if head.f == SUBSCRIBE else self._subscribed.discard)(head.process)
        if rewound and touched & named:
            # Who seeks to the beginning gives up where it stood, and takes the partition anew.
            self._explicit(head, dict.fromkeys(touched & named, 0))
        self._explicit(head, dict.fromkeys(touched - named, 0) | dict.fromkeys(named, 1))
        self._touched[head.process] = named if head.type == OK else touched | named

    def _explicit(self, head: Head, rows: dict[int, int]) -> None:
        for code, assigned in rows.items():
            self._rows.fresh.extend((self._count, code, assigned))
        self._operation(head)

    def _rebalance(self, log: list[dict[str, Any]]) -> int:
        """Note the partitions that the operation's rebalances name; 1 if none of them names any."""
        named = [keys for entry in log if (keys := entry.get("keys", entry.get(":keys"))) is not None]
        for code in {self._keys.code(key) for keys in named for key in keys}:
            self._taken.fresh.extend((self._count, code))
        return 0 if named else 1

    def finish(self) -> Operations:
        """All operations. Raises `Malformed` for a history in which nothing was sent or polled."""
        for own, opened in sorted(self._open.items(), key=lambda item: item[1][0]):
            self._abandon(own, opened, self._latest)
        self._open.clear()
        if not self._read_or_wrote:
            raise Malformed("there is no send, poll or txn in it: nothing that could be checked")
        ordinal, process, f, kind, begun, invoked, completed, subscribed, rebalanced = self._operations.columns()
        base = min(self._earliest, 0)
        # Less than a microsecond an event is no time in nanoseconds, but a counter or microseconds: only order counts.
        unit = 1000 if self._latest - base < 1000 * len(self._indices) else 1
        begun, invoked, completed = ((times - base) * unit for times in (begun, invoked, completed))
        partitions, processes = self._keys.numbers(), self._processes.numbers()
        indices = np.frombuffer(self._indices, np.int64)
        given = indices >= 0
        names = Names(
            keys=dict(zip(partitions.tolist(), map(jsonable, self._keys.names), strict=True)),
            processes=dict(zip(processes.tolist(), map(jsonable, self._processes.names), strict=True)),
            interned=self._interned.values,
            indices=None if np.array_equal(indices[given], np.flatnonzero(given)) else indices,
        )
        return Operations(
            ordinal,
            process,
            f,
            kind,
            begun,
            invoked,
            completed,
            subscribed,
            rebalanced,
            Records(*self._records.columns()),
            Rows(*self._rows.columns()),
            Taken(*self._taken.columns()),
            self._errors,
            partitions,
            processes,
            names,
        )


def _completed(process: Any, function: int, outcome: int, value: Any, opened: tuple[int, int, int, int, Any]) -> Any:
    """The value of a completion, or of its invocation (as in `Recorder._open`) where it has none. Raises `Malformed`
    where it completes something else, or says nothing of what it polled."""
    if opened[2] != function:
        raise Malformed(
            f"process {shown(process)} completes {_NAMES[function]}, and had invoked {_NAMES[opened[2]]} in"
            f" line {opened[1]}"
        )
    if value is None and outcome == OK and (function == POLL or (function == TXN and _polls(opened[4]))):
        raise Malformed(f"the ok {_NAMES[function]} has no value: what it polled must stand there")
    return opened[4] if value is None else value


def _polls(value: Any) -> bool:
    """Whether there is a poll among the micro-operations of an invocation."""
    return any(_MICRO.get(micro[0]) == _POLL for micro in value or ())


def _unknown(offset: Any) -> int:
    """An offset that is no place in the log: absent, or one of the numbers by which clients say so."""
    if offset is None or (type(offset) is int and offset in (-1, -1001)):
        return -1
    raise Malformed(f"{shown(offset)} is not an offset")


def gather(events: Iterable[tuple[int, Any]]) -> Operations:
    """The operations of all (line, event) pairs. Raises `Malformed`, with a line where there is one."""
    recorder = Recorder()
    add = recorder.add
    for line, event in events:
        add(line, event)
    return recorder.finish()
