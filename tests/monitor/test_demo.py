"""The demonstration as a user runs it, on one real broker: the provoked violation is found, and no other."""

from __future__ import annotations

import fcntl
import json
import re
from pathlib import Path

import pytest

from monitor.demo.demo import remove_earlier
from tests.monitor.commands import offsetwatch, started

SECONDS = "50"


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(240)
def test_the_demonstration_finds_what_it_provokes(tmp_path: Path) -> None:
    (tmp_path / ".offsetwatch" / "demo-20200101-000000" / "kafka").mkdir(parents=True)
    child = started("demo", "--brokers", "1", cwd=tmp_path, DEMO_SECONDS=SECONDS)
    try:
        code = child.wait(timeout=220)
    finally:
        child.kill()
    told, errors = (tmp_path / "out.txt").read_text(), (tmp_path / "err.txt").read_text()
    assert code == 0, told + errors
    assert errors == ""
    (folder,) = (tmp_path / ".offsetwatch").glob("demo-*")
    assert folder.name != "demo-20200101-000000", "earlier demonstrations are removed"

    provoked = re.search(
        r"^provoked: 3 records of writer (\d+), .* (\S+)/(\d+) twice: at offset (\d+), .* at (\d+)$", told, re.M
    )
    assert provoked is not None, told
    writer, topic, partition, first, second = provoked.groups()
    assert re.search(
        r"^found: 3 of 3 duplicates, the first \d+\.\d s after its second copy was acknowledged$", told, re.M
    )
    assert "other violations: none" in told
    assert "finding raised: warning duplicate in offsetwatch-records/" in told

    shown = offsetwatch("findings", "--data", str(folder), "--json", "--anomaly", "duplicate", cwd=tmp_path)
    found = {row["evidence"]["seq"]: row for row in map(json.loads, shown.stdout.splitlines())}
    assert sorted(found) == [0, 1, 2]
    for row in found.values():
        assert (row["topic"], row["partition"], row["severity"]) == (topic, int(partition), "warning")
        assert row["evidence"]["writer"] in (writer, int(writer)), "a string where it is beyond 2^53"
        assert len(row["evidence"]["offsets"]) == 2
    assert found[0]["evidence"]["offsets"] == [int(first), int(second)]
    logged = [json.loads(line) for line in (folder / "logs" / "findings.jsonl").read_text().splitlines()]
    assert {line["id"] for line in logged if line["anomaly"] == "duplicate"} == {row["id"] for row in found.values()}


def test_only_demonstrations_that_have_ended_are_removed(tmp_path: Path) -> None:
    for name in ("demo-1", "demo-2", "other"):
        (tmp_path / name / "kafka").mkdir(parents=True)
        (tmp_path / name / "kafka" / ".lock").touch()
    with (tmp_path / "demo-2" / "kafka" / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_earlier(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["demo-2", "other"]
