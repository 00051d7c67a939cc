"""A cluster goes, and another one answers at its addresses: that is told, and nothing of either is called lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from monitor.config.config import load
from rules.vocabulary.catalogue import CATALOGUE
from streaming_jobs.tables.delta_tables import read_table
from tests.monitor.commands import started
from tests.monitor.process.test_standby import ended, said, until

CONFIG = """
data = "{data}"
[cluster]
bootstrap = "{bootstrap}"
[alerts]
metrics_port = 0
"""


def stranger_at(address: LocalKafka, folder: Path) -> LocalKafka:
    """A cluster of its own, without any record, on the ports of that one."""
    folder.mkdir()
    known = json.loads((address.folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps(known | {"cluster_id": "c3RyYW5nZXItY2x1c3Rlcg"}))
    return LocalKafka(folder, brokers=1)


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1200)
def test_another_cluster_at_the_same_addresses_is_told(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "one", brokers=1) as one:
        (tmp_path / "ow.toml").write_text(CONFIG.format(data=tmp_path / "data", bootstrap=one.bootstrap))
        config = load(tmp_path / "ow.toml", {})

        def found() -> list[dict[str, object]]:
            rows: list[dict[str, object]] = read_table(config.job.tables_path, "findings").to_pylist()
            return rows

        with ended(started("monitor", "--probes", "-c", "ow.toml", cwd=tmp_path)) as monitor:
            until(lambda: read_table(config.job.tables_path, "partition_state").num_rows >= 10, tmp_path)
            (before,) = {row["cluster"] for row in read_table(config.job.tables_path, "partition_state").to_pylist()}
            one.stop()
            with stranger_at(one, tmp_path / "two") as two:
                assert two.bootstrap == one.bootstrap
                until(lambda: any(each["anomaly"] == "replaced-cluster" for each in found()), tmp_path)
                until(
                    lambda: any((e["anomaly"], e["cluster"]) == ("evidence-stalled", before) for e in found()), tmp_path
                )
                os.killpg(monitor.pid, signal.SIGTERM)
                assert monitor.wait(timeout=120) == 0, said(tmp_path)
        told = [each for each in found() if each["anomaly"] == "replaced-cluster"]
        assert {json.loads(str(each["evidence"]))["before"] for each in told} == {before}
        assert before not in {each["cluster"] for each in told}
        assert {e["anomaly"] for e in found() if CATALOGUE[str(e["anomaly"])].kind == "violation"} == {
            "replaced-cluster"
        }
        assert any("is another cluster: its id is" in line for line in said(tmp_path))
