"""The drain: is what was acknowledged still there? Reads everything anew, from the beginning, with fresh clients.

Sending has stopped. What the probe log holds as acknowledged is compared with what a client that was opened anew, with
everything assigned from the beginning, polls up to the highest acknowledged offset; this is repeated until nothing is
missing or the time is over. What is missing then is lost, not late. Records below the log start have expired and are
told apart. So are those from the last stable offset on while the log goes on behind it: an open transaction holds them,
no reader at read_committed is given them, and whether they are there is not known. The readers log like all others, so
that the checks see what they saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

from probes.clock import Clock
from probes.config import ProbesConfig
from probes.kafka.calls import bounded
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.kafka.errors import ProbeError
from probes.kafka.starting_positions import log_ends, log_starts
from probes.log.commits.committer import committer
from probes.log.commits.confirmations import Confirmations
from probes.log.journals.journal import Journal
from probes.log.life_log import LifeLog
from probes.records.polls import Polled
from probes.running.probe_run import run_id
from probes.topics.probe_topics import ProbeTopics, layout_of
from probes.topology import Layout, Partition
from probes.workloads.probe import Carried, Counters, World
from probes.workloads.reader import Reader
from rules.vocabulary.slices import Run

IDLE_ENDS_ROUND: Final = 5.0
"""Seconds without a record after which a round is over, although it has not got to the highest acknowledged offset."""

BETWEEN_ROUNDS: Final = 1.0
"""Seconds between two rounds."""
ASKED: Final = 5
"""So often a partition is asked where it ends."""

Seqs = dict[int, BitMap64]
"""Sequence numbers by writer."""


@dataclass(slots=True)
class Acknowledged:
    """What the log holds as acknowledged in one partition. `offsets`: rows of (writer, seq, offset, length), offset -1
    where unknown; `highest`: the highest offset."""

    seqs: Seqs = field(default_factory=dict)
    offsets: list[np.ndarray[Any, Any]] = field(default_factory=list)
    highest: int = -1


class Hold(NamedTuple):
    """A partition whose last stable offset stands below its end: a transaction there has not ended."""

    last_stable: int
    end: int


@dataclass(slots=True)
class Drained:
    """The outcome. `missing`, `expired`, `unreadable`: runs by partition, offsets where they were acknowledged (None if
    unknown). `rounds`: how often everything was read. `complete`: the last round got to the highest acknowledged
    offsets. `holds`: where an open transaction kept the last round from reading on. `unread`: from where to where the
    log of a partition was not read in any round, because nobody answered in time."""

    acknowledged: int = 0
    polled: int = 0
    rounds: int = 0
    complete: bool = False
    missing: dict[Partition, list[Run]] = field(default_factory=dict)
    expired: dict[Partition, list[Run]] = field(default_factory=dict)
    unreadable: dict[Partition, list[Run]] = field(default_factory=dict)
    holds: dict[Partition, Hold] = field(default_factory=dict)
    unread: dict[Partition, tuple[int, int]] = field(default_factory=dict)


def acknowledged(history: str | Path, layout: Layout) -> dict[Partition, Acknowledged]:
    """What the probe log at `history` holds as acknowledged in the layout's partitions."""
    names = {topic.id: topic.name for topic in layout.topics}
    found: dict[Partition, Acknowledged] = {where: Acknowledged() for where in layout.partitions()}
    query = QueryBuilder().register("history", DeltaTable(str(history)))
    ids = ", ".join(f"'{topic}'" for topic in names)
    rows = query.execute(
        'select topic_id, "partition", sent from history '
        f"where type = 'ok' and f in ('send', 'txn') and sent is not null and topic_id in ({ids})"
    )
    for batch in rows:
        block = pa.record_batch(batch)
        lengths = pc.list_value_length(block["sent"]).to_numpy(zero_copy_only=False)
        items = block["sent"].flatten()
        fields = [items.field("writer"), items.field("seq"), items.field("offset").fill_null(-1), items.field("length")]
        runs = np.stack([one.to_numpy(zero_copy_only=False) for one in fields], axis=1).astype(np.int64)
        ends = np.cumsum(lengths)
        places = zip(block["topic_id"].to_pylist(), block["partition"].to_pylist(), lengths, ends, strict=True)
        for topic_id, partition, length, end in places:
            where = (names[topic_id], partition)
            if where in found:
                _add(found[where], runs[int(end - length) : int(end)])
    return found


