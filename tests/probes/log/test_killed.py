"""Real probes, their committer and a real cluster: killed with SIGKILL in mid-flight, again and again.

What must hold in the end is asked of three witnesses: what the probes' process had told its journal, what stands in
Kafka, and the rules."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import probes
from deploy.local_kafka import LocalKafka
from probes.log.journals.segments import OVER, life_folders
from probes.records.tag import read
from rules.cycles.search import search
from rules.store import MemoryStore
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import DIED, SLICE_SCHEMA
from tests.probes.log.lives import appends, check_marks, check_slices, table_rows, wait_for

KILLS = 4
MANY_KILLS = 20
Row = dict[str, Any]
Value = tuple[str, int, int, int]
"""(topic, partition, writer, seq)"""


@contextmanager
def victim(root: Path, bootstrap: str, prefix: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(Path(probes.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.probes.log.victim", str(root), bootstrap, prefix],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "started\n"
            yield process
        finally:
            process.kill()


@pytest.mark.kafka
@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.evening)])
def test_killed_again_and_again_the_log_loses_nothing_and_accuses_nobody(
    kafka: LocalKafka, tmp_path: Path, kills: int
) -> None:
    prefix = f"killed-{uuid.uuid4().hex[:8]}"
    moments = random.Random()
    for _ in range(kills):
        with victim(tmp_path, kafka.bootstrap, prefix) as process:
            before = size(tmp_path / "opened")
            time.sleep(moments.uniform(0.2, 4.0))
            wait_for(partial(is_larger, tmp_path / "opened", before), 120)
            process.send_signal(signal.SIGKILL)
    with victim(tmp_path, kafka.bootstrap, prefix) as process:
        time.sleep(5)
        wait_for(lambda: acknowledged(tmp_path / "told") > 1_000, 300)
        wait_for(lambda: check_marks(tmp_path / "history") > 100, 300)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0

    rows = table_rows(tmp_path / "history")
    check_slices(rows)
    assert check_marks(tmp_path / "history") > 100
    told, opened = lines(tmp_path / "told"), lines(tmp_path / "opened")
    assert len(told) > 100 and len(opened) > 100
    logged_once_and_as_told(rows, told)
    in_flight = never_a_failure(rows, told, opened)
    assert in_flight > 0, "no kill met an operation in flight"
    agrees_with_kafka(rows, in_kafka(kafka.bootstrap, sorted({row["topic"] for row in rows})))
    every_life_ended(rows, tmp_path / "journal", kills)
    assert violations(tmp_path / "history") == []


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def is_larger(path: Path, before: int) -> bool:
    return size(path) > before


def acknowledged(told: Path) -> int:
    """How many records the journals have been told of as acknowledged."""
    return sum(run[3] for row in lines(told) if row[5] == "ok" for run in row[7])


def lines(path: Path) -> list[list[Any]]:
    """The witness's rows; death may have cut the last line of each life, and what follows it."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found += orjson.loads(line)
        except orjson.JSONDecodeError:
            assert line.startswith(b"[")
    return found


def runs(told: list[Row] | None) -> list[list[Any]]:
    return [[run["writer"], run["seq"], run["offset"], run["length"]] for run in told or ()]


def logged_once_and_as_told(rows: list[Row], told: list[list[Any]]) -> None:
    """(process, place, slice) names one row, and it says what the journal was told."""
    logged: dict[tuple[Any, ...], list[list[Any]]] = defaultdict(list)
    for row in rows:
        logged[row["process"], row["topic_id"], row["partition"], row["slice"]].append(
            [row["f"], row["type"], row["op"], runs(row["sent"]), runs(row["polled"])]
        )
    for process, topic_id, partition, number, *said in told:
        assert logged[process, topic_id, partition, number] == [said]


