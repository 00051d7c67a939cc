"""What stands in a partition now, read from its leader as it is: batches, and the markers that end transactions.

Consumers show records; what decides about them is beside them: the producer's id, epoch and sequence, the leader's
epoch, whether a batch belongs to a transaction, and whether a marker commits or aborts it. It is read by plain Fetch
requests at read_uncommitted; nothing is joined, committed or kept.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from monitor.config.config import Config
from monitor.drill.proxy.records import Batch, parse
from monitor.errors import UserError
from monitor.process.reach import connection
from probes.kafka.wire.errors import CannotConnect, Refused, Undecodable
from probes.kafka.wire.messages import Api, Payload, build, element, milliseconds, request_class
from probes.kafka.wire.upstream import Address, Stream, Upstream, addresses, asked, upstream
from probes.records.tag import read as read_tag

AROUND: Final = 3
"""Offsets that are read before and after those that are asked for."""
MOST: Final = 60
"""Batches that are told."""
_WITHIN: Final = 10.0
"""Seconds for all of it."""
_BYTES: Final = 1_000_000
_FURTHER: Final = 2_000
"""Offsets that are gone through behind the last one, for the marker of a transaction that is open there."""
_VERSIONS: Final = {Api.METADATA: 8, Api.FETCH: 11}
_MARKER: Final = struct.Struct(">hh")
_COORDINATOR: Final = struct.Struct(">hi")
_ENDS: Final = {0: "abort", 1: "commit"}


@dataclass(frozen=True, slots=True)
class RawLog:
    """One partition as its leader has it. `aborted`: the producer ids, and first offsets, of transactions that the
    leader lists as aborted. `left_out`: batches that are not among `batches`."""

    cluster: str | None
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    log_start: int
    log_end: int
    last_stable: int
    batches: Sequence[Batch]
    left_out: int = 0


def read(config: Config, topic: str, partition: int, offsets: Sequence[int]) -> RawLog:
    """What stands around these offsets. Raises UserError where the leader cannot be asked."""
    reached = connection(config)
    try:
        means = upstream(reached.security, reached.token)
        return asyncio.run(_bounded(means, addresses(config.cluster.bootstrap), topic, partition, offsets))
    except TimeoutError:
        raise UserError(f"--raw: {config.cluster.bootstrap} has not answered within {_WITHIN:g} s") from None
    except (CannotConnect, Refused, Undecodable, OSError) as error:
        raise UserError(f"--raw: {topic}/{partition} cannot be read: {error}") from error


async def _bounded(
    means: Upstream, bootstrap: Sequence[Address], topic: str, partition: int, offsets: Sequence[int]
) -> RawLog:
    async with asyncio.timeout(_WITHIN):
        return await _read(means, bootstrap, topic, partition, offsets)


async def _read(
    means: Upstream, bootstrap: Sequence[Address], topic: str, partition: int, offsets: Sequence[int]
) -> RawLog:
    told = await _metadata(means, bootstrap, topic)
    led = next((one for one in told.topics[0].partitions if one.partition_index == partition), None)
    if led is None:
        raise UserError(f"--raw: the cluster has no partition {partition} of {topic}")
    leader = next((Address(one.host, one.port) for one in told.brokers if one.node_id == led.leader_id), None)
    if leader is None:
        raise UserError(f"--raw: {topic}/{partition} has no leader now")
    line = await means.connect(leader)
    try:
        found, part = await _batches(line, topic, partition, min(offsets) - AROUND, max(offsets) + AROUND)
    finally:
        line[1].transport.abort()
    return RawLog(
        told.cluster_id,
        led.leader_id,
        led.leader_epoch,
        tuple(led.replica_nodes),
        tuple(led.isr_nodes),
        part.log_start_offset,
        part.high_watermark,
        part.last_stable_offset,
        found[:MOST],
        max(len(found) - MOST, 0),
    )


async def _metadata(means: Upstream, bootstrap: Sequence[Address], topic: str) -> Payload:
    """The answer of the first broker that gives one."""
    failed: OSError = OSError("no broker is configured")
    kind = request_class(Api.METADATA, _VERSIONS[Api.METADATA])
    assert kind is not None
    named = build(element(kind, "topics"), name=topic)
    for address in bootstrap:
        try:
            line = await means.connect(address)
        except OSError as error:
            failed = error
            continue
        try:
            told = await _asked(line, Api.METADATA, topics=(named,), allow_auto_topic_creation=False)
        finally:
            line[1].transport.abort()
        if told.topics[0].error_code.name != "none":
            raise UserError(f"--raw: the cluster says of {topic}: {told.topics[0].error_code.name}")
        return told
    raise failed


async def _batches(line: Stream, topic: str, partition: int, low: int, high: int) -> tuple[list[Batch], Payload]:
    """The batches that hold offsets from `low` to `high`, and, further on, the markers of their transactions."""
    found: list[Batch] = []
    at = max(low, 0)
    while True:
        part = await _fetched(line, topic, partition, at)
        if part.error_code.name == "offset_out_of_range" and at < part.log_start_offset:
            at = part.log_start_offset
            continue
        if part.error_code.name != "none":
            raise UserError(f"--raw: the leader says of {topic}/{partition} at offset {at}: {part.error_code.name}")
        batches, _ = parse(bytes(part.records or b""))
        for batch in batches:
            if batch.last_offset < at or (batch.base_offset > high and not _ends_one_of(batch, found)):
                continue
            found.append(batch)
        open_ = _open(found)
        if not batches or batches[-1].last_offset >= (high + _FURTHER if open_ else high):
            return found, part
        at = batches[-1].last_offset + 1


def _ends_one_of(marker: Batch, found: Sequence[Batch]) -> bool:
    return marker.is_control and marker.producer_id in _open(found)


def _open(found: Sequence[Batch]) -> set[int]:
    """The producers whose transactions these batches begin or go on with, and do not end."""
    open_: set[int] = set()
    for batch in found:
        if batch.is_control:
            open_.discard(batch.producer_id)
        elif batch.is_transactional:
            open_.add(batch.producer_id)
    return open_


async def _fetched(line: Stream, topic: str, partition: int, at: int) -> Payload:
    kind = request_class(Api.FETCH, _VERSIONS[Api.FETCH])
    assert kind is not None
    topics = element(kind, "topics")
    wanted = build(
        element(topics, "partitions"),
        partition=partition,
        fetch_offset=at,
        partition_max_bytes=_BYTES,
        current_leader_epoch=-1,
    )
    told = await _asked(
        line,
        Api.FETCH,
        max_wait=milliseconds(100),
        min_bytes=0,
        max_bytes=_BYTES,
        session_epoch=-1,
        topics=(build(topics, topic=topic, partitions=(wanted,)),),
        rack_id="",
    )
    return told.responses[0].partitions[0]


async def _asked(line: Stream, api: Api, **values: Any) -> Payload:
    return await asked(line, api, _VERSIONS[api], "offsetwatch-explain", **values)


# In words


def lines(log: RawLog, offsets: Sequence[int], names: Mapping[int, str]) -> Iterator[str]:
    """The batches one by one, their records below them; a record that was asked for has an arrow."""
    replicas, in_sync = (", ".join(map(str, one)) for one in (log.replicas, log.in_sync))
    yield f"leader {log.leader}, leader epoch {log.leader_epoch}, replicas {replicas}, in sync {in_sync}"
    yield f"log start {log.log_start}, end {log.log_end}, last stable offset {log.last_stable}"
    for batch in log.batches:
        yield from _batch_lines(batch, offsets, names)
    if not log.batches:
        yield "nothing stands there any more"
    if log.left_out:
        yield f"and {log.left_out} more batches"


def _batch_lines(batch: Batch, offsets: Sequence[int], names: Mapping[int, str]) -> Iterator[str]:
    at = datetime.fromtimestamp(batch.max_timestamp / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    producer = (
        f"producer {batch.producer_id} epoch {batch.producer_epoch}" if batch.producer_id >= 0 else "no producer id"
    )
    where = f"{batch.base_offset}" + (f" to {batch.last_offset}" if batch.last_offset_delta else "")
    common = f"leader epoch {batch.leader_epoch}, {at}"
    if batch.is_control:
        yield f"{where}: {_marker(batch)}, {producer}, {common}"
        return
    transactional = ", in a transaction" if batch.is_transactional else ""
    sequence = f" sequence {batch.base_sequence}" if batch.base_sequence >= 0 else ""
    packed = f", {batch.codec.name.lower()}" if batch.codec.value else ""
    yield f"{where}: {producer}{sequence}{transactional}, {common}{packed}"
    for record in batch.records():
        offset = batch.base_offset + record.offset_delta
        tag = read_tag(record.value)
        if tag is None:
            told = f"no value of ours, {len(record.value or b'')} bytes"
        else:
            writer = names.get(tag.writer)
            told = f"{f'{writer}:{tag.writer % 10_000:04d}' if writer else tag.writer}/{tag.seq}"
            told += f" of transaction {tag.txn}" if tag.txn is not None else ""
        yield f"  {'▸' if offset in offsets else ' '} {offset} {told}"


def _marker(batch: Batch) -> str:
    """What a control batch says: its key holds the kind, its value the coordinator's epoch."""
    (record, *_) = batch.records() or (None,)
    if record is None or record.key is None or len(record.key) < _MARKER.size:
        return "a marker that cannot be read"
    kind = _ENDS.get(_MARKER.unpack_from(record.key)[1])
    epoch = ""
    if record.value is not None and len(record.value) >= _COORDINATOR.size:
        epoch = f" by coordinator epoch {_COORDINATOR.unpack_from(record.value)[1]}"
    return f"{kind} marker{epoch}" if kind else "a control record that ends no transaction"
