"""`offsetwatch monitor` on a probe log that holds a dependency cycle: told once, by the real command on real Spark."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from streaming_jobs.tables.delta_tables import read_table
from tests.monitor.commands import started
from tests.rules.histories import History
from tests.streaming_jobs.probe_log import commit

pytestmark = pytest.mark.spark

NO_JAR = "cycles are searched in memory: GraphFrames' jar"
"""Said once the session is there; that the registry does not have it was said before."""


def watched(folder: Path, engine: str) -> tuple[list[dict[str, object]], str]:
    """The alerts' log and what the command said, once it has searched all of the log and was stopped."""
    child = started(
        "monitor",
        "--data",
        "data",
        cwd=folder,
        OFFSETWATCH_JOB__CYCLES__EVERY="0.2",
        OFFSETWATCH_JOB__CYCLES__ENGINE=engine,
        OFFSETWATCH_ALERTS__METRICS="false",
        OFFSETWATCH_ALERTS__LOG="alerts.log",
    )
    try:
        limit = time.monotonic() + 400
        alerts = folder / "alerts.log"
        while True:
            said = (folder / "err.txt").read_text()
            assert child.poll() is None, said
            assert time.monotonic() < limit, said
            engines = read_table(folder / "data" / "tables", "cycle_search")["engine"].to_pylist()
            searched = engines == [engine] or (engines and NO_JAR in said)
            if "checking the probe log" in said and searched and (alerts.exists() and alerts.read_text()):
                break
            time.sleep(0.2)
        time.sleep(1.0)
        child.send_signal(signal.SIGTERM)
        assert child.wait(300) == 0, (folder / "err.txt").read_text()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    return [json.loads(line) for line in alerts.read_text().splitlines()], (folder / "err.txt").read_text()


def test_a_cycle_is_told_once_across_restarts(tmp_path: Path) -> None:
    history = History()
    history.txn("a", [("a", 0, 1, 0)], [("b", 0, 1, 1)])
    history.txn("b", [("b", 0, 1, 1)], [("a", 0, 1, 0)])
    history.mark(1.0)
    commit(tmp_path / "data" / "tables" / "history", history.rows)
    told, _ = watched(tmp_path, "memory")
    cycles = [line for line in told if line["anomaly"] == "G1c"]
    assert [(line["severity"], line["event"]) for line in cycles] == [("critical", "raised")]
    assert (tmp_path / "data" / "cycles" / f"{cycles[0]['id']}.svg").exists()
    again, said = watched(tmp_path, "graphframes")
    assert again == told
    if NO_JAR not in said:  # it is not in every registry
        assert read_table(tmp_path / "data" / "tables", "cycle_search")["engine"].to_pylist() == ["graphframes"]
