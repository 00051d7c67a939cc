"""The runs of transactions, and of indefinite sends whose client was told that they failed, until their fate is known.

State of `transaction_outcomes`, which says what becomes of them and what bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rules.arrays import intervals
from rules.arrays.columns import FEW, INFO, SEND, TXN, Columns, Runs, integers, is_text, lengths
from rules.arrays.intervals import EMPTY, Bools, Ints
from rules.kept import codec
from rules.kept.check import News
from rules.kept.codec import Table

SAYS_FAILURE: Final = frozenset(
    {
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "PRODUCER_FENCED",
        "_FENCED",
        "TRANSACTION_COORDINATOR_FENCED",
        "CONCURRENT_TRANSACTIONS",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_ENOUGH_REPLICAS",
        "LEADER_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "UNKNOWN_TOPIC_OR_PART",
        "KAFKA_STORAGE_ERROR",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_MSG",
        "INVALID_RECORD",
        "POLICY_VIOLATION",
        "_STATE",
        "_PURGE_QUEUE",
    }
)
"""Errors that say that it was not done. Timeouts and lost connections say that nobody knows."""

NAME: Final = "transaction-outcomes"

WAITING, ABSENT, UNKNOWN = range(3)
"""What is known of an indefinite run that shows nothing: nothing yet; that no reader will be given it; that this will
never be known, since it lies below the log start or somebody's log is missing."""


SEEN, JUDGED, LATE = 1, 2, 3
"""A value of the run was polled; it is known, too, whether it may be visible (`zombie_writes`); and that was after the
run had been given up, or another one of its operation (`given_up`)."""


@dataclass(slots=True)
class Written(Table):
    """Runs that wait. `type` is a code of `rules.arrays.columns`; `alone`: 1 if the transaction wrote this run and
    nothing else; `ended`: when its commit was invoked, by the monotonic clock of `boot`, -1 if never; `boot` is a
    number of `State.boot_names`, `name` one of `Outcomes.names`, -1 for none; `said`: 1 if the client was told that it
    failed.

    `low` and `high`: it lies in these offsets if it is anywhere, -1 while not known. `due`: from which log time on it
    may be called absent, -1 while no reader has gone over its place. `shown` and `fate`: see above. `next_*`: of the
    transaction that the same transactional id wrote next behind it, -1 while there is none: its number, process,
    operation, outcome, and the offset of its first record."""

    process: Ints = field(default_factory=lambda: EMPTY)
    op: Ints = field(default_factory=lambda: EMPTY)
    txn: Ints = field(default_factory=lambda: EMPTY)
    type: Ints = field(default_factory=lambda: EMPTY)
    alone: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    at: Ints = field(default_factory=lambda: EMPTY)
    ended: Ints = field(default_factory=lambda: EMPTY)
    boot: Ints = field(default_factory=lambda: EMPTY)
    name: Ints = field(default_factory=lambda: EMPTY)
    said: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    offset: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    low: Ints = field(default_factory=lambda: EMPTY)
    high: Ints = field(default_factory=lambda: EMPTY)
    due: Ints = field(default_factory=lambda: EMPTY)
    shown: Ints = field(default_factory=lambda: EMPTY)
    fate: Ints = field(default_factory=lambda: EMPTY)
    next_txn: Ints = field(default_factory=lambda: EMPTY)
    next_process: Ints = field(default_factory=lambda: EMPTY)
    next_op: Ints = field(default_factory=lambda: EMPTY)
    next_type: Ints = field(default_factory=lambda: EMPTY)
    next_offset: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class GivenUp(Table):
    """Indefinite runs that are kept in parts (`given_up`); `until`: an offset beyond which each does not lie, -1 where
    that is unknown."""

    part: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    seq: Ints = field(default_factory=lambda: EMPTY)
    length: Ints = field(default_factory=lambda: EMPTY)
    until: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Aside(Table):
    """What was set aside (`set_aside`), one entry for each writer of each parcel, and transactional id (`name`, as in
    `Written`): its values lie in low .. high-1, and stand, as far as that is known, in low_offset .. high_offset-1.
    `runs`: how many there are; `invoked`: when the first of their operations was; `open`: 1 where no reader is known to
    have gone over some of them; `unsure`: 1 where some are indefinite; `until`: the newest time of the parcel's."""

    parcel: Ints = field(default_factory=lambda: EMPTY)
    writer: Ints = field(default_factory=lambda: EMPTY)
    name: Ints = field(default_factory=lambda: EMPTY)
    process: Ints = field(default_factory=lambda: EMPTY)
    invoked: Ints = field(default_factory=lambda: EMPTY)
    low: Ints = field(default_factory=lambda: EMPTY)
    high: Ints = field(default_factory=lambda: EMPTY)
    low_offset: Ints = field(default_factory=lambda: EMPTY)
    high_offset: Ints = field(default_factory=lambda: EMPTY)
    runs: Ints = field(default_factory=lambda: EMPTY)
    open: Ints = field(default_factory=lambda: EMPTY)
    unsure: Ints = field(default_factory=lambda: EMPTY)
    until: Ints = field(default_factory=lambda: EMPTY)


