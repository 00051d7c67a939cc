"""`explain --picture` and `--raw`: a file that stands for itself, and what a real broker has."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from deltalake import write_deltalake

from deploy.local_kafka import LocalKafka
from monitor.config.config import Config, load
from monitor.errors import UserError
from monitor.postmortem.raw_log import lines, read
from probes.records.tag import Encoder
from rules.vocabulary.slices import Run, Slice, to_table
from tests.monitor.commands import offsetwatch
from tests.monitor.postmortem.histories import OPERATIONS, STARTS, WRITER, write
from tests.monitor.rows import NOON, finding, record
from tests.monitor.secured import TOKEN_HOOK, USER, Secured
from tests.probes.log.lives import wait_for

TOPIC = "raw"


def config_of(bootstrap: str, data: Path) -> Config:
    return load(None, {"OFFSETWATCH_DATA": str(data), "OFFSETWATCH_CLUSTER__BOOTSTRAP": bootstrap})


@pytest.fixture(scope="module")
def cluster(kafka: LocalKafka) -> LocalKafka:
    """Partition 0 of a topic: offsets 0 and 1 without a producer's id, 2 committed, 3 its marker, 4 aborted, 5 its
    marker, 6 in a transaction that is open."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    encoder = Encoder(run="run", writer=WRITER, topic=TOPIC, partition=0, size=120)
    plain = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 60_000})  # one batch, and then flushed
    for seq in (0, 1):
        plain.produce(TOPIC, tagged(encoder, seq), partition=0)
    plain.flush()
    for seq, end in ((2, "commit"), (3, "abort"), (4, None)):
        wait_for(partial(ends_at, admin, 2 * seq - 2))  # markers come after an end has returned
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"raw-{seq}", "transaction.timeout.ms": 600_000}
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(TOPIC, tagged(encoder, seq), partition=0)
        producer.flush()
        if end is not None:
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
    return kafka


def ends_at(admin: AdminClient, offset: int) -> bool:
    return log_end(admin) == offset


def log_end(admin: AdminClient) -> int:
    (end,) = admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()}).values()
    return int(end.result().offset)


def tagged(encoder: Encoder, seq: int) -> bytes:
    (value,) = encoder.encode(range(seq, seq + 1), sent=0)
    return value


def test_batches_and_markers(cluster: LocalKafka, tmp_path: Path) -> None:
    log = read(config_of(cluster.bootstrap, tmp_path), TOPIC, 0, [1, 2])
    assert (log.leader, log.replicas, log.in_sync) == (1, (1,), (1,))
    assert (log.log_start, log.log_end, log.last_stable) == (0, 7, 6)
    assert [(one.base_offset, one.last_offset, one.is_transactional, one.is_control) for one in log.batches] == [
        (0, 1, False, False),
        (2, 2, True, False),
        (3, 3, True, True),
        (4, 4, True, False),
        (5, 5, True, True),
    ]
    said = list(lines(log, [1, 2], {WRITER: "writer-1"}))
    assert said[0] == "leader 1, leader epoch 0, replicas 1, in sync 1"
    assert said[1] == "log start 0, end 7, last stable offset 6"
    assert said[2].startswith("0 to 1: no producer id, leader epoch 0, ")
    assert said[3:5] == ["    0 writer-1:1519/0", "  ▸ 1 writer-1:1519/1"]
    # The broker elects its coordinators anew where it was starved, as on a machine with much else to do.
    assert re.match(r"3: commit marker by coordinator epoch \d+, producer \d+ ", said[7])
    assert "abort marker" in said[10] and "in a transaction" in said[5]


def test_what_is_not_there(cluster: LocalKafka, tmp_path: Path) -> None:
    config = config_of(cluster.bootstrap, tmp_path)
    with pytest.raises(UserError, match="--raw: the cluster says of nothing: unknown_topic_or_partition"):
        read(config, "nothing", 0, [1])
    with pytest.raises(UserError, match="no partition 9 of raw"):
        read(config, TOPIC, 9, [1])
    with pytest.raises(UserError, match="at offset 997: offset_out_of_range"):
        read(config, TOPIC, 0, [1_000])
    with pytest.raises(UserError, match="--raw: raw/0 cannot be read"):
        read(config_of("127.0.0.1:9", tmp_path), TOPIC, 0, [1])


