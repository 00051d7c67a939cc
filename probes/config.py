"""The probes' section of the configuration. Every field has a unit, a default and a reason to change it.

Keys that do not stand here are refused. Secrets are not part of this section: the connection has its own.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from probes.records.register_copy import PAYLOAD_BYTES
from probes.records.tag import MAX_RUN_BYTES, smallest
from probes.topology import GroupProtocol

Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]
Hours = Annotated[float, Field(gt=0, le=24 * 3650)]
Rate = Annotated[float, Field(ge=0.0001, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=10_000)]
Records = Annotated[int, Field(ge=1, le=1_000_000)]
"""As many as the client library gives at once."""
Partitions = Annotated[int, Field(ge=1, le=100_000)]
Replicas = Annotated[int, Field(ge=1, le=1_000)]


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _transaction_timeouts(timeouts: tuple[float, ...]) -> tuple[float, ...]:
    if not timeouts or not all(1 <= t <= 86_400 for t in timeouts):
        raise ValueError("transaction timeouts are 1 to 86400 seconds, and at least one is needed")
    return timeouts


class TopicsConfig(Section):
    """The probe topics. They are created if they are not there, and grown when brokers are added; never reassigned."""

    prefix: str = Field(
        default="offsetwatch",
        description="The topics are `<prefix>-records`, `<prefix>-transactions` and so on: one or two a workload.",
    )
    partitions: Partitions = Field(
        default=6, description="At least this many partitions a topic, and at least one per broker."
    )
    replication: Replicas = Field(
        default=3, description="Replicas of each partition; fewer where there are fewer brokers."
    )
    min_in_sync: Replicas = Field(default=2, description="min.insync.replicas; one less than the replicas at most.")
    retention_hours: Hours = Field(default=24.0, description="How long the cluster keeps probe records.")
    retention_bytes: int = Field(
        default=-1, ge=-1, le=2**63 - 1, description="How many bytes of a partition it keeps; -1 for no limit."
    )
    manage: bool = Field(
        default=True,
        description="Create probe topics, and put back what somebody sets otherwise on them of `cleanup.policy`,"
        " `min.insync.replicas`, `retention.ms` and `retention.bytes`. If false, go on with what is there.",
    )
    ready_within: Seconds = Field(
        default=30.0, description="How long to wait for the topics' metadata and leaders, seconds."
    )

    @field_validator("prefix")
    @classmethod
    def _legal(cls, prefix: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", prefix):
            raise ValueError("a topic prefix has 1 to 200 characters out of A-Z a-z 0-9 . _ -")
        return prefix

    def in_sync_of(self, replicas: int) -> int:
        """How many of so many replicas have to be in sync."""
        return max(1, min(self.min_in_sync, replicas - 1))

    @property
    def records(self) -> str:
        """The topic that writers write to."""
        return f"{self.prefix}-records"

    @property
    def transactions(self) -> str:
        """The topic that transactions write to."""
        return f"{self.prefix}-transactions"

    @property
    def transform_in(self) -> str:
        """The topic that transforms read."""
        return f"{self.prefix}-transform-in"

    @property
    def transform_out(self) -> str:
        """The topic that transforms write to."""
        return f"{self.prefix}-transform-out"

    @property
    def registers(self) -> str:
        """The topic on which registers are kept."""
        return f"{self.prefix}-registers"


class WriterConfig(Section):
    """Writers: batches of tagged records, idempotent, acks=all."""

    count: Count = Field(default=1, description="Writers with one request in flight.")
    with_five_in_flight: Count = Field(default=1, description="Writers with five requests in flight, and labelled so.")
    rate: Rate = Field(default=200.0, description="Records a second of each writer. The next batch waits for the last.")
    record_bytes: int = Field(default=256, ge=64, le=1_000_000, description="Size of a record's value, tag included.")
    batch_interval: Seconds = Field(
        default=0.1, description="Seconds between batches; a batch is rate x interval records."
    )
    batch_records: Records = Field(default=10_000, description="At most this many records a batch.")
    partitions_per_batch: Partitions = Field(default=4, description="At most this many partitions in one batch.")
    delivery_timeout: Seconds = Field(
        default=30.0, description="How long the client tries to deliver a record, seconds."
    )


class ReaderConfig(Section):
    """Readers, read_committed. Each reads all probe topics."""

    assign: Count = Field(default=1, description="Readers that assign themselves every partition.")
    group: Count = Field(default=2, description="Readers that subscribe, all in one group.")
    per_broker: bool = Field(
        default=True, description="One more reader per broker, which bootstraps from that broker alone."
    )
    restless: Count = Field(
        default=1, description="Readers that change between assign and subscribe, and abandon partitions."
    )
    poll_records: Records = Field(default=10_000, description="At most this many records a poll.")
    poll_wait: float = Field(default=0.2, gt=0, le=0.5, description="How long a poll waits for that many, seconds.")
    commit_interval: Seconds = Field(default=5.0, description="Seconds between commits of a reader's offsets.")
    position_interval: Seconds = Field(
        default=5.0, description="Seconds between the positions it logs of each partition."
    )


class TransactionConfig(Section):
    """Transactions: sends and polls over several partitions. Half of the probes keep their transactional id."""

    count: Count = Field(default=4, description="Transactional probes.")
    rate: Rate = Field(default=2.0, description="Transactions a second of each.")
    abort_share: Share = Field(default=0.2, description="The share of transactions that are aborted on purpose.")
    timeouts: tuple[float, ...] = Field(
        default=(60.0, 10.0, 1.0), description="transaction.timeout of each in turn, seconds."
    )
    records: Records = Field(default=8, description="At most this many records sent in a transaction.")
    partitions: Partitions = Field(default=3, description="At most this many partitions sent to in a transaction.")
    poll_records: Records = Field(default=500, description="At most this many records polled in a transaction.")
    record_bytes: int = Field(default=256, ge=64, le=1_000_000, description="Size of a record's value, tag included.")

    @field_validator("timeouts")
    @classmethod
    def _allowed(cls, timeouts: tuple[float, ...]) -> tuple[float, ...]:
        return _transaction_timeouts(timeouts)


class TransformConfig(Section):
    """Transforms: read a topic of their own as one group, and write one output record for each input, exactly once."""

    count: Count = Field(default=2, description="Members of the group. Without any, their two topics are not made.")
    id_per_partition: bool = Field(
        default=False, description="A transactional id (and producer) per input partition, instead of one per member."
    )
    rate: Rate = Field(default=2.0, description="Transactions a second of each.")
    input_rate: Rate = Field(default=20.0, description="Records a second that are written to their input.")
    records: Records = Field(default=100, description="At most this many records a poll; a transaction has two.")
    abort_share: Share = Field(default=0.1, description="The share of transactions that are aborted on purpose.")
    timeouts: tuple[float, ...] = Field(
        default=(10.0, 60.0), description="transaction.timeout of each member in turn, seconds."
    )
    record_bytes: int = Field(default=256, ge=64, le=1_000_000, description="Size of a record's value, tag included.")

    @field_validator("timeouts")
    @classmethod
    def _allowed(cls, timeouts: tuple[float, ...]) -> tuple[float, ...]:
        return _transaction_timeouts(timeouts)


class AbortsConfig(Section):
    """Transactions that abort and do not seek back: where does the consumer stand then?"""

    count: Count = Field(default=1, description="Probes of this kind, each in a group of its own.")
    rate: float = Field(default=0.2, ge=0.01, le=1_000, description="Transactions a second of each.")
    abort_share: Share = Field(default=0.7, description="The share that is aborted; the others move the group forward.")
    rebalance_share: Share = Field(default=0.3, description="The share with a rebalance forced into it.")
    poll_records: Records = Field(default=50, description="At most this many records polled in a transaction.")
    timeout: float = Field(default=10.0, ge=1, le=86_400, description="transaction.timeout, seconds.")
    record_bytes: int = Field(default=256, ge=64, le=1_000_000, description="Size of a record's value, tag included.")


class RegistersConfig(Section):
    """Registers on top of the log, written, compared and set, and read by several clients at once."""

    count: Count = Field(default=3, description="Clients. Without any, the topic of the registers is not made.")
    registers: int = Field(default=4, ge=1, le=256, description="Registers, spread over the topic's partitions.")
    rate: Rate = Field(default=5.0, description="Operations a second of each client, one after the other.")
    catch_up_within: Seconds = Field(
        default=10.0, description="How long an operation waits to read its own record, seconds."
    )
    poll_records: Records = Field(default=1_000, description="At most this many records a poll.")
    record_bytes: int = Field(default=256, ge=64, le=1_000_000, description="Size of a record's value, tag included.")


class ZombiesConfig(Section):
    """The probe that asks as lives that are over: what it asks must be refused."""

    count: Count = Field(default=1, description="Probes of this kind.")
    interval: Seconds = Field(default=15.0, description="Seconds between two rounds of such requests.")


class EndToEndConfig(Section):
    """The probe that measures latency: a record to each partition, read back by the same process."""

    count: Count = Field(default=1, description="Probes of this kind; without any, nothing is measured end to end.")
    interval: Seconds = Field(default=1.0, description="Seconds between two records to a partition.")
    partitions: int = Field(
        default=32,
        ge=1,
        le=100_000,
        description="At most this many partitions at a time, in turn where there are more.",
    )
    objective: Seconds = Field(
        default=20.0, description="A record that has not come back within so many seconds is a failure."
    )


class AuditConfig(Section):
    """The audit: re-reads every probe partition from its beginning, so that a log that changes later is found."""

    enabled: bool = Field(default=True, description="Off where reading everything again costs too much.")
    period: Seconds = Field(
        default=3600.0, description="Seconds from the start of one pass to the next; a longer pass delays it."
    )
    rate: float = Field(default=20_000.0, ge=1, le=100_000_000, description="At most this many records a second.")


class ObserverConfig(Section):
    """The observer: where each partition begins and ends, and what the probes' groups have committed."""

    interval: Seconds = Field(default=1.0, description="Seconds between observations.")
    request_timeout: Seconds = Field(
        default=2.5,
        description="How long one observation may take, seconds; up to 8 s where the last one had no answer.",
    )


