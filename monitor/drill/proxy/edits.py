"""Changes to the requests and responses that nearly every lie is about, whatever their version.

Each takes a function that is called with every partition and what is there for it, and returns what is to be there
instead, or None to leave it. The exchange is set only if something was changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from monitor.drill.proxy import records
from monitor.drill.proxy.exchange import Exchange, Place
from monitor.drill.proxy.records import Batch
from probes.kafka.wire.messages import Api, Payload, build, element

BatchesChange = Callable[[Place, list[Batch]], list[Batch] | None]
PartitionChange = Callable[[Place, Any], Any | None]


def produced(exchange: Exchange) -> dict[Place, list[Batch]]:
    """The batches of a Produce request; one for each partition with the clients of today."""
    return {
        Place(exchange.book.name_of(topic), data.index): records.parse(bytes(data.records or b""))[0]
        for topic in exchange.request.topic_data
        for data in topic.partition_data
    }


def change_produced(exchange: Exchange, change: BatchesChange) -> bool:
    """Change the batches of a Produce request. Whether anything was changed."""
    changed = _each(exchange, exchange.request, "topic_data", "partition_data", "index", _on_batches(change))
    if changed is not None:
        exchange.request = changed
    return changed is not None


def change_acknowledged(exchange: Exchange, change: PartitionChange) -> bool:
    """Change a Produce response: `change` gets each partition's part (`error_code`, `base_offset` ...)."""
    changed = _each(exchange, exchange.response, "responses", "partition_responses", "index", change)
    if changed is not None:
        exchange.response = changed
    return changed is not None


def acknowledged(exchange: Exchange) -> dict[Place, Any]:
    """The partitions of a Produce response."""
    return {
        Place(exchange.book.name_of(topic), one.index): one
        for topic in exchange.response.responses
        for one in topic.partition_responses
    }


def change_fetched(exchange: Exchange, change: PartitionChange) -> bool:
    """Change a Fetch response: `change` gets each partition's part (`records`, `high_watermark`,
    `last_stable_offset`, `aborted_transactions`, `error_code` ...)."""
    changed = _each(exchange, exchange.response, "responses", "partitions", "partition_index", change)
    if changed is not None:
        exchange.response = changed
    return changed is not None


def change_fetched_batches(exchange: Exchange, change: BatchesChange) -> bool:
    """Change the batches of a Fetch response. The part of a batch in which it may end stays behind them."""
    return change_fetched(exchange, _on_batches(change))


def fetched(exchange: Exchange) -> Iterator[tuple[Place, Any]]:
    """The partitions of a Fetch response."""
    for topic in exchange.response.responses:
        for one in topic.partitions:
            yield Place(exchange.book.name_of(topic), one.partition_index), one


def _on_batches(change: BatchesChange) -> PartitionChange:
    def on_partition(place: Place, data: Any) -> Any | None:
        batches, rest = records.parse(bytes(data.records or b""))
        if not batches:
            return None
        changed = change(place, batches)
        if changed is None:
            return None
        return replace(data, records=records.encode(changed, rest))

    return on_partition


def _each(
    exchange: Exchange, payload: Payload, topics: str, partitions: str, index: str, change: PartitionChange
) -> Payload | None:
    """The payload with changed partitions, or None where nothing was changed."""
    any_changed = False
    new_topics = []
    for topic in getattr(payload, topics):
        name = exchange.book.name_of(topic)
        new_partitions = []
        for one in getattr(topic, partitions):
            new = change(Place(name, getattr(one, index)), one)
            any_changed |= new is not None
            new_partitions.append(one if new is None else new)
        new_topics.append(replace(topic, **{partitions: tuple(new_partitions)}))
    return replace(payload, **{topics: tuple(new_topics)}) if any_changed else None


_MIRRORED: Final[dict[int, tuple[str, str, str, str, str]]] = {
    # where the request has its topics and their partitions; where the response has them, and a partition's error
    Api.PRODUCE: ("topic_data", "partition_data", "responses", "partition_responses", "error_code"),
    Api.LIST_OFFSETS: ("topics", "partitions", "topics", "partitions", "error_code"),
    Api.OFFSET_COMMIT: ("topics", "partitions", "topics", "partitions", "error_code"),
    Api.TXN_OFFSET_COMMIT: ("topics", "partitions", "topics", "partitions", "error_code"),
    Api.DELETE_RECORDS: ("topics", "partitions", "topics", "partitions", "error_code"),
    Api.ADD_PARTITIONS_TO_TXN: (
        "v3_and_below_topics",
        "partitions",
        "results_by_topic_v3_and_below",
        "results_by_partition",
        "partition_error_code",
    ),
}


def answer(exchange: Exchange, error: ErrorCode = ErrorCode.none, **values: Any) -> Payload:
    """A response to the request, with `error` for it as a whole or for each of its partitions.

    `values` go to the response where it has one error, else to every partition of it (`base_offset=7`). Works for the
    requests that have one error code, and for those of partitions that are listed above."""
    kind = exchange.response_class
    shape = _MIRRORED.get(exchange.api)
    if shape is None or not hasattr(exchange.request, shape[0]):
        return build(kind, error_code=error, **values)
    in_topics, in_partitions, out_topics, out_partitions, out_error = shape
    topic_kind = element(kind, out_topics)
    kind_of_partition = element(topic_kind, out_partitions)
    topics = []
    for topic in getattr(exchange.request, in_topics):
        indexes = [one if isinstance(one, int) else _index(one) for one in getattr(topic, in_partitions)]
        parts = tuple(
            build(kind_of_partition, **{"index": i, "partition_index": i, out_error: error, **values}) for i in indexes
        )
        named = {name: getattr(topic, name) for name in ("name", "topic_id") if hasattr(topic, name)}
        topics.append(build(topic_kind, **named, **{out_partitions: parts}))
    return build(kind, **{out_topics: tuple(topics)})


def _index(one: Any) -> int:
    return int(one.index if hasattr(one, "index") else one.partition_index)
