"""The course of one transaction: what it is going to do, and how far it has come."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from probes.kafka.errors import ClientError, ClientStuck
from probes.log.life_log import Instant
from probes.records.delivery import Batch, runs_to_send
from probes.records.polls import Polled
from probes.topology import Partition
from probes.workloads.probe import Counters
from rules.vocabulary.slices import LeaderEpoch, Outcome, Run

Intent = Literal["commit", "abort"]


@dataclass(frozen=True, slots=True)
class Outline:
    """What a transaction is going to do: batches of sends (records per partition), with a poll after each."""

    sends: tuple[Mapping[Partition, int], ...]
    intent: Intent


def outline(
    targets: Sequence[Partition], *, records: int, partitions: int, abort_share: float, rng: random.Random
) -> Outline:
    """Draw a transaction: 1 to `records` records over 1 to `partitions` partitions, in one or two batches."""
    chosen = rng.sample(list(targets), min(len(targets), rng.randint(1, partitions)))
    batches: list[dict[Partition, int]] = [{}, {}]
    for _ in range(rng.randint(len(chosen), max(records, len(chosen)))):
        batch, where = batches[rng.randint(0, 1)], rng.choice(chosen)
        batch[where] = batch.get(where, 0) + 1
    intent: Intent = "abort" if rng.random() < abort_share else "commit"
    return Outline(tuple(batch for batch in batches if batch), intent)


@dataclass(slots=True)
class Course:
    """How far one transaction has come."""

    op: int
    txn: int
    intent: Intent
    invoked: Instant
    began_at: dict[Partition, int]
    batches: list[Batch]
    polled: dict[Partition, list[Polled]] = field(default_factory=dict)
    before: dict[Partition, int | None] = field(default_factory=dict)
    after: dict[Partition, int] = field(default_factory=dict)
    handed: int = 0
    """Records that were handed to the client."""
    offsets_sent: bool = False
    commit_invoked: bool = False
    committed: bool = False
    aborted: bool = False
    rebalanced: bool = False
    transactional_id: str | None = None
    """Where it is not its life's."""
    end_invoked: Instant | None = None
    """When its commit or abort was invoked, whichever was first."""
    error: ClientError | ClientStuck | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """What each of its rows says of it."""
        told = {
            "error": self.error.code if self.error else None,
            "txn": self.txn,
            "txn_partitions": self.touched,
            "txn_intent": self.intent,
            "transactional_id": self.transactional_id,
        }
        if self.end_invoked is None:
            return told
        return {**told, "end_invoked": self.end_invoked.at, "mono_end_invoked": self.end_invoked.mono}

    def polls(self, where: Partition) -> dict[str, Any]:
        """What the row of a partition says of its polls there: the irregular records are counted over all of them."""
        parts = self.polled.get(where, [])
        base, irregular = 0, []
        for part in parts:
            irregular += [one._replace(index=base + one.index) for one in part.decoded.irregular]
            base += part.told
        return {
            "polled": [run for part in parts for run in part.decoded.runs],
            "irregular": irregular,
            "altered": [one for part in parts for one in part.altered],
            "epochs": epochs_of(parts),
            "position_before": self.before.get(where),
            "position_after": self.after.get(where),
        }

    def offsets(self, where: Partition, group: str) -> dict[str, Any]:
        """What the row of a partition says of the offset that it commits there for its group."""
        if not self.offsets_sent or where not in self.after:
            return {}
        return {"committed": self.after[where], "group": group}

    @property
    def touched(self) -> list[Partition]:
        sent = {where for batch in self.batches for where in batch.expected}
        return sorted(sent | set(self.polled))


def epochs_of(parts: Sequence[Polled]) -> list[LeaderEpoch]:
    """The leader epochs of what several polls of one partition brought."""
    told: list[LeaderEpoch] = []
    for part in parts:
        for one in part.epochs:
            if not told:
                told.append(one)
            elif told[-1].epoch != one.epoch:
                told.append(LeaderEpoch(one.epoch, part.first if one.offset is None else one.offset))
    return told


def unsent(course: Course) -> dict[Partition, list[Run]]:
    """What it sends, before anything is known of it."""
    sent: dict[Partition, list[Run]] = {}
    for batch in course.batches:
        for where, runs in runs_to_send(batch.writer, batch.expected).items():
            sent.setdefault(where, []).extend(runs)
    return sent


def count_outcome(counters: Counters, course: Course, outcome: Outcome) -> None:
    """For people: one more transaction, and what of its records was handed to the client."""
    records = course.handed
    if outcome == "ok":
        counters.transactions_committed += 1
        counters.acknowledged += records
    elif outcome == "fail" and course.intent == "abort":
        counters.transactions_aborted += 1
        counters.aborted += records
    elif outcome == "fail":
        counters.transactions_failed += 1
        counters.failed += records
    else:
        counters.transactions_indefinite += 1
        counters.indefinite += records
    if course.error is not None:
        counters.errors += 1
        counters.last_error = str(course.error)
