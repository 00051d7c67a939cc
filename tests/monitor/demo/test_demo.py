"""The demonstration as a user runs it, on real brokers: the provoked violation is found, and no other."""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path
from typing import Any

import pytest

from monitor.demo.surroundings import THREE_BROKERS_NEED, remove_earlier
from monitor.process.machine import available_memory
from tests.monitor.commands import offsetwatch, started

SECONDS = "50"
OUTCOMES = ("aborted", "committed")
LIMIT = 900
"""Seconds. It ends by itself; a machine that is busy otherwise may take minutes until Spark has begun."""


def demonstrated(tmp_path: Path, *options: str) -> tuple[str, Path]:
    """What it printed, and its folder, of a demonstration that found what it provoked, and nothing else."""
    child = started("demo", *options, cwd=tmp_path, DEMO_SECONDS=SECONDS)
    try:
        code = child.wait(timeout=LIMIT)
    finally:
        child.kill()
    told, errors = (tmp_path / "out.txt").read_text(), (tmp_path / "err.txt").read_text()
    assert code == 0, told + errors
    assert errors == ""
    assert max(map(len, told.splitlines())) <= 80, "no line is wider than a small terminal"
    (folder,) = (tmp_path / ".offsetwatch").glob("demo-*")
    assert "other violations: none" in told
    assert f"what happened, as one page: {folder.relative_to(tmp_path) / 'report.html'}" in told
    return told, folder


def found_of(folder: Path, anomaly: str) -> list[dict[str, Any]]:
    shown = offsetwatch("findings", "--data", str(folder), "--json", "--anomaly", anomaly, cwd=folder.parent)
    return [json.loads(line) for line in shown.stdout.splitlines()]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.alone
@pytest.mark.timeout(LIMIT + 60)
def test_with_one_broker_records_are_written_twice(tmp_path: Path) -> None:
    (tmp_path / ".offsetwatch" / "demo-20200101-000000" / "kafka").mkdir(parents=True)
    told, folder = demonstrated(tmp_path, "--brokers", "1")
    assert folder.name != "demo-20200101-000000", "earlier demonstrations are removed"
    assert re.search(r"KAFKA-20734 takes 3 brokers \(--brokers 1\):\n.*records written twice instead\n", told)

    provoked = re.search(
        r"^provoked: 3 records of writer (\d+), .* to (\S+)/(\d+) twice: at offset (\d+), .* at (\d+)"
        r" found: 3 duplicate, the first \d+\.\d s after the second copy was acknowledged",
        " ".join(told[told.index("\nprovoked: ") :].split()),
    )
    assert provoked is not None, told
    writer, topic, partition, first, second = provoked.groups()
    assert "warning duplicate raised in offsetwatch-records/" in told

    found = {row["evidence"]["seq"]: row for row in found_of(folder, "duplicate")}
    assert sorted(found) == [0, 1, 2]
    for row in found.values():
        assert (row["topic"], row["partition"], row["severity"]) == (topic, int(partition), "warning")
        assert row["evidence"]["writer"] in (writer, int(writer)), "a string where it is beyond 2^53"
        assert len(row["evidence"]["offsets"]) == 2
    assert found[0]["evidence"]["offsets"] == [int(first), int(second)]
    assert f"duplicate in {topic}/{partition}" in (folder / "report.html").read_text()
    logged = [json.loads(line) for line in (folder / "logs" / "findings.jsonl").read_text().splitlines()]
    assert {line["id"] for line in logged if line["anomaly"] == "duplicate"} == {row["id"] for row in found.values()}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.skipif(available_memory() < THREE_BROKERS_NEED, reason="three brokers and Spark take 6 GiB")
def test_with_three_brokers_transactions_end_while_there_is_no_leader(tmp_path: Path) -> None:
    """KAFKA-20734, which the Kafka that is used here has: where it is mended one day, this test says so."""
    told, folder = demonstrated(tmp_path, "--story", "leaderless", "--brokers", "3")
    aborted, committed = (
        re.search(rf"transaction (\d+): its client was told that it is {outcome}", told) for outcome in OUTCOMES
    )
    assert aborted is not None and committed is not None, told
    assert re.search(r"UTC: broker \d is killed", told)
    assert re.search(r"FOUND \d+\.\d s after the kill: G1a", told)
    for anomaly, of in (("G1a", aborted), ("lost-write", committed), ("torn-transaction", committed)):
        assert of[1] in {str(row["evidence"]["txn"]) for row in found_of(folder, anomaly)}, anomaly
    page = (folder / "report.html").read_text()
    assert "KAFKA-20734" in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--story", "leaderless", "--brokers", "1"],
            "--story leaderless takes 3 brokers, and there is 1: --brokers 1",
        ),
        (["--story", "other"], "Invalid value for '--story'"),
    ],
)
def test_a_story_that_cannot_be_told_is_refused(options: list[str], said: str, tmp_path: Path) -> None:
    refused = offsetwatch("demo", *options, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr and len(refused.stderr.splitlines()) == 1


def test_only_demonstrations_that_have_ended_are_removed(tmp_path: Path) -> None:
    for name in ("demo-1", "demo-2", "other"):
        (tmp_path / name / "kafka").mkdir(parents=True)
        (tmp_path / name / "kafka" / ".lock").touch()
    with (tmp_path / "demo-2" / "kafka" / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_earlier(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["demo-2", "other"]
