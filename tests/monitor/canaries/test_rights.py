"""Rights that are taken from the probes while they run, and given back: told by name, and nothing is called lost."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from crc32c import crc32c

from monitor.config.config import load
from probes.records.tag import Encoder
from rules.vocabulary.catalogue import CATALOGUE
from streaming_jobs.tables.delta_tables import read_table
from tests.monitor.commands import offsetwatch, started
from tests.monitor.process.test_standby import ended, said, until
from tests.monitor.secured import PASSWORD, USER, Secured, secured_broker

PREFIX, LIMIT_S = "offsetwatch-", 60.0
RIGHTS = {
    ResourceType.TOPIC: ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "ALTER_CONFIGS", "READ", "WRITE"),
    ResourceType.GROUP: ("DESCRIBE", "READ"),
    ResourceType.TRANSACTIONAL_ID: ("DESCRIBE", "WRITE"),
    ResourceType.BROKER: ("DESCRIBE", "DESCRIBE_CONFIGS"),
}
"""Those of docs/security.md."""

CONFIG = """
data = "{data}"
[cluster]
bootstrap = "{bootstrap}"
[cluster.security]
{security}
[alerts]
metrics_port = 0
quiet = 30
"""


def _of(resource: ResourceType) -> tuple[str, ResourcePatternType]:
    if resource is ResourceType.BROKER:
        return "kafka-cluster", ResourcePatternType.LITERAL
    return PREFIX, ResourcePatternType.PREFIXED


def give(admin: AdminClient, resource: ResourceType, *operations: str) -> None:
    asked = [
        AclBinding(resource, *_of(resource), f"User:{USER}", "*", AclOperation[operation], AclPermissionType.ALLOW)
        for operation in operations
    ]
    for one in admin.create_acls(asked).values():
        one.result(LIMIT_S)


def take(admin: AdminClient, resource: ResourceType, operation: str) -> None:
    asked = AclBindingFilter(
        resource, *_of(resource), f"User:{USER}", "*", AclOperation[operation], AclPermissionType.ALLOW
    )
    for one in admin.delete_acls([asked]).values():
        assert len(one.result(LIMIT_S)) == 1


def poison(broker: Secured, topic: str) -> None:
    """A stranger's record: a whole tag of a run that is none of ours, with numbers that no probe gives."""
    (value,) = Encoder(run="stranger", writer=1, topic=topic, partition=0, size=200).encode(range(1), sent=0)
    told = bytearray(value[:-4])
    told[12:28] = struct.pack("<qq", -5, -3)
    producer = Producer({"bootstrap.servers": broker.plain})
    producer.produce(topic, bytes(told) + crc32c(bytes(told)).to_bytes(4, "little"), partition=0)
    assert producer.flush(LIMIT_S) == 0


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1800)
def test_rights_that_are_taken_and_given_back(tmp_path: Path) -> None:
    authorizer = {
        "authorizer__class__name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super__users": "User:ANONYMOUS",
    }
    (tmp_path / "broker").mkdir()
    with secured_broker(tmp_path / "broker", **authorizer) as broker:
        admin = AdminClient({"bootstrap.servers": broker.plain})
        for resource, operations in RIGHTS.items():
            if resource is not ResourceType.GROUP:
                give(admin, resource, *operations)
        security = "\n".join(f'"{key}" = "{value}"' for key, value in broker.security().items())
        (tmp_path / "ow.toml").write_text(
            CONFIG.format(data=tmp_path / "data", bootstrap=broker.bootstrap, security=security)
        )
        config = load(tmp_path / "ow.toml", {})

        def told(anomaly: str) -> list[tuple[str, str]]:
            found = read_table(config.job.tables_path, "findings").to_pylist()
            return [(one["event"], one["message"]) for one in found if one["anomaly"] == anomaly]

        def open_now(anomaly: str) -> int:
            return sum({"opened": 1, "closed": -1}.get(event, 0) for event, _ in told(anomaly))

        def behind() -> float:
            rows = read_table(config.job.tables_path, "partition_state").to_pylist()
            behind = [one["now"] - one["checked_through"] for one in rows if one["checked_through"]]
            return max(float(each.total_seconds()) for each in behind)

        with ended(started("monitor", "--probes", "-c", "ow.toml", cwd=tmp_path)) as monitor:
            wait = waiting(tmp_path)
            # Nobody gave the right to groups: whoever reads by one does not come to read.
            wait(lambda: len({who(m) for m in denied(told("refused-reads"))} & READERS) == len(READERS))
            doctor = offsetwatch("doctor", "--json", "-c", "ow.toml", cwd=tmp_path)
            rights = [one for one in map(json.loads, doctor.stdout.splitlines()) if one["about"] == "rights"]
            assert [(one["state"], one["detail"]) for one in rights] == [
                ("bad", "groups offsetwatch-*: GROUP_AUTHORIZATION_FAILED")
            ]
            give(admin, ResourceType.GROUP, *RIGHTS[ResourceType.GROUP])
            wait(lambda: open_now("refused-reads") == 0)
            time.sleep(30)
            take(admin, ResourceType.GROUP, "READ")
            again = len(told("refused-reads"))
            wait(lambda: any("reader-group-" in message for message in denied(told("refused-reads")[again:])))
            give(admin, ResourceType.GROUP, "READ")
            wait(lambda: open_now("refused-reads") == 0)
            take(admin, ResourceType.TRANSACTIONAL_ID, "WRITE")
            refused = "with TRANSACTIONAL_ID_AUTHORIZATION_FAILED for"
            wait(lambda: any(refused in message for _, message in told("refused-writes")))
            give(admin, ResourceType.TRANSACTIONAL_ID, "WRITE")
            wait(lambda: open_now("refused-writes") == 0)
            take(admin, ResourceType.TOPIC, "READ")
            polls = "; its polls end with TOPIC_AUTHORIZATION_FAILED"
            wait(lambda: any(message.endswith(polls) for _, message in told("stuck-consumer")))
            give(admin, ResourceType.TOPIC, "READ")
            wait(lambda: open_now("stuck-consumer") == 0)
            for operation in RIGHTS[ResourceType.TOPIC]:
                take(admin, ResourceType.TOPIC, operation)
            refused = "TOPIC_AUTHORIZATION_FAILED"
            wait(lambda: any(refused in message for _, message in told("refused-writes")))
            time.sleep(40)  # longer than it takes to call a cluster unreachable
            give(admin, ResourceType.TOPIC, *RIGHTS[ResourceType.TOPIC])
            wait(lambda: open_now("refused-writes") == 0)
            assert not told("cluster-unreachable")
            poison(broker, config.probes.topics.records)
            wait(lambda: told("foreign-record"))
            time.sleep(60)
            assert behind() < 45
            os.killpg(monitor.pid, signal.SIGTERM)
            assert monitor.wait(timeout=120) == 0, said(tmp_path)
        assert read_table(config.job.tables_path, "rejected").num_rows == 0
        found = {one["anomaly"] for one in read_table(config.job.tables_path, "findings").to_pylist()}
        assert {name for name in found if CATALOGUE[name].kind == "violation"} <= {"foreign-record"}
        lines = (tmp_path / "out.txt").read_text() + (tmp_path / "err.txt").read_text()
        assert PASSWORD not in lines


READERS = {"reader-1", "reader-restless-1", "reader-group-1", "reader-group-2", "transform-1"}


def denied(told: list[tuple[str, str]]) -> list[str]:
    """What says that a group may not be used."""
    return [text for event, text in told if event == "opened" and text.endswith("with GROUP_AUTHORIZATION_FAILED")]


def who(message: str) -> str:
    return message.partition(" of run ")[0]


def waiting(folder: Path) -> Callable[[Callable[[], object]], float]:
    return lambda holds: until(holds, folder, 300)