def _add(place: Acknowledged, runs: np.ndarray[Any, Any]) -> None:
    place.offsets.append(runs)
    for writer, seq, offset, length in runs.tolist():
        place.seqs.setdefault(writer, BitMap64()).add_range(seq, seq + length)
        if offset >= 0:
            place.highest = max(place.highest, offset + length - 1)


class DrainReader(Reader):
    """A reader from the beginning that remembers what it saw."""

    kind: ClassVar[str] = "reader"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, from_start=True, **kwargs)
        self.seen: dict[Partition, Seqs] = {}

    def saw(self, where: Partition, part: Polled) -> None:
        seqs = self.seen.setdefault(where, {})
        for run in part.decoded.runs:
            seqs.setdefault(run.writer, BitMap64()).add_range(run.seq, run.seq + run.length)

    def labels(self) -> dict[str, str]:
        return super().labels() | {"drain": "true"}


class ProbeLog(NamedTuple):
    """Where a host's probe log is: its journals, and the table that they are appended to."""

    journals: Path
    history: str | Path


def drain(
    config: ProbesConfig,
    connection: Connection,
    probe_log: ProbeLog,
    clock: Clock,
    *,
    limit: float = 60.0,
    say: Callable[[str], None] | None = None,
) -> Drained:
    """Read everything back; nothing may be sending. `limit`: seconds after which what is missing is given up.

    Raises Unreachable, ProbeError, ClientError, and the probe log's errors: FolderTaken where probes are running."""
    say = say or (lambda sentence: None)
    admin = open_admin(admin_settings(connection, client="offsetwatch-drain"))
    topics = ProbeTopics(admin, config.topics, say, config.topic_names)
    layout = layout_of(topics.view(), topics.names)
    if not layout.topics:
        raise ProbeError(f"there is no probe topic to drain ({', '.join(topics.names)})")
    journals, history = probe_log
    run = run_id(config, journals)
    world = World(
        config=config,
        connection=connection,
        clock=clock,
        run=run,
        runs=frozenset({run, *config.known_runs}),
        layout=lambda: layout,
    )
    confirmations = Confirmations(layout.cluster, topics.ids, clock)
    with committer(journals, history, clock, confirmations=confirmations) as log:
        log.drain()
        wanted = acknowledged(history, layout)
        result = Drained(acknowledged=sum(len(seqs) for place in wanted.values() for seqs in place.seqs.values()))
        missing = {where: dict(place.seqs) for where, place in wanted.items()}
        came: dict[Partition, int] = {}
        until = time.monotonic() + limit
        while True:
            result.rounds += 1
            # Asked before the round: what a transaction holds that ends meanwhile was not readable to the round's end.
            ends, result.holds = _holds(admin, layout)
            seen, polled, positions = _round(world, layout, journals, wanted, until, result.rounds)
            result.complete = all(_is_read(wanted[where], positions.get(where, 0)) for where in wanted)
            result.polled += polled
            came = {where: max(came.get(where, 0), at) for where, at in positions.items()}
            missing = {where: _without(seqs, seen.get(where, {})) for where, seqs in missing.items()}
            left = sum(len(seqs) for place in missing.values() for seqs in place.values())
            say(f"round {result.rounds}: {polled} records polled, {left} acknowledged records are missing")
            log.drain()
            if not left or time.monotonic() >= until:
                break
            time.sleep(BETWEEN_ROUNDS)
        result.unread = {
            where: span
            for where, place in wanted.items()
            if where not in result.holds and (span := _unread(place, came.get(where, 0), ends.get(where)))
        }
        _tell_apart(result, wanted, missing, log_starts(admin, layout.partitions()))
    return result


def _is_read(place: Acknowledged, position: int) -> bool:
    """Has a reader at this position gone past all that was acknowledged there?"""
    return place.highest < 0 or position > place.highest


def _unread(place: Acknowledged, position: int, end: int | None) -> tuple[int, int] | None:
    """What of the log a reader at this position has not gone over, where that may hold what was acknowledged; None for
    nothing. `end`: the log's, None where nobody told."""
    until = place.highest + 1 if end is None else end
    return (position, until) if not _is_read(place, position) and position < until else None


