"""A group whose offsets go while it has no member, on a real broker: who joins next is told, and it is found."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException

from probes.topology import Partition
from probes.workloads.probe import Probe
from probes.workloads.reader import Reader
from probes.workloads.transactional.transform import Transform
from rules.vocabulary.slices import Slice
from tests.probes.conftest import MakeStage, Stage, witness
from tests.probes.test_reader import produce, tagged, until
from tests.probes.test_transform import group_offsets
from tests.rules.histories import Store


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "kept"])
def test_what_a_member_is_told_that_has_just_joined(stage: MakeStage, protocol: str, deleted: bool) -> None:
    one = stage(group_protocol=protocol, reader={"commit_interval": 0.3})
    here, group = (one.config.topics.records, 1), f"{one.prefix}-g"
    produce(one, here, tagged(here, 0, 10))
    first = one.put(Reader, "first", group=group, mode="subscribe")
    until(lambda: [row for row in witness(first).of("offsets") if row.committed == 10], first)
    first.close()
    first.log.end("ok")
    if deleted:
        until(lambda: _is_deleted(one, group))
    second = one.put(Reader, "second", group=group, mode="subscribe")
    until(lambda: _told(second, here), second)
    told = _told(second, here)[0]
    assert (told.type, told.group, told.committed) == ("ok", group, None if deleted else 10)
    rows = [row for row in one.read_journal(second) if (row.topic, row.partition) == here]
    order = [row.f for row in rows]
    assert order.index("assign") < order.index("offsets") < (*order, "commit").index("commit")
    store = Store()
    store.feed([row for reader in (first, second) for row in one.read_journal(reader)], finished=True)
    found = [(f.anomaly, f.subject) for f in store.findings if f.anomaly == "lost-commit" and f.partition == 1]
    assert found == ([("lost-commit", (group, 10, -1))] if deleted else [])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "kept"])
def test_what_a_transform_is_told_that_has_just_joined(stage: MakeStage, protocol: str, deleted: bool) -> None:
    one = stage(group_protocol=protocol, transform={"count": 2, "abort_share": 0.0})
    here, group = (one.config.topics.transform_in, 1), f"{one.prefix}-transform"
    produce(one, here, tagged(here, 0, 10))
    first = one.put(Transform, "first", timeout=60.0, group=group)
    until(lambda: group_offsets(one) == {1: 10}, doing=first.transform)
    first.close()
    first.log.end("ok")
    if deleted:
        until(lambda: _is_deleted(one, group))
    produce(one, here, tagged(here, 10, 2))
    second = one.put(Transform, "second", timeout=60.0, group=group)
    until(lambda: group_offsets(one) == {1: 12}, doing=second.transform)
    assert [row.committed for row in _told(second, here)] == [None if deleted else 10]
    store = Store()
    store.feed([row for probe in (first, second) for row in one.read_journal(probe)], finished=True)
    told = ("lost-commit", "foreign-commit", "offset-regression")
    found = [(f.anomaly, f.subject) for f in store.findings if f.anomaly in told]
    assert found == ([("lost-commit", (group, 10, -1))] if deleted else [])


def _told(reader: Probe, where: Partition) -> list[Slice]:
    return [row for row in witness(reader).of("offsets") if (row.topic, row.partition) == where]


def _is_deleted(one: Stage, group: str) -> bool:
    """Whether it is now: a group that still has members is not."""
    try:
        one.admin.delete_consumer_groups([group])[group].result()
    except KafkaException:
        time.sleep(0.2)
        return False
    return True
