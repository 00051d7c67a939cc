"""Sending a batch and collecting what became of each record.

A batch is `count` records with consecutive sequence numbers for each of some partitions. Delivery reports come from the
client one by one; the callback only keeps the message, and everything is worked out for the whole batch at once:
sequence numbers are read back from the values, so nothing depends on the order of the reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, Producer

from probes.clock import stamped
from probes.kafka.errors import ClientError, classify, translate
from probes.records.envelope import queue
from probes.records.tag import Encoder, Numbers, fold, sequence_number, sequence_numbers
from probes.topology import Partition
from rules.vocabulary.slices import Outcome, Run

POLL: Final = 0.1
"""Seconds that one poll for delivery reports waits."""
POLLS_AFTER_FATAL: Final = 10
_BLAMED: Final = re.compile(r"ProduceRequest for (.+) \[(\d+)\] with ")
"""How librdkafka's fatal errors of an idempotent producer begin: the topic and partition that was refused."""


@dataclass(slots=True)
class Fate:
    """What became of the records of one partition that share an outcome."""

    type: Outcome
    error: str | None
    runs: list[Run]

    @property
    def records(self) -> int:
        return sum(run.length for run in self.runs)


@dataclass(slots=True)
class Batch:
    """Records on their way. `expected` are the sequence numbers handed over, by partition: (first, count); `sources`
    the input records that a transform's records reflect, as many; `payloads` one for each record, where they carry
    any."""

    writer: int
    expected: dict[Partition, tuple[int, int]]
    reports: list[Any] = field(default_factory=list)
    refused: dict[Partition, tuple[Numbers, str]] = field(default_factory=dict)
    """Sequence numbers that never entered the client's queue, and why."""
    fatal: ClientError | None = None
    queued: int = 0
    sources: Mapping[Partition, Sequence[Run]] = field(default_factory=dict)
    payloads: Mapping[Partition, Sequence[bytes]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return len(self.reports) >= self.queued


def runs_to_send(writer: int, expected: Mapping[Partition, tuple[int, int]]) -> dict[Partition, list[Run]]:
    """The runs of a batch before anything is known of it."""
    return {where: [Run(writer, first, None, count)] for where, (first, count) in expected.items()}


def hand_over(
    producer: Producer, batch: Batch, encoders: Mapping[Partition, Encoder], *, sent: int, txn: int | None = None
) -> None:
    """Give the batch to the client. `sent` is the wall clock in microseconds."""
    reports, sent = batch.reports, stamped(sent)

    def report(_: KafkaError | None, message: Any) -> None:
        reports.append(message)

    for where, (first, count) in batch.expected.items():
        values = encoders[where].encode(
            range(first, first + count),
            sent=sent,
            txn=txn,
            sources=batch.sources.get(where, ()),
            payloads=batch.payloads.get(where, ()),
            enveloped=True,
        )
        try:
            queued = queue(producer, where, values, sent, report)
        except Exception as error:
            # How many of them were queued is not known: those without a report will be indefinite.
            batch.fatal = translate(error)
            continue
        batch.queued += queued
        if queued < count:
            batch.refused[where] = (np.arange(first + queued, first + count, dtype=np.int64), "_QUEUE_FULL")


def collect(producer: Producer, batch: Batch, *, polls: int, beat: Callable[[], None]) -> None:
    """Poll until every report is there, at most `polls` times a tenth of a second.

    A fatal error of the client comes as an exception out of any poll: it is kept in the batch, and the reports that are
    still to come get a moment."""
    left = polls
    while left > 0 and not batch.complete:
        left -= 1
        try:
            producer.poll(POLL)
        except Exception as error:
            if batch.fatal is None:
                left = min(left, POLLS_AFTER_FATAL)
            batch.fatal = batch.fatal or translate(error)
        beat()


def acknowledged_after(batch: Batch) -> dict[Partition, list[float]]:
    """How many seconds after each record was handed to the client its acknowledgement was reported, by the client's own
    clock."""
    found: dict[Partition, list[float]] = {}
    for message in batch.reports:
        if message.error() is None:
            found.setdefault((message.topic(), message.partition()), []).append(message.latency())
    return found


def fates(batch: Batch) -> dict[Partition, list[Fate]]:
    """The outcomes of the batch by partition, `ok` first. A record without a report is `info`."""
    grouped: dict[tuple[Partition, int], list[Any]] = {}
    for message in batch.reports:
        error = message.error()
        code = 0 if error is None else error.code()
        if error is not None and error.fatal():
            batch.fatal = batch.fatal or translate(error)
        grouped.setdefault(((message.topic(), message.partition()), code), []).append(message)
    result: dict[Partition, list[Fate]] = {where: [] for where in batch.expected}
    known: dict[Partition, list[Numbers]] = {where: [] for where in batch.expected}
    whole: set[Partition] = set()
    for (where, code), messages in grouped.items():
        first, count = batch.expected[where]
        if code == 0 and len(messages) == count and (runs := _in_order(batch.writer, first, messages)):
            result[where].append(Fate("ok", None, runs))
            whole.add(where)
            continue
        seqs = sequence_numbers([message.value() for message in messages])
        known[where].append(seqs)
        fate = _fate(batch.writer, code, seqs, messages)
        if fate.error is not None:
            fate.error = _own_error(batch, where, fate.error)
        result[where].append(fate)
    for where, (seqs, name) in batch.refused.items():
        known[where].append(seqs)
        result[where].append(Fate(classify(name, "enqueue"), name, fold(batch.writer, seqs, None)))
    for where, (first, count) in batch.expected.items():
        if where in whole:
            continue
        every = np.arange(first, first + count, dtype=np.int64)
        silent = np.setdiff1d(every, np.concatenate(known[where])) if known[where] else every
        if len(silent):
            name = _own_error(batch, where, batch.fatal.code) if batch.fatal else "_TIMED_OUT"
            result[where].append(Fate("info", name, fold(batch.writer, silent, None)))
        result[where] = _merged(result[where])
    return result


def _own_error(batch: Batch, where: Partition, code: str) -> str:
    """`_FATAL` where the client gives all that it had queued the error over which it gave up, and says that another
    partition's broker had answered so."""
    blamed = _BLAMED.match(str(batch.fatal)) if batch.fatal is not None and batch.fatal.code == code else None
    return code if blamed is None or (blamed[1], int(blamed[2])) == where else "_FATAL"


def _in_order(writer: int, first: int, messages: Sequence[Any]) -> list[Run]:
    """The runs of acknowledged records whose seqs are `first` and those after it, in this order; none where they are
    not. So nearly all batches are, and this is ten times as fast as to sort them out."""
    runs: list[Run] = []
    begin = length = 0
    for seq, message in enumerate(messages, first):
        offset = _offset(message)
        if offset < 0 or sequence_number(message.value()) != seq:
            return []
        if length and offset != begin + length:
            runs.append(Run(writer, seq - length, begin, length))
            length = 0
        if not length:
            begin = offset
        length += 1
    return [*runs, Run(writer, first + len(messages) - length, begin, length)]


def _offset(message: Any) -> int:
    """Where it was acknowledged to stand; -1 where that was not told, as of what the broker says it had already."""
    offset = message.offset()
    return -1 if offset is None else int(offset)


def _merged(parts: list[Fate]) -> list[Fate]:
    """One fate per outcome and error, `ok` first."""
    merged: dict[tuple[Outcome, str | None], Fate] = {}
    for part in parts:
        known = merged.setdefault((part.type, part.error), Fate(part.type, part.error, []))
        known.runs = sorted(known.runs + part.runs, key=lambda run: run.seq)
    return sorted(merged.values(), key=lambda fate: ("ok", "info", "fail").index(fate.type))


def _fate(writer: int, code: int, seqs: Numbers, messages: list[Any]) -> Fate:
    outcome = classify(code, "send")
    if outcome != "ok":
        return Fate(outcome, translate(messages[0].error()).code, fold(writer, seqs, None))
    offsets = np.fromiter(map(_offset, messages), dtype=np.int64, count=len(messages))
    told = offsets >= 0
    runs = fold(writer, seqs[told], offsets[told])
    if not told.all():
        runs = sorted(runs + fold(writer, seqs[~told], None), key=lambda run: run.seq)
    return Fate("ok", None, runs)
