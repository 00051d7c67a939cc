"""Monitors that share no file system and have their tables in one bucket: one works, the other waits. It takes over
from one that dies, and from one that stands still, which then ends by itself."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import psutil
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from monitor.process.claiming import Claim
from rules.vocabulary.slices import to_table
from streaming_jobs.config import JobConfig
from streaming_jobs.history.layout import write_layout
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import reason_to_rebuild
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.lease import HOLD, WAIT
from tests.monitor.commands import PROJECT, offsetwatch, started
from tests.monitor.hosts import Host
from tests.monitor.process.test_standby import ended, expected, said, until
from tests.object_store import SECRET, environment, known_here, proxy_to, store
from tests.streaming_jobs.probe_log import duplicates

TAKES_OVER = "the other monitor has ended: this one takes over"
HOLDER = """
import sys, time
from streaming_jobs import location
from streaming_jobs.location import TableUrl
from streaming_jobs.rebuild.rebuild import reason_to_rebuild
from streaming_jobs.tables.lease import Lease
lease = Lease(TableUrl(sys.argv[1]))
assert lease.take()
lease.keep(print)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def tables(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableUrl]:
    with known_here(server, monkeypatch):
        yield TableUrl(f"s3://bucket/{uuid.uuid4().hex}/tables")


@contextmanager
def held(tables: TableUrl) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tables)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child
        child.kill()


@pytest.mark.long
def test_it_waits_for_the_lease_and_another_is_refused(tables: TableUrl, server: int, tmp_path: Path) -> None:
    """What comes after the lease is the port of the metrics, which is taken here."""
    with socket.socket() as taken, held(tables) as holder:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        asked = environment(server) | {
            "OFFSETWATCH_JOB__TABLES": str(tables),
            "OFFSETWATCH_ALERTS__METRICS_PORT": port,
            "JAVA_HOME": str(tmp_path / "none"),
            "PATH": str(tmp_path),  # it prepares in vain, and says nothing of it
        }
        at_work = f"another monitor (process {holder.pid} on {socket.gethostname()}) is at work on {tables}."
        refused = offsetwatch("monitor", cwd=tmp_path, **asked)
        assert refused.returncode == 2 and refused.stderr.splitlines()[-1] == f"offsetwatch: {at_work}", refused
        with ended(started("monitor", "--standby", cwd=tmp_path, **asked)) as standby:
            until(lambda: f"offsetwatch: standing by: {at_work}" in said(tmp_path), tmp_path)
            time.sleep(1.5)
            assert standby.poll() is None
            holder.kill()
            took = until(lambda: f"offsetwatch: {TAKES_OVER}" in said(tmp_path), tmp_path)
            assert took > WAIT - HOLD, "the other might be at work still"
            assert standby.wait(timeout=300) == 2
    assert said(tmp_path)[-1].startswith(f"offsetwatch: metrics cannot be served on 127.0.0.1:{port}: ")


@pytest.mark.evening
def test_a_store_that_goes_away_as_it_takes_over_is_waited_for(tables: TableUrl, server: int, tmp_path: Path) -> None:
    """Nobody else is at work then. What comes after the tables is Spark, which has no Java here."""
    with proxy_to(server) as proxy, held(tables) as holder:
        asked = environment(proxy.server_port) | {
            "OFFSETWATCH_JOB__TABLES": str(tables),
            "OFFSETWATCH_ALERTS__METRICS": "false",
            "JAVA_HOME": str(tmp_path / "none"),
            "PATH": str(tmp_path),
        }
        with ended(started("monitor", "--standby", cwd=tmp_path, **asked)) as standby:
            until(lambda: any("standing by: " in line for line in said(tmp_path)), tmp_path)
            proxy.without = "findings"
            holder.kill()
            asking = "offsetwatch: the tables are asked for again until they are there: "
            until(lambda: any(line.startswith(asking) for line in said(tmp_path)), tmp_path)
            assert standby.poll() is None
            proxy.without = None
            assert standby.wait(timeout=300) == 2
    lines = said(tmp_path)
    assert [line for line in lines if line.startswith(asking)] == [line for line in lines if "503" in line]
    assert "Java" in lines[-1]


@pytest.mark.long
def test_a_checkpoint_of_ones_own_is_left_where_another_monitor_was_at_work_since(
    tables: TableUrl, tmp_path: Path
) -> None:
    """Its state would be behind the tables, and what it finds again there already."""

    def taken_by(name: str) -> str | None:
        """Why the next monitor of this data folder rebuilds its state, once it has the lease."""
        job = JobConfig(root=tmp_path / name, tables=tables)
        checkpoint = job.checkpoint_path
        assert isinstance(checkpoint, Path)
        with ExitStack() as ending:
            assert Claim(job, lambda line: None, Event(), ending, prepare=None)(lambda why: None)
            why = reason_to_rebuild(job)
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "offsets" / "0").write_text("v1\n")
        write_layout(checkpoint)
        return why

    reasons = [taken_by(name) for name in ("first", "first", "second", "first", "first")]
    assert reasons[1:] == [None, "the probe log's first commits are gone", "another monitor has gone on since", None]


