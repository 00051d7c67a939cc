"""Two probe hosts whose wall clocks are half a minute apart, each killed and brought back; then the one is set, forward
and back, while its probes run. What was planted is found, nothing else is, and that clocks differ is told once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from tests.monitor.hosts import FEW, Host, until
from tests.probes.log.lives import check_slices

RUNS = {"east": "aaaa", "west": "bbbb"}
APART = 30.0
PLANTED = 3
STEPS = (150.0, APART, -60.0)
"""West's clock is set to be so many seconds ahead of east's, one after the other."""
STANDS = 40.0
"""Seconds for which it then stays so: what nothing has come of for half a minute would be told."""


@pytest.fixture
def hosts(kafka: LocalKafka, tmp_path: Path) -> dict[str, Host]:
    """East, west, and the monitor's, which share a folder for the probe log."""
    given = FEW | {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        "OFFSETWATCH_JOB__HISTORY": str(tmp_path / "shared" / "history"),
        "OFFSETWATCH_PROBES__TOPICS__PREFIX": "other-clocks",
        "OFFSETWATCH_PROBES__UNREST__ENABLED": "false",
    }
    made = {}
    for name, run in RUNS.items():
        known = json.dumps([other for other in RUNS.values() if other != run])
        own = {"OFFSETWATCH_PROBES__RUN": run, "OFFSETWATCH_PROBES__KNOWN_RUNS": known}
        made[name] = Host(tmp_path / name, given | own, APART if name == "west" else None)
    return made | {"monitor": Host(tmp_path / "monitor", given)}


def await_checked(monitor: Host, everyone: Sequence[Host]) -> None:
    """Wait until what happens from now on is being checked."""
    now = time.time()
    until(
        lambda: min((r["checked_through"].timestamp() for r in monitor.table("partition_state")), default=0) > now,
        everyone,
    )


def is_at_work(host: Host) -> bool:
    return "at work" in host.said


@pytest.mark.evening
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_hosts_with_other_clocks(hosts: dict[str, Host], tmp_path: Path) -> None:
    everyone = [*hosts.values()]
    east, west, monitor = everyone
    try:
        for one in (east, west):
            one.start("probe", "run")
        until((tmp_path / "shared" / "history" / "_delta_log").is_dir, [east, west])
        monitor.start("monitor")
        await_checked(monitor, everyone)
        writers = {east.send_twice(PLANTED).writer}
        for one in (west, east):
            assert one.child is not None
            os.killpg(one.child.pid, signal.SIGKILL)
            one.child.wait()
            one.start("probe", "run")
            until(partial(is_at_work, one), everyone)
        await_checked(monitor, everyone)
        begun = time.time()
        for ahead in STEPS:
            west.set_clock(ahead)
            time.sleep(STANDS)
        writers.add(east.send_twice(PLANTED).writer)
        until(lambda: len(monitor.duplicates()) == 2 * PLANTED, everyone)
        await_checked(monitor, everyone)
        pauses = {name: longest_pause(hosts[name], begun) for name in RUNS}
        for one in everyone:
            one.stop()
    finally:
        for one in everyone:
            one.kill()
    found = monitor.table("findings")
    assert {json.loads(row["evidence"])["writer"] for row in monitor.duplicates()} == writers
    told = Counter(
        (row["anomaly"], row["event"])
        for row in found
        if row["severity"] in ("critical", "warning") and row["anomaly"] != "duplicate"
    )
    assert told.keys() <= {("evidence-late", "opened"), ("evidence-late", "closed")}, told
    assert told["evidence-late", "opened"] <= 2, "once, and once more for who was killed"
    assert max(pauses.values()) < STANDS / 2, "a clock that is set does not hold up what is logged"
    check_slices(DeltaTable(str(tmp_path / "shared" / "history")).to_pyarrow_table().to_pylist())


def longest_pause(host: Host, since: float) -> float:
    """Seconds between two appends of this host, by the clock of the folder that they share."""
    from probes.log.commits.append_plan import load

    plan = load(host.data / "journals")
    assert plan is not None
    appended = [since]
    for commit in sorted(Path(host.given["OFFSETWATCH_JOB__HISTORY"], "_delta_log").glob("*.json")):
        said = [json.loads(line) for line in commit.read_text().splitlines()]
        if any(one.get("txn", {}).get("appId") == plan.app for one in said) and commit.stat().st_mtime > since:
            appended.append(commit.stat().st_mtime)
    assert len(appended) > 10
    return max(later - earlier for earlier, later in pairwise(appended))
