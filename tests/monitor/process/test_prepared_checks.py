"""Spark that was started while another monitor was at work serves, unless it has gone; and checks that are abandoned,
as the data are another monitor's by now, tell nobody that they have stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.process.checking import Checks
from rules.vocabulary.finding import Finding
from streaming_jobs import session
from streaming_jobs.errors import SessionError
from tests.monitor.process.test_checking import Job, config, job, told_to

__all__ = ["job"]


class Session:
    """Of a JVM that is there or has gone."""

    def __init__(self, stopped: bool) -> None:
        self._stopped = stopped
        self.sparkContext = self._jsc = self
        self.master = "spark://elsewhere:7077"

    def sc(self) -> Session:
        return self

    def isStopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """It ends."""


@pytest.mark.parametrize(("prepared", "starts"), [(Session(False), 1), (Session(True), 2), (None, 2)])
def test_what_was_prepared_serves_unless_it_has_gone(
    prepared: Session | None, starts: int, job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = iter([prepared, Session(False)])
    started: list[Session | None] = []

    def start(settings: object) -> Session:
        started.append(next(sessions))
        if started[-1] is None:
            raise SessionError("no memory")
        return started[-1]

    monkeypatch.setattr(session, "start", start)
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.prepare()
    checks.start()
    assert (len(started), job.lives, conditions) == (starts, 1, [])
    checks.stop()


def test_checks_that_are_abandoned_tell_nobody_and_do_not_begin_again(
    job: type[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[bool] = []
    monkeypatch.setattr(session, "kill", lambda: killed.append(True))
    conditions: list[Finding] = []
    checks = Checks(config(tmp_path), told_to([], conditions))
    checks.start()
    checks.abandon()
    assert checks.wait(0)  # the job's first life fails now
    assert (killed, conditions, job.lives) == ([True], [], 1)
    checks.stop()