def every_process(child: subprocess.Popen[str], sent: signal.Signals) -> None:
    """To a monitor and its Spark, as a host that stands still, and goes on."""
    monitor = psutil.Process(child.pid)
    for one in [monitor, *monitor.children(recursive=True)]:
        one.send_signal(sent)


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1800)
def test_one_takes_over_from_the_other_and_each_finding_is_told_once(
    tables: TableUrl, server: int, tmp_path: Path
) -> None:
    parts, log = duplicates(8), str(tables / "history")
    given = environment(server) | {
        "OFFSETWATCH_JOB__TABLES": str(tables),
        "OFFSETWATCH_ALERTS__METRICS": "false",
        "OFFSETWATCH_JOB__CHECKPOINT": str(tables).replace("s3://", "s3a://").replace("tables", "checkpoint"),
        "OFFSETWATCH_JOB__CYCLES__ENABLED": "false",
        "OFFSETWATCH_JOB__OBJECTIVES__LIVENESS": "86400",
    }
    first, second = (Host(tmp_path / name, given) for name in ("first", "second"))

    def log_of(some: slice) -> None:
        for part in parts[some]:
            write_deltalake(log, to_table(part), mode="append", partition_by=["date"])

    def found() -> set[str]:
        return set(read_table(tables, "findings")["id"].to_pylist())

    try:
        log_of(slice(0, 2))
        first.start("monitor")
        until(lambda: found() == expected(parts[:2]), first.folder)
        second.start("monitor", "--standby")
        until(lambda: "standing by: another monitor" in second.said, second.folder)
        time.sleep(30)  # it prepares
        assert first.child is not None and second.child is not None
        every_process(first.child, signal.SIGSTOP)
        log_of(slice(2, 4))
        took = [until(lambda: TAKES_OVER in second.said, second.folder)]
        took.append(took[0] + until(lambda: found() == expected(parts[:4]), second.folder))
        every_process(first.child, signal.SIGCONT)
        assert first.child.wait(timeout=120) == 2
        (why,) = re.findall(r"^offsetwatch: (.*lease in .*)$", first.said, re.MULTILINE)
        assert why.endswith(": this monitor ends, and the next start waits its turn."), why
        first.start("monitor", "--standby")
        until(lambda: "standing by: another monitor" in first.said, first.folder)
        time.sleep(30)
        log_of(slice(4, 6))
        until(lambda: found() == expected(parts[:6]), second.folder)
        second.child.kill()  # itself alone: its JVM has to notice
        log_of(slice(6, 8))
        took.append(until(lambda: TAKES_OVER in first.said, first.folder))
        took.append(took[2] + until(lambda: found() == expected(parts), first.folder))
        print(
            "The lease was taken, and the next batch in the tables, {:.1f} and {:.1f} s after one stood still,"
            " {:.1f} and {:.1f} s after one was killed".format(*took)
        )
        assert max(took[0], took[2]) < 30, took
        first.stop()
    finally:
        for one in (first, second):
            if one.child is not None and one.child.poll() is None:
                every_process(one.child, signal.SIGKILL)  # a JVM that stands still would not notice
            one.kill()
    events = read_table(tables, "findings")
    written = list(zip(*(events[name].to_pylist() for name in ("id", "event", "at")), strict=True))
    assert len(set(written)) == len(written)
    assert not any("rebuild" in host.said or "Traceback" in host.said for host in (first, second))
    everything = [one for one in tmp_path.rglob("*") if one.is_file() and "spark/" not in str(one)]
    assert [one for one in everything if SECRET.encode() in one.read_bytes()] == []
    listed = second.asked("findings", "--all")
    assert "duplicate" in listed.stdout, listed
    assert str(tables) in second.asked("status", "--json").stdout
    assert second.asked("report", "-o", "report.html").returncode == 0
    counted = second.asked("sql", "select count(*) from findings", "--json")
    assert str(len(written)) in counted.stdout, counted


@pytest.mark.spark
@pytest.mark.evening
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("there", [False, True], ids=["a checkpoint of its own", "the checkpoint there too"])
def test_a_store_that_goes_away_is_told_once_and_nothing_is_lost_or_twice(
    tables: TableUrl, server: int, tmp_path: Path, there: bool
) -> None:
    parts, log = duplicates(6), str(tables / "history")
    with proxy_to(server) as proxy:
        given = environment(proxy.server_port) | {
            "OFFSETWATCH_JOB__TABLES": str(tables),
            "OFFSETWATCH_ALERTS__METRICS": "false",
            "OFFSETWATCH_JOB__CYCLES__ENABLED": "false",
            "OFFSETWATCH_JOB__OBJECTIVES__LIVENESS": "20",
        }
        if there:
            given["OFFSETWATCH_JOB__CHECKPOINT"] = str(tables / "checkpoint").replace("s3://", "s3a://")
        host = Host(tmp_path / "host", given)

        def log_of(some: slice) -> None:
            for part in parts[some]:
                write_deltalake(log, to_table(part), mode="append", partition_by=["date"])

        def found() -> set[str]:
            rows = read_table(tables, "findings")
            return set(rows.filter(pc.equal(rows["anomaly"], "duplicate"))["id"].to_pylist())

        try:
            log_of(slice(0, 2))
            host.start("monitor")
            until(lambda: found() == expected(parts[:2]), host.folder)
            proxy.unavailable, proxy.lost = 20, 2
            log_of(slice(2, 4))
            until(lambda: found() == expected(parts[:4]) and not proxy.lost, host.folder)
            proxy.away = True
            log_of(slice(4, 6))
            time.sleep(60)
            proxy.away = False
            until(lambda: found() == expected(parts), host.folder)
            host.stop()
        finally:
            host.kill()
    events = read_table(tables, "findings")
    written = list(zip(*(events[name].to_pylist() for name in ("id", "event", "at")), strict=True))
    assert len(set(written)) == len(written)
    assert set(events["anomaly"].to_pylist()) <= {"duplicate", "evidence-stalled", "checks-stalled"}
    # In the log of findings, which the store does not hold: each once, too.
    told = [json.loads(line) for line in (host.folder / "out.txt").read_text().splitlines()]
    lines = [(one["id"], one["event"], one["at"]) for one in told]
    assert len(set(lines)) == len(lines) and {one["anomaly"] for one in told} > {"duplicate"}
    assert host.said.count("the checks have stopped") <= 1 and "Traceback" not in host.said
