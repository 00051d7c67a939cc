"""A probe in a process of its own: what it logs is logged where the fleet's lines are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.running.probe_process import Errand, ProcessSupervisor, _log_here
from probes.running.supervisor import Spec
from probes.topology import Layout, Topic
from probes.workloads.writer import Writer
from tests.alerts.servers import eventually


def test_what_a_child_logs_is_logged_by_the_parent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its journal cannot be begun: no broker is needed to have it say so."""
    journals = tmp_path / "journals"
    journals.write_text("a file where a folder should be")
    config = ProbesConfig.model_validate({"supervision": {"host": "processes", "backoff": 0.1}})
    clock = SystemClock()
    layout = Layout("c", (Topic(config.topics.records, "id", 1),))
    errand = Errand(
        Spec("writer-1", Writer, (("in_flight", 1),)),
        config,
        Connection("127.0.0.1:1"),
        "run",
        frozenset({"run"}),
        frozenset(),
        layout,
        journals,
        clock.boot,
        (clock.now(), clock.monotonic_ns()),
    )
    caplog.set_level(logging.WARNING, "offsetwatch")
    running = ProcessSupervisor([errand], lambda: None, clock)
    running.start()
    try:
        (pid,) = eventually(lambda: [pid for pid in running.pids().values() if pid], "child")
        said = eventually(
            lambda: [one for one in caplog.records if "writer-1" in one.getMessage()], "line of the child"
        )
    finally:
        running.stop()
    assert said[0].getMessage().startswith("probe writer-1: cannot begin a journal in ")
    assert (said[0].name, said[0].levelno, said[0].process) == ("offsetwatch.probe", logging.WARNING, pid)


def test_what_the_parent_would_not_log_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "offsetwatch")
    for level in (logging.INFO, logging.WARNING):
        _log_here(logging.LogRecord("offsetwatch.probe", level, "", 0, "said at %s", (level,), None))
    assert caplog.messages == [f"said at {logging.WARNING}"]
