"""What the data folder of an earlier version becomes: nothing that was told is lost or told again, and what was not yet
checked is."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from tests.monitor.hosts import Host, until
from tests.monitor.upgrade.keep import SETTINGS, TOLD, UNTOLD

KEPT = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))


def findings(host: Host) -> list[dict[str, Any]]:
    return sorted(host.table("findings"), key=lambda row: (row["recorded"], row["id"], row["event"]))


def processes(host: Host) -> Counter[int]:
    """How many rows of each process are logged."""
    log = DeltaTable(str(host.data / "tables" / "history")).to_pyarrow_table(columns=["process"])
    return Counter(log["process"].to_pylist())


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kept", KEPT, ids=[one.name.removesuffix(".tar.xz") for one in KEPT])
def test_a_folder_that_a_version_has_left_is_taken_over(kept: Path, kafka: LocalKafka, tmp_path: Path) -> None:
    """By probes and a monitor of a cluster that it has never heard of."""
    given = SETTINGS | {
        "OFFSETWATCH_DATA": str(tmp_path / "data"),
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap,
        # What was kept years ago is not to be aged out.
        "OFFSETWATCH_JOB__UPKEEP__ENABLED": "false",
    }
    both = probes, checks = Host(tmp_path / "probes", given), Host(tmp_path / "checks", given)
    with tarfile.open(kept) as archive:
        archive.extractall(checks.data, filter="data")
    before, logged = findings(checks), processes(probes)
    listed = checks.asked("findings", "--json")
    assert listed.returncode == 0 and listed.stdout.count('"duplicate"') == TOLD, listed.stderr
    try:
        probes.start("probe", "run")
        checks.start("monitor")
        # What the killed probes had journalled comes first.
        until(lambda: set(processes(probes)) - set(logged), both)
        assert sum(count for process, count in processes(probes).items() if process in logged) > sum(logged.values())
        until(lambda: len(checks.duplicates()) == TOLD + UNTOLD, both)
        for one in both:
            one.stop()
    finally:
        for one in both:
            one.kill()
    after = findings(checks)
    assert [row for row in after if row["recorded"] <= before[-1]["recorded"]] == before
    told = [(row["id"], row["event"], row["at"]) for row in after]
    assert len(told) == len(set(told)), "nothing is told again"
    twice = [json.loads(row["evidence"])["seq"] for row in checks.duplicates()]
    assert sorted(twice) == sorted([*range(TOLD), *range(UNTOLD)])
    # What the new probes' own cluster does on a busy machine is not asked here.
    old = [row for row in after if row["cluster"] == before[0]["cluster"]]
    severe = {row["anomaly"] for row in old if row["severity"] in ("critical", "warning")}
    # The probes that were killed ran in another boot, unless the folder was kept today: what they did last may be lost.
    assert severe - {"unverifiable"} == {"duplicate"}