def _holds(admin: AdminClient, layout: Layout) -> tuple[dict[Partition, int], dict[Partition, Hold]]:
    """Where the logs end, and where an open transaction holds the last stable offset below that."""
    # The end first: a record that comes between the two questions then makes no hold.
    ends = _ends(admin, layout, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, layout, IsolationLevel.READ_COMMITTED)
    return ends, {where: Hold(stable[where], end) for where, end in ends.items() if stable.get(where, end) < end}


def _ends(admin: AdminClient, layout: Layout, level: IsolationLevel) -> dict[Partition, int]:
    """The ends of all partitions; a leader that does not answer in time is asked again: what it holds would be called
    lost."""
    told: dict[Partition, int] = {}
    for _ in range(ASKED):
        if left := [where for where in layout.partitions() if where not in told]:
            told |= log_ends(admin, left, level)
    return told


def _tell_apart(
    result: Drained,
    wanted: Mapping[Partition, Acknowledged],
    missing: Mapping[Partition, Seqs],
    starts: Mapping[Partition, int],
) -> None:
    """What is missing: expired, not readable yet, or lost."""
    for where, seqs in missing.items():
        start, hold = starts.get(where, 0), result.holds.get(where)
        span = (hold.last_stable, hold.end) if hold is not None else result.unread.get(where)

        def kind(at: int | None, start: int = start, span: tuple[int, int] | None = span) -> dict[Partition, list[Run]]:
            if at is not None and at < start:
                return result.expired
            if span is not None and (at is None or span[0] <= at < span[1]):
                return result.unreadable
            return result.missing

        for run_of in _located(wanted[where], seqs, kind):
            kind(run_of.offset).setdefault(where, []).append(run_of)


def _round(
    world: World, layout: Layout, journals: Path, wanted: Mapping[Partition, Acknowledged], until: float, number: int
) -> tuple[dict[Partition, Seqs], int, dict[Partition, int]]:
    """One client's life: everything from the beginning. What it saw, how much, and how far it got."""
    counters = Counters(f"drain-{number}", "reader")
    group = f"{world.config.topics.prefix}-{world.run}-drain"
    reader = DrainReader(counters.name, world, layout, counters, Carried(), random.Random(), group=group)
    life = reader.life()
    life_log = reader.log = LifeLog(Journal.create(journals, life), life, layout, world.clock)
    error: str | None = "_APPLICATION"
    try:
        reader.log_start()
        reader.open()
        idle = time.monotonic()
        while time.monotonic() < until + IDLE_ENDS_ROUND:
            if reader.poll():
                idle = time.monotonic()
            complete = all(_is_read(place, reader.position.get(w, 0)) for w, place in wanted.items())
            if complete or time.monotonic() - idle > IDLE_ENDS_ROUND:
                break
        error = None
    finally:
        bounded(reader.close, world.config.supervision.close_within, life_log.alive, "close")
        life_log.end("ok" if error is None else "info", error)
    return reader.seen, counters.polled, dict(reader.position)


def _without(seqs: Seqs, seen: Seqs) -> Seqs:
    return {writer: left for writer, all_of in seqs.items() if (left := all_of - seen.get(writer, BitMap64()))}


def _located(place: Acknowledged, missing: Seqs, kind: Callable[[int | None], object]) -> list[Run]:
    """The missing sequence numbers as runs, each of one kind, with the offsets they were acknowledged at."""
    found: list[Run] = []
    before: object = None
    for block in place.offsets:
        for writer, seq, offset, length in block.tolist():
            lost = missing.get(writer)
            if lost is None or not lost.range_cardinality(seq, seq + length):
                continue
            for one in range(seq, seq + length):
                if one not in lost:
                    continue
                at = offset + one - seq if offset >= 0 else None
                now = kind(at)
                last = found[-1] if found else None
                follows = last is not None and (last.writer, last.seq + last.length) == (writer, one)
                if last is not None and follows and (last.offset is None) == (at is None) and now is before:
                    found[-1] = last._replace(length=last.length + 1)
                else:
                    found.append(Run(writer, one, at, 1))
                before = now
    return found
