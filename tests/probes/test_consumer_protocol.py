"""Readers and transforms that join their groups by the consumer protocol (KIP-848), on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from probes.records.polls import Polled
from probes.topology import Partition
from probes.workloads.reader import Reader
from probes.workloads.transactional.transform import Transform
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import polls, produce, tagged, until
from tests.probes.test_transform import assert_exactly_once, feed, group_offsets, grow, transform_all

HEARTBEAT = 5.0
"""Seconds between two heartbeats of a member, and so until it is told of what it gains."""


def put(one: Stage, name: str, *, timeout: float = 60.0) -> Transform:
    return one.put(Transform, name, timeout=timeout, group=f"{one.prefix}-transform")


def test_a_reader_goes_on_with_what_it_keeps_and_its_rows_tell_only_of_the_rest(stage: MakeStage) -> None:
    one = stage(group_protocol="consumer", reader={"commit_interval": 0.5})
    everywhere = set(one.layout.partitions())
    first = one.put(Reader, "first", group=f"{one.prefix}-g", mode="subscribe")
    assert first.settings()["group.protocol"] == "consumer"
    assert "session.timeout.ms" not in first.settings()
    until(lambda: first.assigned == everywhere, first)
    for where in everywhere:
        produce(one, where, tagged(where, 0, 4))
    until(lambda: first.counters.polled == 24, first)
    second = one.put(Reader, "second", group=f"{one.prefix}-g", mode="subscribe")
    until(lambda: second.assigned and first.assigned | second.assigned == everywhere, first, second)
    assert not first.assigned & second.assigned
    kept, lost = first.assigned, second.assigned
    revoked = witness(first).of("revoke")
    assert {((row.topic, row.partition), row.assigned) for row in revoked} == {(where, False) for where in lost}
    # The first answer of its group tells of every partition that this life has come to read.
    gained = {(row.topic, row.partition): row.assigned for row in witness(second).of("assign")}
    assert gained == {where: where in lost for where in everywhere}
    for where in everywhere:
        produce(one, where, tagged(where, 4, 3))
    until(
        lambda: all(_ends_at(reader, where, 7) for reader in (first, second) for where in reader.assigned),
        first,
        second,
    )
    for where in kept:  # without a break, and nothing twice
        rows = polls(first, where)
        assert [row.position_before for row in rows] == [None, *(row.position_after for row in rows[:-1])]
        assert sum(run.length for row in rows for run in row.polled) == 7
        assert not any(row.rebalanced for row in rows[1:])
    until(lambda: [row for row in witness(second).of("offsets") if row.committed == 7], first, second)
    assert {row.type for row in witness(first).of("commit")} <= {"ok", "info"}


def _ends_at(reader: Reader, where: tuple[str, int], offset: int) -> bool:
    rows = polls(reader, where)
    return bool(rows) and rows[-1].position_after == offset


@pytest.mark.parametrize("id_per_partition", [False, True])
def test_a_member_that_comes_and_goes_takes_no_input_twice(stage: MakeStage, id_per_partition: bool) -> None:
    one = stage(
        group_protocol="consumer",
        transform={"count": 2, "abort_share": 0.3, "records": 3, "id_per_partition": id_per_partition},
    )
    first = put(one, "transform-1")
    feed(one)
    transform_all(first)
    second = put(one, "transform-2")
    until(lambda: second.membership.assigned and first.membership.assigned, doing=lambda: _both(first, second))
    assert not first.membership.assigned & second.membership.assigned
    # Checks of any partition hear that this life has come to read.
    for probe in (first, second):
        assert {(row.topic, row.partition) for row in witness(probe).of("assign")} == set(one.layout.partitions())
    feed(one, 10)
    until(lambda: sum(group_offsets(one).values()) == 60, doing=lambda: _both(first, second))
    feed(one, 20)
    _both(first, second)
    second.close()
    second.log.end("ok")
    until(lambda: sum(group_offsets(one).values()) == 90, doing=first.transform)
    assert assert_exactly_once(one) == 90


def _both(first: Transform, second: Transform) -> None:
    first.transform()
    second.transform()


class Interrupted(Transform):
    """Between the two polls of its first transaction somebody joins its group."""

    join: Callable[[], None]

    def _take(self, polled: Mapping[Partition, Polled]) -> None:
        super()._take(polled)
        if self._runs and (join := self.__dict__.pop("join", None)):
            join()


def test_a_transaction_that_a_rebalance_ends_polls_anew_of_what_is_kept(stage: MakeStage) -> None:
    one = stage(group_protocol="consumer", transform={"count": 2, "abort_share": 0.0})
    first = one.put(Interrupted, "transform-1", timeout=60.0, group=f"{one.prefix}-transform")
    until(lambda: len(first.membership.assigned) == 3, doing=first.transform)
    feed(one)
    joined: list[Transform] = []

    def join() -> None:
        joined.append(put(one, "transform-2"))
        until(lambda: time.monotonic() > end, doing=joined[0].transform)

    end = time.monotonic() + HEARTBEAT + 3.0  # a member is told by its next heartbeat
    first.join = join

    def transform() -> None:
        first.transform()
        if joined:
            joined[0].transform()

    until(lambda: sum(group_offsets(one).values()) == 30, doing=transform)
    ended = [row for row in witness(first).of("txn") if row.type == "fail"]
    assert {row.error for row in ended} == {"_REVOKE_PARTITIONS"}
    polled = {(row.topic, row.partition) for row in ended if row.polled}
    assert first.membership.assigned & polled, "it had polled of what it keeps"
    assert assert_exactly_once(one) == 30


class Heir(Transform):
    """Before the second poll of its first transaction somebody leaves its group, and the poll waits for what is his."""

    leave: Callable[[], None]

    def _poll(self, wait: float) -> dict[Partition, Polled]:
        if self._runs and (leave := self.__dict__.pop("leave", None)):
            leave()
            wait = HEARTBEAT + 2.0
        return super()._poll(wait)


def test_a_transaction_in_which_partitions_are_gained_goes_on_behind_what_it_polled(stage: MakeStage) -> None:
    """The committed offsets lie before it then: read from there, its inputs were taken twice."""
    one = stage(group_protocol="consumer", transform={"count": 2, "abort_share": 0.0})
    first = one.put(Heir, "transform-1", timeout=60.0, group=f"{one.prefix}-transform")
    second = put(one, "transform-2")
    until(lambda: len(first.membership.assigned | second.membership.assigned) == 3, doing=lambda: _both(first, second))
    until(lambda: second.membership.assigned and first.membership.assigned, doing=lambda: _both(first, second))
    kept = first.membership.assigned

    def leave() -> None:
        second.close()
        second.log.end("ok")

    first.leave = leave
    feed(one)
    transform_all(first)
    assert kept < first.membership.assigned, "it gained partitions while its transaction was open"
    until(lambda: sum(group_offsets(one).values()) == 30, doing=first.transform)
    assert {row.type for row in witness(first).of("txn")} == {"ok"}
    assert assert_exactly_once(one) == 30


def test_partitions_that_it_leaves_alone_are_held_unread_and_it_can_be_closed(stage: MakeStage) -> None:
    """A client that does not take all it is given never leaves its group, and closing it never returned."""
    one = stage(group_protocol="consumer", transform={"count": 1, "abort_share": 0.0})
    grow(one, one.config.topics.transform_in, 5)
    probe = put(one, "transform-1")
    produce(one, (one.config.topics.transform_in, 4), tagged((one.config.topics.transform_in, 4), 0, 10))
    feed(one)
    until(lambda: sum(group_offsets(one).values()) == 30, doing=probe.transform)
    assert {partition for _, partition in probe.membership.assigned} == {0, 1, 2}
    probe.close()
    probe.log.end("ok")