def test_the_command_reads_the_cluster(cluster: LocalKafka, tmp_path: Path) -> None:
    """A finding of now about offset 2, in a log of now: the batches are told below it, the arrow at its record."""
    now = datetime.now(UTC)
    sent = Slice(
        cluster="c",
        topic_id="t-id",
        topic=TOPIC,
        partition=0,
        run="r",
        process=WRITER,
        op=1,
        slice=1,
        f="send",
        type="ok",
        invoked=now - timedelta(seconds=2),
        completed=now - timedelta(seconds=1),
        sent=[Run(WRITER, 2, 2, 1)],
    )
    write_deltalake(str(tmp_path / "tables" / "history"), to_table([sent]), partition_by=["date"])
    at = (now - NOON).total_seconds()
    lost = finding("lost-write", at=at, topic=TOPIC, partition=0, evidence={"writer": WRITER, "seq": 2})
    unknown = finding("lost-write", (2,), at=at, topic="u", partition=1, evidence={"writer": WRITER, "seq": 8})
    record(tmp_path, lost, unknown)
    where = ("--raw", "--data", str(tmp_path))
    told = {"OFFSETWATCH_CLUSTER__BOOTSTRAP": cluster.bootstrap}
    done = offsetwatch("explain", lost.id, *where, cwd=tmp_path, **told)
    assert done.returncode == 0, done.stderr
    _, _, raw = done.stdout.partition("What stands in raw/0 now\n")
    assert "of cluster " in raw and "the finding is of cluster c" in raw
    assert f"▸ 2 {WRITER}/2" in raw and "commit marker" in raw
    assert max(map(len, raw.splitlines())) <= 80
    done = offsetwatch("explain", unknown.id, *where, cwd=tmp_path, **told)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "nobody was told an offset" in done.stderr


def test_a_cluster_that_wants_a_token(secured: Secured, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": secured.plain})
    admin.create_topics([NewTopic("guarded", 1, 1)])["guarded"].result()
    producer = Producer({"bootstrap.servers": secured.plain})
    producer.produce("guarded", b"here", partition=0)
    assert producer.flush(60) == 0
    asked = secured.security("OAUTHBEARER", sasl__oauthbearer__config=USER)
    told = "\n".join(f'"{key}" = "{value}"' for key, value in asked.items())
    (tmp_path / "x.toml").write_text(
        f'[cluster]\nbootstrap = "{secured.bootstrap}"\ntoken = "{TOKEN_HOOK}"\n[cluster.security]\n{told}\n'
    )
    log = read(load(tmp_path / "x.toml", {"OFFSETWATCH_DATA": str(tmp_path)}), "guarded", 0, [0])
    assert [record.value for batch in log.batches for record in batch.records()] == [b"here"]


def test_the_picture_stands_for_itself(tmp_path: Path) -> None:
    write(tmp_path, *STARTS, *OPERATIONS)
    lost = finding("lost-write", (WRITER, 9), at=20, evidence={"writer": WRITER, "seq": 9, "offset": 109})
    cycle = finding("stuck-consumer", (1,), event="opened", evidence={"process": 1}, topic="u")
    record(tmp_path, lost, cycle)
    drawn = tmp_path / "drawn.svg"
    done = offsetwatch("explain", lost.id, "--picture", str(drawn), "--data", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0 and str(drawn) in done.stdout, done.stderr
    root = ElementTree.fromstring(drawn.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root[0].tag.endswith("style")
    assert "writer-1" in drawn.read_text()
    (tmp_path / "cycles").mkdir()
    (tmp_path / "cycles" / f"{lost.id}.svg").write_text("<svg>its cycle</svg>")
    offsetwatch("explain", lost.id, "--picture", str(drawn), "--data", str(tmp_path), cwd=tmp_path)
    assert drawn.read_text() == "<svg>its cycle</svg>"
    for arguments in ((cycle.id, "--picture", str(drawn)), (lost.id, "--picture", "none/x.svg")):
        done = offsetwatch("explain", *arguments, "--data", str(tmp_path), cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
