"""A canary's healthy traffic, window by window, for as long as one likes: memory is what is measured with it.

Each partition gets one send of `per_send` records every `interval` seconds of log time, by the writers in turn; two
readers in assign mode poll it, an observer reads the offsets, a committer marks. Every `restart` seconds all writers
close and new ones begin, with new ids. The log start follows `retention` seconds behind the log's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rules.vocabulary.slices import SLICE_SCHEMA
from tests.bench.histories import BASE, SECOND, Ints, Runs, lists, made_rows

READERS = (500, 501)
OBSERVER, COMMITTER = 900, 901
FIRST_WRITER = 1_000


@dataclass(frozen=True)
class Traffic:
    """Seconds of log time, records."""

    per_send: int
    interval: float
    writers: int = 1
    restart: float = 60.0
    retention: float = 3600.0
    partition: int = 0

    def window(self, first: int, count: int) -> pa.Table:
        """The rows of sends number `first` .. first + count - 1, and all that belongs to their time."""
        number = np.arange(first, first + count)
        at = (BASE + SECOND + number * self.interval * SECOND).astype(np.int64)
        per_life = max(self.writers, round(self.restart / self.interval) // self.writers * self.writers)
        life, place = number // per_life, number % per_life
        writer = FIRST_WRITER + life * self.writers + place % self.writers
        turn = place // self.writers  # of this writer, in its life
        offset, seq = number * self.per_send, turn * self.per_send
        tables = [self._sends(at, writer, turn, offset, seq), *self._lives(number, at, writer, place, turn, per_life)]
        tables += [self._polls(reader, i, number, at, writer, offset, seq) for i, reader in enumerate(READERS)]
        tables += [self._observed(number, at, offset), self._marked(number, at, writer, turn, per_life)]
        whole = pa.concat_tables(tables)
        order = np.argsort(whole["completed"].cast(pa.int64()).to_numpy(), kind="stable")
        return whole.take(pa.array(order)).combine_chunks()

    def _made(self, at: Ints, **columns: Any) -> pa.Table:
        return made_rows(self.partition, len(at), invoked=at, completed=columns.pop("completed", at), **columns)

    def _sends(self, at: Ints, writer: Ints, turn: Ints, offset: Ints, seq: Ints) -> pa.Table:
        length = np.full(len(at), self.per_send)
        runs = lists(np.ones(len(at), np.int64), Runs(writer, seq, offset, length))
        return self._made(at, completed=at + 5_000, process=writer, op=turn + 1, slice=turn + 1, f="send", sent=runs)

    def _lives(
        self, number: Ints, at: Ints, writer: Ints, place: Ints, turn: Ints, per_life: int
    ) -> Iterator[pa.Table]:
        begun = place < self.writers
        settings = [[("writer", str(w)), ("idempotent", "true")] for w in writer[begun].tolist()]
        yield self._made(
            at[begun] - 2_000,
            process=writer[begun],
            op=0,
            slice=0,
            f="start",
            kind="writer",
            settings=pa.array(settings, SLICE_SCHEMA.field("settings").type),
        )
        ended = place >= per_life - self.writers
        yield self._made(at[ended] + 6_000, process=writer[ended], op=turn[ended] + 2, slice=turn[ended] + 2, f="close")
        if number[0] == 0:
            for reader in READERS:
                one = at[:1] - 1_000
                yield self._made(one, process=reader, op=0, slice=0, f="start", kind="reader")
                yield self._made(
                    one,
                    process=reader,
                    op=1,
                    slice=1,
                    f="assign",
                    mode="assign",
                    isolation="read_committed",
                    assigned=pa.array([True]),
                )

    def _polls(self, reader: int, i: int, number: Ints, at: Ints, writer: Ints, offset: Ints, seq: Ints) -> pa.Table:
        length = np.full(len(at), self.per_send)
        runs = lists(np.ones(len(at), np.int64), Runs(writer, seq, offset, length))
        when = at + 20_000 + i * 3_000
        return self._made(
            when,
            completed=when + 2_000,
            process=reader,
            op=number + 2,
            slice=number + 2,
            f="poll",
            polled=runs,
            position_before=offset,
            position_after=offset + self.per_send,
            isolation="read_committed",
            mode="assign",
        )

    def _observed(self, number: Ints, at: Ints, offset: Ints) -> pa.Table:
        gone = np.maximum(number - round(self.retention / self.interval), 0) * self.per_send
        end = offset + self.per_send
        return self._made(
            at + 30_000,
            process=OBSERVER,
            op=number,
            slice=number,
            f="offsets",
            log_start=gone,
            log_end=end,
            last_stable=end,
        )

    def _marked(self, number: Ints, at: Ints, writer: Ints, turn: Ints, per_life: int) -> pa.Table:
        """Each row vouches for the readers, the observer, and the writer that has just sent."""
        when = at + 40_000
        ended = number % per_life >= per_life - self.writers
        process = np.stack(
            [np.full(len(at), READERS[0]), np.full(len(at), READERS[1]), np.full(len(at), OBSERVER), writer]
        )
        slices = np.stack([number + 3, number + 3, number + 1, turn + 2 + ended])
        kind = SLICE_SCHEMA.field("marks").type
        values = pa.StructArray.from_arrays(
            [
                pa.array(process.T.reshape(-1)),
                pa.array(slices.T.reshape(-1)),
                pa.array(np.repeat(when, 4)).cast(pa.timestamp("us", tz="UTC")),
                pa.nulls(4 * len(at), pa.timestamp("us", tz="UTC")),
                pa.nulls(4 * len(at), pa.bool_()),
            ],
            fields=list(kind.value_type),
        )
        ends = (np.arange(len(at) + 1) * 4).astype(np.int32)
        return self._made(
            when,
            process=COMMITTER,
            op=number,
            slice=number,
            f="mark",
            marks=pa.ListArray.from_arrays(pa.array(ends), values, type=kind),
        )