@dataclass(slots=True)
class Outcomes:
    """`written` waits; `aside` does in parcels, of which `parcels` have been made, those in `wanted` are taken back in
    the next step, and others were in their turn at `visited`. Of what is `given_up`, `parts` have been made. `names`
    are transactional ids, numbered by their places here, at most some more than `written` needs. `guards`: [process,
    op, offset, writer, seq] of other values that stand where an indefinite run was acknowledged. `partial_reads` counts
    `G1b` since the start. `shown_late`: [when, transaction, its type] of those that were shown after all."""

    written: Written = field(default_factory=Written)
    aside: Aside = field(default_factory=Aside)
    parcels: int = 0
    wanted: list[int] = field(default_factory=list)
    visited: int = -1
    given_up: GivenUp = field(default_factory=GivenUp)
    parts: int = 0
    names: list[str] = field(default_factory=list)
    guards: list[list[int]] = field(default_factory=list)
    partial_reads: int = 0
    shown_late: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class Parcel:
    """What a chunk of runs that were set aside holds: `names` as `Outcomes` has them, for these rows alone."""

    rows: Written = field(default_factory=Written)
    names: list[str] = field(default_factory=list)


def parcel_name(parcel: int) -> str:
    """The chunk that holds a parcel."""
    return f"set-aside.{parcel:x}"


def parcel_of(stored: bytes | None) -> Parcel:
    """What was written as `Parcel`."""
    return Parcel() if stored is None else codec.load(stored, Parcel, {})[0]


def runs_of(rows: Written) -> Runs:
    """Their values and places."""
    return Runs(rows.process, rows.writer, rows.seq, rows.offset, rows.length)


def arrive(own: Outcomes, new: News) -> Written:
    """The runs of new rows that wait."""
    columns, sent = new.columns, new.sent
    said = _says_failure(columns, sent.row)
    of_txn = (columns.f[sent.row] == TXN) & (columns.txn[sent.row] >= 0)
    kept = sent.take(of_txn | ((columns.f[sent.row] == SEND) & said[sent.row]))
    if new.state.begins >= 0:  # what was sent before may have been polled by rows that are gone
        kept = kept.take(columns.invoked[kept.row] >= new.state.begins)
    if not len(kept):
        return Written()
    row, n = kept.row, len(kept)
    known = kept.offset >= 0
    none, zero = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    return Written(
        columns.process[row],
        columns.op[row],
        columns.txn[row],
        columns.type[row].astype(np.int64),
        _alone(columns, row),
        columns.invoked[row],
        columns.completed[row],
        commit_invoked(columns)[row],
        columns.boot[row],
        _coded(own.names, columns, "transactional_id", row),
        said[row].astype(np.int64),
        kept.writer,
        kept.seq,
        kept.offset,
        kept.length,
        np.where(known, kept.offset, -1),
        np.where(known, kept.offset + kept.length, -1),
        none,
        zero,
        zero.copy(),
        *(none.copy() for _ in range(5)),
    )


def _says_failure(columns: Columns, rows: Ints) -> Bools:
    """Which of all rows are indefinite, and told their client that they failed."""
    said = np.zeros(len(columns), bool)
    if columns.tells("error"):
        column = columns.table["error"]
        for i in intervals.each(rows[columns.type[rows] == INFO]):
            said[i] = column[i].as_py() in SAYS_FAILURE
    return said


def _alone(columns: Columns, rows: Ints) -> Ints:
    """1 for the rows of transactions that are known to have touched one partition, with one run. Where a row does not
    tell its partitions, there may be others."""
    one = np.zeros(len(columns), bool)
    if columns.tells("txn_partitions"):
        one = lengths(columns, "txn_partitions") == 1
    one &= np.bincount(rows, minlength=len(columns)) == 1
    return one[rows].astype(np.int64)


def commit_invoked(columns: Columns) -> Ints:
    """When each row's commit was invoked, by its boot's monotonic clock; -1 where none was."""
    at = integers(columns.arrays["mono_end_invoked"])
    if columns.tells("txn_intent"):
        at = np.where(is_text(columns.table["txn_intent"], "abort"), -1, at)
    return at


def _coded(known: list[str], columns: Columns, column: str, rows: Ints) -> Ints:
    """Names as their numbers in `known`, which grows; -1 for none."""
    if len(columns) < FEW:
        told = columns.arrays[column].to_pylist()
        names = [told[row] for row in rows.tolist()]
        known += [name for name in dict.fromkeys(told) if name is not None and name not in known and name in names]
        return np.array([-1 if name is None else known.index(name) for name in names], np.int64)
    encoded = columns.arrays[column].dictionary_encode()
    numbers = np.full(len(encoded.dictionary) + 1, -1, np.int64)
    index = np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False), np.int64)
    wanted = index[rows]
    for i in intervals.each(wanted[wanted < len(encoded.dictionary)]):
        name = encoded.dictionary[i].as_py()
        if name not in known:
            known.append(name)
        numbers[i] = known.index(name)
    return numbers[wanted]


def name_of(own: Outcomes, rows: Written, i: int) -> str | None:
    """The transactional id of row `i`, None where there is none."""
    return own.names[int(rows.name[i])] if rows.name[i] >= 0 else None
