"""The whole fleet on another implementation of Kafka's protocol: every workload opens, writes, reads and logs, and what
the log says is true."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.clock import SystemClock
from probes.kafka.client import Connection
from probes.running.drain import ProbeLog, drain
from probes.running.fleet import Fleet
from tests.monitor.commands import offsetwatch
from tests.probes import kfake
from tests.probes.test_fleet import History, Row, config, read, until

pytestmark = pytest.mark.kafka

DONE = {
    "writer": {"send"},
    "reader": {"poll", "commit", "position"},
    "observer": {"offsets"},
    "audit": {"poll"},
    "transactions": {"init", "txn"},
    "aborts": {"init", "txn", "position"},
    "transform": {"init", "txn"},
    "registers": {"register", "send", "poll"},
    "zombies": {"zombie"},
    "end-to-end": {"send"},
}
"""What each kind of probe has done once all is well."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kfake.built(tmp_path_factory.mktemp("kfake"))


@pytest.fixture
def bootstrap(program: Path) -> Iterator[str]:
    with kfake.served(program) as address:
        yield address


def done(rows: list[Row]) -> dict[str, set[str]]:
    """What came to an end as it should, by kind of probe."""
    kinds = {row["process"]: row["kind"] for row in rows if row["f"] == "start"}
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        aborted_or_refused = row["f"] in ("txn", "zombie") and row["type"] == "fail"  # on purpose
        if row["process"] in kinds and (row["type"] == "ok" or aborted_or_refused):
            found[kinds[row["process"]]].add(row["f"])
    return found


def test_every_workload_works_on_it_and_what_is_wrong_with_it_is_found(bootstrap: str, tmp_path: Path) -> None:
    """Nothing is lost. It gives an epoch to a transactional id's earlier life ("accept current or stale epoch", says
    its source), where Kafka fences that: the zombies' probe shows it, and the checks name it, and nothing else."""
    asked = config(zombies={"interval": 0.5}, topics={"prefix": "here", "partitions": 3})
    journals, history = tmp_path / "journals", tmp_path / "data" / "tables" / "history"
    fleet = Fleet(asked, Connection(bootstrap), journals, SystemClock(), history=history)
    fleet.start()
    try:
        until(lambda: history.exists() and all(DONE[kind] <= done(read(history))[kind] for kind in DONE))
        until(lambda: sum(probe.acknowledged for probe in fleet.status().probes) > 1000)
    finally:
        fleet.stop()
    assert {probe.state for probe in fleet.status().probes} == {"stopped"}
    drained = drain(asked, Connection(bootstrap), ProbeLog(journals, history), SystemClock(), limit=180)
    rows = read(history)
    told = History(rows)
    told.check()
    assert drained.acknowledged == len(told.acknowledged) > 1000
    assert (drained.missing, drained.expired, drained.complete) == ({}, {}, True)
    granted = [dict(row["settings"])["request"] for row in rows if row["f"] == "zombie" and row["type"] == "ok"]
    assert set(granted) == {"InitProducerId"}
    judged = offsetwatch("check", "--json", str(tmp_path / "data"), cwd=tmp_path)
    assert (judged.returncode, judged.stderr) == (1, "")
    found = json.loads(judged.stdout)["anomalies"]
    assert {name: len(listed) for name, listed in found.items()} == {"unfenced-zombie": len(granted)}


def test_the_doctor_says_what_is_true_of_it(bootstrap: str, tmp_path: Path) -> None:
    asked = {"OFFSETWATCH_CLUSTER__BOOTSTRAP": bootstrap, "OFFSETWATCH_PROBES__TOPICS__PREFIX": "here"}
    examined = offsetwatch("doctor", "--json", cwd=tmp_path, **asked)
    assert examined.returncode == 0, examined.stdout + examined.stderr
    told = [json.loads(line) for line in examined.stdout.splitlines()]
    said = {one["about"]: (one["state"], one["detail"]) for one in told}
    assert said["cluster"] == ("ok", f"kfake: broker 0 at {bootstrap}")
    assert said["topic here-records"] == ("ok", "will be created")
    assert said["probe topics"][0] == "warning" and "has 1 replica(s), 3 were asked for" in said["probe topics"][1]
    assert "bad" not in {one["state"] for one in told}
