"""`offsetwatch findings` over real Delta tables."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.commands.findings import Filter, read
from tests.monitor.commands import offsetwatch
from tests.monitor.rows import NOON, finding, record

DUPLICATE = finding("duplicate", (7, 1), at=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    record(
        folder,
        DUPLICATE,
        finding("G1a", (7, 2), at=1, topic="u", partition=0, implied_by=DUPLICATE.id),
        finding("poll-skip", (1, 2), at=2, context={"mode": "subscribe"}),
        finding("unseen", (), "opened", at=3),
        finding("suspected", (), "opened", at=4),
    )
    record(folder, finding("suspected", (), "closed", at=6), finding("suspected", (), "opened", at=7))
    record(folder, finding("foreign-record", (9,), at=0), finding("unseen", (), "closed", at=8))
    return folder


def test_the_table_shows_what_a_person_needs(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), cwd=tmp_path, COLUMNS="160")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert " ".join(lines[0].split()) == "last event (UTC) severity anomaly state where what, and its evidence"
    rows = [line for line in lines if line.startswith("2024-10-04")]
    assert [row.split()[3] for row in rows] == [
        "unseen",
        "suspected",
        "duplicate",
        "poll-skip",
        "G1a",
        "foreign-record",
    ]
    assert "2024-10-04 12:00:05  critical  duplicate" in done.stdout.replace("   ", "  ")
    assert "a duplicate happened" in done.stdout
    assert "writer=7  seq=1  offsets=[4, 9]" in done.stdout
    assert f"explained by {DUPLICATE.id}" in done.stdout
    assert "open ×2" in done.stdout
    assert lines[-1] == "6 findings: 3 violations, 1 open conditions"


def test_json_lines(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--json", "--anomaly", "duplicate", cwd=tmp_path)
    (shown,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert shown == {
        "id": DUPLICATE.id, "anomaly": "duplicate", "severity": "critical", "cluster": "c", "topic_id": "t-id",
        "topic": "t", "partition": 3, "message": "a duplicate happened",
        "evidence": {"writer": 7, "seq": 1, "offsets": [4, 9]},
        "context": {}, "at": "2024-10-04T12:00:05Z", "decidable": "2024-10-04T12:00:05Z", "implied_by": None,
        "batch": None, "recorded": "2024-10-04T12:00:05.500000Z", "state": "raised",
        "first_at": "2024-10-04T12:00:05Z", "opened": 1,
    }  # fmt: skip


FILTERS: list[tuple[Filter, set[str]]] = [
    (Filter(severities=["critical"]), {"duplicate", "G1a", "unseen"}),
    (Filter(severities=["allowed", "info"]), {"poll-skip", "foreign-record"}),
    (Filter(kinds=["condition"]), {"unseen", "suspected"}),
    (Filter(kinds=["violation"], severities=["allowed"]), {"poll-skip"}),
    (Filter(states=["open"]), {"suspected"}),
    (Filter(topic="u"), {"G1a"}),
    (Filter(partition=0), {"G1a"}),
    (Filter(since=NOON + timedelta(seconds=5)), {"duplicate", "suspected", "unseen"}),
    (Filter(anomalies=["G1a", "duplicate"], topic="t"), {"duplicate"}),
    (Filter(topic="no-such"), set()),
]


@pytest.mark.parametrize(("wanted", "shown"), FILTERS)
def test_filters(data: Path, wanted: Filter, shown: set[str]) -> None:
    assert {row["anomaly"] for row in read(data / "tables", wanted)} == shown


def test_the_options_are_the_filters(data: Path, tmp_path: Path) -> None:
    options = ["--severity", "critical", "--kind", "violation", "--state", "raised", "--topic", "t", "--partition", "3",
               "--since", "2024-10-04T12:00:05", "--json"]  # fmt: skip
    done = offsetwatch("findings", "--data", str(data), *options, cwd=tmp_path)
    assert [json.loads(line)["anomaly"] for line in done.stdout.splitlines()] == ["duplicate"]


def test_a_long_table_is_cut_and_says_so(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--limit", "2", cwd=tmp_path, COLUMNS="160")
    assert "poll-skip" not in done.stdout
    assert "6 findings: 3 violations, 1 open conditions, the newest 2 are shown (--limit)" in done.stdout


def test_no_findings(data: Path, tmp_path: Path) -> None:
    done = offsetwatch("findings", "--data", str(data), "--topic", "no-such", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no findings\n")