def never_a_failure(rows: list[Row], told: list[list[Any]], opened: list[list[Any]]) -> int:
    """What was opened has an outcome that the journal was told of, or is `info`; of each process one may have been told
    in its last moment, unheard by the witness. Returns how many operations the recoveries found in flight.

    A send that ended in several ways is an operation for each of them: a partition's part is known by its values."""
    outcomes = {(process, topic_id, partition, op) for process, topic_id, partition, _, _, _, op, _, _ in told}
    logged: dict[tuple[Any, ...], Row] = {}
    sending: dict[tuple[Any, ...], Row] = {}
    over = set()
    for one in rows:
        place = (one["process"], one["topic_id"], one["partition"])
        if one["f"] == "close":
            over.add(place)
        else:
            logged[*place, one["op"]] = one
            sending |= {(*place, writer, seq): one for writer, seq, _, _ in runs(one["sent"])}
    unheard = set()
    for process, topic_id, partition, _, f, _, op, sent, _ in opened:
        place = (process, topic_id, partition)
        row = logged.get((*place, op)) or (sending.get((*place, sent[0][0], sent[0][1])) if sent else None)
        if row is None:
            assert place not in over, "what the last stop left open is finished by the next start, and its life with it"
            continue
        assert row["f"] == f
        op = row["op"]
        if row["error"] == DIED:
            assert row["type"] == "info"
        elif (process, topic_id, partition, op) not in outcomes:
            unheard.add((process, op))
    assert max(Counter(process for process, _ in unheard).values(), default=0) <= 1
    return len({(r["process"], r["op"]) for r in rows if r["error"] == DIED and r["f"] != "close"})


def in_kafka(bootstrap: str, topics: list[str]) -> dict[Value, list[int]]:
    """Every committed record of the topics, by its tag: the offsets at which it stands.

    Read up to the last offset, once the transactions of the dead have timed out and hold back nothing any more."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "witness", "enable.auto.commit": False}
    uncommitted = Consumer(settings | {"isolation.level": "read_uncommitted"})
    known = uncommitted.list_topics().topics
    places = [TopicPartition(topic, partition, 0) for topic in topics for partition in known[topic].partitions]
    ends = {(tp.topic, tp.partition): uncommitted.get_watermark_offsets(tp, timeout=60)[1] for tp in places}
    uncommitted.close()
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign(places)
    found: dict[Value, list[int]] = defaultdict(list)
    until = time.monotonic() + 300
    while ends:
        assert time.monotonic() < until, f"the end of {ends} was not reached"
        for message in consumer.consume(10_000, 0.5):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                if message.offset() >= ends.get((message.topic(), message.partition()), 0):
                    ends.pop((message.topic(), message.partition()), None)
                continue
            tag = read(message.value())
            assert tag is not None and (tag.topic, tag.partition) == (message.topic(), message.partition())
            found[tag.topic, tag.partition, tag.writer, tag.seq].append(message.offset())
    consumer.close()
    return found


def agrees_with_kafka(rows: list[Row], stands: dict[Value, list[int]]) -> None:
    """Nothing stands in Kafka that the log does not know, or calls failed; all that it calls acknowledged is there."""
    types: dict[Value, set[str]] = defaultdict(set)
    acknowledged: dict[Value, int | None] = {}
    for row in rows:
        for writer, seq, offset, length in runs(row["sent"]):
            for i in range(length):
                value = (row["topic"], row["partition"], writer, seq + i)
                types[value].add(row["type"])
                if row["type"] == "ok":
                    assert value not in acknowledged
                    acknowledged[value] = None if offset is None else offset + i
    assert len(acknowledged) > 1_000
    assert all(len(offsets) == 1 for offsets in stands.values())
    assert not {value for value in stands if not types[value] or "fail" in types[value]}
    assert not {value for value, offset in acknowledged.items() if offset is not None and stands[value] != [offset]}
    assert not {value for value in acknowledged if not stands[value]}


def every_life_ended(rows: list[Row], journals: Path, kills: int) -> None:
    """Killed lives were closed as `info`, those of the last process in order, and nothing is left to be done."""
    closes = {row["process"]: row["type"] for row in rows if row["f"] == "close"}
    assert closes.keys() == {row["process"] for row in rows if row["f"] != "mark"}
    assert Counter(closes.values())["info"] >= kills
    assert Counter(closes.values())["ok"] >= len({row["kind"] for row in rows if row["f"] == "start"})
    assert all((folder / OVER).exists() for folder in life_folders(journals))


def violations(history: Path) -> list[Finding]:
    """What the rules say of the log when they follow it commit by commit, and of the cycles in all of it."""
    store = MemoryStore()
    findings = search(pa.Table.from_pylist(table_rows(history), schema=SLICE_SCHEMA)).findings
    for rows in appends(history):
        if not rows:
            continue
        brought = pa.Table.from_pylist([row | {"date": row["completed"].date()} for row in rows], schema=SLICE_SCHEMA)
        for stepped in store.step(brought).values():
            findings += stepped.findings
    return [one for one in findings if CATALOGUE[one.anomaly].kind == "violation"]
