"""A probe in a process of its own: what it logs is logged where the fleet's lines are."""

from __future__ import annotations

import logging
import multiprocessing as mp
from pathlib import Path

import pytest

from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.running import probe_process
from probes.running.probe_process import Errand, Host, ProcessSupervisor, _log_here
from probes.running.supervisor import Spec
from probes.topology import Layout, Topic
from probes.workloads.probe import Counters
from probes.workloads.writer import Writer
from tests.alerts.servers import eventually


def _errand(config: ProbesConfig, journals: Path, clock: SystemClock) -> Errand:
    return Errand(
        Spec("writer-1", Writer, (("in_flight", 1),)),
        config,
        Connection("127.0.0.1:1"),
        "run",
        frozenset({"run"}),
        frozenset(),
        Layout("c", (Topic(config.topics.records, "id", 1),)),
        journals,
        clock.boot,
        (clock.now(), clock.monotonic_ns()),
    )


def test_what_a_child_logs_is_logged_by_the_parent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its journal cannot be begun: no broker is needed to have it say so."""
    journals = tmp_path / "journals"
    journals.write_text("a file where a folder should be")
    config = ProbesConfig.model_validate({"supervision": {"host": "processes", "backoff": 0.1}})
    clock = SystemClock()
    errand = _errand(config, journals, clock)
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


class _Child:
    """A process that is alive for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_alive(self) -> bool:
        self.looks -= 1
        return self.looks >= 0


class _Silent:
    """Nobody has been heard for this long, however short a test is."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def look(self) -> None: ...

    def unheard(self, since: float) -> float:
        return self._seconds


@pytest.mark.parametrize(
    ("reported", "silent", "given_up"),
    [(False, 100.0, False), (False, 451.0, True), (True, 89.0, False), (True, 91.0, True)],
)
def test_a_child_may_take_longer_until_its_first_report_than_between_two(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reported: bool,
    silent: float,
    given_up: bool,
) -> None:
    """Where many begin beside each other on a busy machine, ending the slow ones makes it worse."""
    monkeypatch.setattr(probe_process, "REPORT_INTERVAL", 0.01)
    monkeypatch.setattr(probe_process, "Going", lambda: _Silent(silent))
    clock, config = SystemClock(), ProbesConfig()
    errand = _errand(config, tmp_path, clock)
    ours, theirs = mp.Pipe()
    if reported:
        theirs.send(("counters", Counters("writer-1", "writer")))
    child = _Child(3)
    Host(errand, lambda: None, clock)._attend(child, ours)
    assert (child.looks >= 0) == given_up == ("the process of probe writer-1 does not answer" in caplog.messages)


def test_what_the_parent_would_not_log_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "offsetwatch")
    for level in (logging.INFO, logging.WARNING):
        _log_here(logging.LogRecord("offsetwatch.probe", level, "", 0, "said at %s", (level,), None))
    assert caplog.messages == [f"said at {logging.WARNING}"]
