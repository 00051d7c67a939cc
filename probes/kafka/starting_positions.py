"""Where a consumer begins: where its probe stood before, else what its group committed, else the log's start; and where
a log ends.

Inside a rebalance callback a consumer answers only the thread that the callback runs in (seen with librdkafka 2.16: a
call from another thread waits until the callback is over). So there it is asked directly (`in_callback`), and its own
timeout is what bounds the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from probes.kafka.calls import bounded, listed
from probes.kafka.errors import ClientError, ClientStuck, translate
from probes.topology import Partition

ASK_WITHIN = 5.0
"""Seconds that the cluster is given to answer where something begins."""
NO_GROUP = "GROUP_ID_NOT_FOUND"
"""What some implementations answer to a question about a group that has committed nothing."""
_NO_ANSWER = "_TIMED_OUT"
LEADERLESS = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "_NO_OFFSET")
LEADERLESS_TRIES = 10
LEADERLESS_WAIT = 0.3
"""Seconds between two questions where a partition has no leader yet."""
COORDINATOR_WITHIN = 10.0
"""Seconds that a group's coordinator is given to become ready."""


def committed(
    consumer: Consumer,
    partitions: Iterable[Partition],
    beat: Callable[[], None],
    within: float = ASK_WITHIN,
    *,
    in_callback: bool = False,
) -> dict[Partition, int | None]:
    """The group's committed offsets; None where there is none. Raises ClientError, ClientStuck.

    A coordinator that does not know a group may say so, and then it has committed nothing."""
    asked = [TopicPartition(topic, partition) for topic, partition in partitions]
    if not asked:
        return {}
    try:
        if in_callback:
            found = consumer.committed(asked, timeout=within)
        else:
            found = bounded(lambda: consumer.committed(asked, timeout=within), within * 2, beat, "committed")
    except ClientStuck:
        raise
    except Exception as error:
        problem = translate(error)
        if problem.code == NO_GROUP:
            return dict.fromkeys(((tp.topic, tp.partition) for tp in asked), None)
        raise (None if in_callback else _refusal(consumer, problem)) or problem from error
    for tp in found:
        if tp.error is not None and (problem := translate(tp.error)).code != NO_GROUP:
            raise problem
    return {(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in found}


def _refusal(consumer: Consumer, problem: ClientError) -> ClientError | None:
    """Why nobody answered, where the client was told: that it may not ask a group is told to those who poll (seen with
    librdkafka 2.16), and who asks for its offsets waits in vain."""
    if problem.code != _NO_ANSWER or consumer.assignment():
        return None
    told = [translate(error) for message in consumer.consume(10, 0) if (error := message.error()) is not None]
    return next((one for one in told if not one.code.startswith("_")), None)


def log_starts(admin: AdminClient, partitions: Iterable[Partition], within: float = ASK_WITHIN) -> dict[Partition, int]:
    """The first offset of each partition, as far as its leader tells within the time."""
    return _told(admin, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED, within)


def log_ends(
    admin: AdminClient, partitions: Iterable[Partition], level: IsolationLevel, within: float = ASK_WITHIN
) -> dict[Partition, int]:
    """The end of each partition, at read_committed its last stable offset, as far as its leader tells within the
    time."""
    return _told(admin, partitions, OffsetSpec.latest(), level, within)


def first_since(
    admin: AdminClient, partitions: Iterable[Partition], since: int, within: float = ASK_WITHIN
) -> dict[Partition, int]:
    """The first offset of each partition whose record's timestamp is `since` or later (microseconds), as far as its
    leader tells within the time; none where there is no such record."""
    spec = OffsetSpec.for_timestamp(since // 1000)
    found = _told(admin, partitions, spec, IsolationLevel.READ_UNCOMMITTED, within)
    return {where: offset for where, offset in found.items() if offset >= 0}


def _told(
    admin: AdminClient, partitions: Iterable[Partition], spec: OffsetSpec, level: IsolationLevel, within: float
) -> dict[Partition, int]:
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    told: dict[Partition, int] = {}
    for tp, future in admin.list_offsets(asked, isolation_level=level, request_timeout=within).items():
        try:
            told[tp.topic, tp.partition] = listed(future)
        except Exception:
            continue
    return told


def log_ends_when_led(
    open_admin: Callable[[], AdminClient],
    partitions: Iterable[Partition],
    beat: Callable[[], None],
    pause: Callable[[float], None],
) -> dict[Partition, int]:
    """Where each partition ends now, asked again for a moment where a leader is just being chosen, as after the topic
    was made. Raises ClientError and ClientStuck where a leader does not tell."""
    wanted = list(partitions)
    for _ in range(LEADERLESS_TRIES):
        try:
            return _log_ends(open_admin(), wanted, beat)
        except ClientError as error:
            if error.code not in LEADERLESS:
                raise
            pause(LEADERLESS_WAIT)
    return _log_ends(open_admin(), wanted, beat)


def _log_ends(admin: AdminClient, partitions: list[Partition], beat: Callable[[], None]) -> dict[Partition, int]:
    asked = {TopicPartition(*where): OffsetSpec.latest() for where in partitions}
    futures = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ASK_WITHIN)
    try:
        return bounded(
            lambda: {(tp.topic, tp.partition): listed(future) for tp, future in futures.items()},
            ASK_WITHIN * 2,
            beat,
            "list offsets",
        )
    except ClientStuck:
        raise
    except Exception as error:
        raise translate(error) from error


def committed_at_last(
    consumer: Consumer,
    partitions: Iterable[Partition],
    beat: Callable[[], None],
    within: float = COORDINATOR_WITHIN,
    *,
    in_callback: bool = False,
) -> dict[Partition, int | None]:
    """`committed`, asked again for `within` seconds: a coordinator that has just moved or is loading refuses at first,
    and so does one (to a consumer at read_committed) that holds offsets of a transaction that has not ended."""
    partitions = list(partitions)
    limit = time.monotonic() + within
    refused: ClientError | None = None
    while True:
        try:
            return committed(consumer, partitions, beat, in_callback=in_callback)
        except ClientError as error:
            if error.code != _NO_ANSWER:
                refused = error
            if error.fatal or time.monotonic() >= limit:
                raise refused or error from None  # a client tells once why it is not answered
        time.sleep(0.2)
        beat()


def beginnings(
    admin: AdminClient,
    partitions: Iterable[Partition],
    carried: dict[Partition, int],
    beat: Callable[[], None],
    *,
    committed: Callable[[list[Partition]], dict[Partition, int | None]] | None,
) -> dict[Partition, int]:
    """The offset to begin at in each partition; OFFSET_BEGINNING where no leader told the log's start.

    `committed` asks what the group has committed; without it, that is not asked for.

    Raises ClientError and ClientStuck where the group's offsets cannot be read: to begin at the start instead would
    read everything again after each outage."""
    wanted = list(partitions)
    begin = {where: carried[where] for where in wanted if where in carried}
    rest = [where for where in wanted if where not in begin]
    if committed is not None:
        begin |= {where: at for where, at in committed(rest).items() if at is not None}
    rest = [where for where in wanted if where not in begin]
    begin |= bounded(lambda: log_starts(admin, rest), ASK_WITHIN * 2, beat, "list offsets")
    return {where: begin.get(where, OFFSET_BEGINNING) for where in wanted}
