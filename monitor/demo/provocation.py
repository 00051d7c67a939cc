"""A real violation on a cluster of one's own, to see the checks find it: the same tagged records, written twice.

This is what a producer without idempotence does when an acknowledgement is lost on its way and it sends again: the log
then holds the same bytes twice, at different offsets, both acknowledged and both delivered to every reader. Here the
producer sends them again on purpose; nothing between it and the broker lies, and nothing is written into the probe
log but what happened. The producer is a process like any probe's, with a journal, so its values are known, and its
start row says that it is not idempotent: by the policy its duplicates are warnings.

Never run this on a cluster that others use: it makes records that violate on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitor.errors import UserError
from probes.kafka.client import Connection, loggable, open_producer, producer_settings
from probes.log.commits.folder_clock import folder_clock
from probes.log.journals.journal import Journal, Life
from probes.log.life_log import LifeLog, random_id
from probes.records.delivery import Batch, collect, fates, hand_over, runs_to_send
from probes.records.tag import Encoder
from probes.topology import Layout, Partition
from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros

if TYPE_CHECKING:
    from confluent_kafka import Producer

KIND: Final = "writer"
NAME: Final = "provocateur"
RECORD_BYTES: Final = 256
_ACK_POLLS: Final = 150
"""Tenths of a second to wait for acknowledgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTwice:
    """What was done: `records` values of `writer`, seq 0 and up, at `first` and again at `second` (offsets of the first
    record of each copy; the copies may be interrupted by other writers' records). `at`: when the second copy was
    acknowledged, by the wall clock."""

    topic: str
    partition: int
    writer: int
    process: int
    records: int
    first: int
    second: int
    at: datetime

    def __str__(self) -> str:
        return (
            f"{self.records} records of writer {self.writer}, a producer without idempotence, were sent to "
            f"{self.topic}/{self.partition} twice: at offset {self.first}, and the same bytes again at {self.second}"
        )


def send_twice(
    connection: Connection, journals: Path, *, run: str, layout: Layout, where: Partition, records: int
) -> SentTwice:
    """Send `records` tagged records to `where` twice, logged like any probe's operations.

    Raises UserError where the cluster did not acknowledge both copies, and the probes' and the log's own errors."""
    clock, writer, process = folder_clock(journals), random_id(), random_id()
    settings = producer_settings(connection, client=f"offsetwatch-{NAME}") | {"enable.idempotence": "false"}
    labels = {"name": NAME, "writer": str(writer), "idempotent": "false", "in_flight": "1"}
    life = Life(
        cluster=layout.cluster,
        run=run,
        process=process,
        kind=KIND,
        writer=writer,
        transactional_id=None,
        boot=clock.boot,
        settings=loggable(settings) | labels,
    )
    log = LifeLog(Journal.create(journals, life), life, layout, clock)
    error: str | None = "_APPLICATION"
    try:
        log.append(log.everywhere("start", "ok", log.now(), kind=KIND, settings=dict(life.settings)))
        log.reserve(where, records)
        producer = open_producer(settings, lambda problem: None)
        encoder = Encoder(run=run, writer=writer, topic=where[0], partition=where[1], size=RECORD_BYTES)
        # One time for both copies: a producer that sends again sends the same bytes.
        sent = micros(clock.now())
        copies = [_send(log, producer, Batch(writer, {where: (0, records)}), {where: encoder}, sent) for _ in range(2)]
        at = clock.now()
        producer.close()
        error = None
    finally:
        log.end("ok" if error is None else "info", error)
    first, second = (copy[0].offset for copy in copies)
    assert first is not None and second is not None
    return SentTwice(
        topic=where[0],
        partition=where[1],
        writer=writer,
        process=process,
        records=records,
        first=first,
        second=second,
        at=at,
    )


def _send(
    log: LifeLog, producer: Producer, batch: Batch, encoders: Mapping[Partition, Encoder], sent: int
) -> list[Run]:
    """One copy as one operation; its runs as they were acknowledged."""
    ((where, (_, records)),) = batch.expected.items()
    op, invoked = log.next_op(), log.now()
    log.opened(
        op, [log.row(where, "send", "info", op, invoked, sent=runs_to_send(batch.writer, batch.expected)[where])]
    )
    hand_over(producer, batch, encoders, sent=sent)
    collect(producer, batch, polls=_ACK_POLLS, beat=log.alive)
    completed = log.now()
    parts = fates(batch)[where]
    log.append([log.row(where, "send", p.type, op, invoked, completed, error=p.error, sent=p.runs) for p in parts])
    acknowledged = [run for part in parts if part.type == "ok" for run in part.runs]
    if sum(run.length for run in acknowledged) < records:
        errors = ", ".join(sorted({part.error or "no answer" for part in parts if part.type != "ok"}))
        raise UserError(f"the records that were to be duplicated were not acknowledged: {errors}")
    return acknowledged