class UnrestConfig(Section):
    """Deliberate trouble: clients crash, change between assign and subscribe, abandon a partition for another."""

    enabled: bool = Field(default=True, description="Off for a quiet fleet.")
    mean_interval: Seconds = Field(default=600.0, description="Mean seconds between two such events of one probe.")
    seed: int | None = Field(default=None, ge=0, le=2**63 - 1, description="Makes the times and choices repeatable.")


class SupervisionConfig(Section):
    """How failed clients are opened anew, and how long anything may take."""

    host: Literal["threads", "processes"] = Field(
        default="threads", description="All probes as threads of one process, or one process each."
    )
    backoff: Seconds = Field(
        default=0.5, description="Seconds before a failed client is opened anew; doubles each time."
    )
    backoff_limit: Seconds = Field(default=30.0, description="The longest such wait, seconds.")
    steady_after: Seconds = Field(
        default=60.0, description="A life this long starts the waiting from the beginning, seconds."
    )
    close_within: Seconds = Field(default=10.0, description="How long closing a client may take, seconds.")
    stuck_after: Seconds = Field(default=90.0, description="A probe silent for this long is abandoned, seconds.")


class ProbesConfig(Section):
    """The probes of one host."""

    run: str | None = Field(
        None, description="The id in every tag of these probes; kept in the journal folder if unset."
    )
    journal_max_gb: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="What the journals may hold that the probe log does not have yet, gigabytes of 10^9 bytes. At that"
        " probes end in order, until a tenth is free again; no limit but the disk if unset.",
    )
    hold: float = Field(
        default=5.0,
        ge=0,
        le=10,
        description="How long rows in which nothing stands out wait to be appended to the probe log with those that"
        " follow, seconds; what stands out is appended at once. 0: each second's rows are.",
    )
    known_runs: tuple[str, ...] = Field(
        default=(), description="Runs of other hosts whose records in these topics are ours."
    )
    group_protocol: GroupProtocol = Field(
        default="classic",
        description="How the readers of a group and the transforms join it: `classic`, or `consumer` (KIP-848; brokers"
        " of Kafka 4.0 or newer). Restless readers and transactions that abort keep to the classic one.",
    )
    topics: TopicsConfig = TopicsConfig()
    writer: WriterConfig = WriterConfig()
    reader: ReaderConfig = ReaderConfig()
    transaction: TransactionConfig = TransactionConfig()
    transform: TransformConfig = TransformConfig()
    aborts: AbortsConfig = AbortsConfig()
    registers: RegistersConfig = RegistersConfig()
    zombies: ZombiesConfig = ZombiesConfig()
    end_to_end: EndToEndConfig = EndToEndConfig()
    audit: AuditConfig = AuditConfig()
    observer: ObserverConfig = ObserverConfig()
    unrest: UnrestConfig = UnrestConfig()
    supervision: SupervisionConfig = SupervisionConfig()

    @field_validator("run")
    @classmethod
    def _short(cls, run: str | None) -> str | None:
        if run is not None and not 0 < len(run.encode()) <= MAX_RUN_BYTES:
            raise ValueError(f"a run's id has 1 to {MAX_RUN_BYTES} bytes")
        return run

    @model_validator(mode="after")
    def _roomy(self) -> Self:
        run = self.run or "x" * 16
        for size, topic in (
            (self.writer.record_bytes, self.topics.records),
            (self.transaction.record_bytes, self.topics.transactions),
            (self.aborts.record_bytes, self.topics.transactions),
            (self.writer.record_bytes, self.topics.transform_in),
        ):
            if size < smallest(run, topic):
                raise ValueError(f"record_bytes {size} is too small for a tag in topic {topic}: {smallest(run, topic)}")
        needed = smallest(run, self.topics.transform_out, source=True)
        if self.transform.record_bytes < needed:
            raise ValueError(f"record_bytes {self.transform.record_bytes} is too small for a transform's tag: {needed}")
        needed = smallest(run, self.topics.registers, payload=PAYLOAD_BYTES)
        if self.registers.record_bytes < needed:
            raise ValueError(f"record_bytes {self.registers.record_bytes} is too small for a register's tag: {needed}")
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that these probes need."""
        transform = (self.topics.transform_in, self.topics.transform_out) if self.transform.count else ()
        registers = (self.topics.registers,) if self.registers.count else ()
        return (self.topics.records, self.topics.transactions, *transform, *registers)
