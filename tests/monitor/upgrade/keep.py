"""`python -m tests.monitor.upgrade.keep FILE` leaves a data folder, as this version's probes and monitor leave one, as
an archive: done once with each release (`tests/monitor/upgrade/kept/VERSION.tar.xz`), and never again.

It holds what an upgrade meets: findings that a monitor has told, rows that no monitor has checked yet, with a violation
among them, and the journals of probes that were killed."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from deploy.local_kafka import LocalKafka
from tests.monitor.hosts import FEW, Host, until

SETTINGS = FEW | {"OFFSETWATCH_PROBES__RUN": "kept"}
TOLD, UNTOLD = 3, 2
"""Records sent twice while the monitor was at work, and when it was not."""
_LOGS = {"logs", "spark"}
"""What no other version reads."""


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="kept-") as made, LocalKafka(Path(made) / "kafka", brokers=1) as kafka:
        given = SETTINGS | {"OFFSETWATCH_CLUSTER__BOOTSTRAP": kafka.bootstrap}
        probes = Host(Path(made) / "probes", given)
        checks = Host(Path(made) / "checks", given | {"OFFSETWATCH_DATA": str(probes.data)})
        leave(probes, checks)
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as archive:
            for one in sorted(probes.data.iterdir()):
                if one.name not in _LOGS:
                    archive.add(one, one.name)
        print(json.dumps({"archive": target.stat().st_size, "findings": len(checks.table("findings"))}))


def leave(probes: Host, checks: Host) -> None:
    """Let both work, end the one in order, and kill the other."""
    both = [probes, checks]
    try:
        probes.start("probe", "run")
        checks.start("monitor")
        until(lambda: any(row["topic"].endswith("records") for row in checks.table("partition_state")), both)
        probes.send_twice(TOLD)
        until(lambda: len(checks.duplicates()) == TOLD, both)
        checks.stop()
        assert len(checks.duplicates()) == TOLD
        last = probes.send_twice(UNTOLD).process
        until(lambda: _is_logged(probes, last), [probes])
    finally:
        for one in both:
            one.kill()


def _is_logged(host: Host, process: int) -> bool:
    log = DeltaTable(str(host.data / "tables" / "history")).to_pyarrow_table(columns=["process", "f"])
    return bool(pc.sum(pc.and_(pc.equal(log["process"], process), pc.equal(log["f"], "close"))).as_py())


if __name__ == "__main__":
    main()
