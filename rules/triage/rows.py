"""Rows of the probe log, of many partitions, as the columns that triage looks at."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import Runs, codes_of, integers, is_text, runs_of
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.vocabulary.slices import FUNCTIONS, OUTCOMES

WANTED: Final = (
    "cluster",
    "topic_id",
    "partition",
    "process",
    "slice",
    "f",
    "type",
    "invoked",
    "completed",
    "sent",
    "polled",
    "irregular",
    "altered",
    "sources",
    "log_start",
    "log_end",
    "last_stable",
    "committed",
    "group",
    "isolation",
    "mode",
    "settings",
    "marks",
    "error",
)
"""The columns of the log that are read."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def label(one: Ints, other: Ints) -> Ints:
    """One number for each pair of numbers. Two pairs may come to the same one, as seldom as random numbers do: triage
    then says something too often or too late, and no verdict rests on it."""
    mixed = (one.view(np.uint64) * _MIX) ^ other.view(np.uint64)
    return ((mixed ^ (mixed >> np.uint64(29))) * _MIX).view(np.int64)


@dataclass(slots=True)
class Rows:
    """The rows, each process's in the order of its slices; absent integers are -1. `place` numbers the partition."""

    place: Ints
    process: Ints
    f: Ints
    type: Ints
    invoked: Ints
    completed: Ints
    log_start: Ints
    log_end: Ints
    last_stable: Ints
    committed: Ints
    committed_only: Bools
    subscribed: Bools
    sent: Runs
    polled: Runs
    sources: Runs
    table: pa.Table

    @classmethod
    def of(cls, slices: pa.Table) -> Rows:
        """Those of a table that has the columns `WANTED`. Raises what Arrow does where they hold something else."""
        table = slices.select(WANTED).combine_chunks()
        order = integers(table["slice"]).argsort(kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
        whole = {name: integers(table[name]) for name in _INTEGERS}
        return cls(
            place=label(_numbers(table["cluster"]), _numbers(table["topic_id"])) + integers(table["partition"]),
            f=codes_of(table["f"], _FUNCTIONS).astype(np.int64),
            type=codes_of(table["type"], _OUTCOMES).astype(np.int64),
            committed_only=~is_text(table["isolation"], "read_uncommitted"),
            subscribed=is_text(table["mode"], "subscribe"),
            sent=runs_of(table["sent"]),
            polled=runs_of(table["polled"]),
            sources=runs_of(table["sources"]),
            table=table,
            **whole,
        )

    def does(self, *functions: int) -> Bools:
        """Which rows did one of these."""
        return np.isin(self.f, functions)

    def tells(self, name: str) -> bool:
        """Does any row say something in this column?"""
        return bool(self.table[name].null_count < len(self.table))

    def groups(self) -> Ints:
        """A number for the group that each row names."""
        return _numbers(self.table["group"])

    def plain(self, rows: Ints, name: str) -> list[Any]:
        """What a few rows say in a column."""
        told: list[Any] = self.table[name].take(pa.array(rows)).to_pylist()
        return told


_INTEGERS: Final = (
    "process",
    "invoked",
    "completed",
    "log_start",
    "log_end",
    "last_stable",
    "committed",
)
_FUNCTIONS: Final = pa.array(FUNCTIONS)
_OUTCOMES: Final = pa.array(OUTCOMES)


def _numbers(texts: pa.ChunkedArray) -> Ints:
    """A number for each text, the same at any time; 0 for none."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64)
    encoded = pc.dictionary_encode(texts, null_encoding="encode").combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    of = [0 if text is None else zlib.crc32(text.encode()) for text in encoded.dictionary.to_pylist()]
    numbers: Ints = np.array(of, np.int64)[encoded.indices.to_numpy()] if of else EMPTY
    return numbers
