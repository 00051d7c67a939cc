"""Monitors that take turns at tables in an object store tell a receiver everything once, whoever of them is at work."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from alerts.config import AlertsConfig, WebhookConfig
from alerts.event import FindingEvent
from alerts.paging import Paging
from monitor.process.keeping import ALONE, InTheStore
from streaming_jobs.errors import TableError
from streaming_jobs.location import TableUrl
from streaming_jobs.tables.lease import HOLD, WAIT, Lease
from tests.alerts.findings import NOON, event, finding
from tests.alerts.servers import Sink, sink
from tests.object_store import known_here, store


class Monitor:
    """One of them: its lease and its people, by a clock that the test moves. What is due is told by `tell`."""

    def __init__(self, tables: TableUrl, folder: Path, hook: Sink, at: list[float]) -> None:
        self._tables, self._folder, self._hook, self._at = tables, folder, hook, at
        self.lease = Lease(tables, lambda: at[0])

    def begin(self, recorded: list[FindingEvent]) -> None:
        config = AlertsConfig(quiet=60.0, webhook=WebhookConfig(urls=(self._hook.url,)))
        keeping = InTheStore(self._tables, self._folder, self.lease)
        self.people = Paging(config, keeping, lambda name: None, clock=self._now)
        self.people.begin(recorded)

    def _now(self) -> datetime:
        return NOON + timedelta(seconds=self._at[0])

    def deliver(self, found: FindingEvent) -> FindingEvent:
        self.people.deliver([found])
        return found

    def tell(self) -> None:
        for courier in self.people._couriers:
            courier.attempt()


def at(seconds: float, anomaly: str, subject: int, *, what: str = "raised") -> FindingEvent:
    when = NOON + timedelta(seconds=seconds)
    return event(finding(anomaly, subject, event=what), counted=when, at=when, decidable=when)  # type: ignore[arg-type]


def told(hook: Sink) -> list[tuple[str, str]]:
    return [(body["incident"]["anomaly"], body["state"]) for body in hook.bodies]


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def tables(server: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableUrl]:
    with known_here(server, monkeypatch):
        yield TableUrl(f"s3://bucket/{request.node.name}/tables")


def takes_over(monitor: Monitor, clock: list[float]) -> None:
    assert not monitor.lease.take()
    clock[0] += WAIT
    assert monitor.lease.take()


def test_who_takes_over_tells_nothing_again_and_what_is_left(tables: TableUrl, tmp_path: Path) -> None:
    """Also one that had been at work before, and whose own disk holds what was told then."""
    clock = [0.0]
    with sink() as hook:
        a, b = (Monitor(tables, tmp_path / name, hook, clock) for name in "ab")
        assert a.lease.take()
        a.begin([])
        record = [a.deliver(at(0, "duplicate", 1))]
        a.tell()
        takes_over(b, clock)
        b.begin(list(record))
        b.tell()
        assert told(hook) == [("duplicate", "open")]
        clock[0] += 80
        b.lease.renew()
        b.tell()
        record.append(b.deliver(at(clock[0], "G1a", 2)))
        b.tell()
        clock[0] += 80
        b.lease.renew()
        b.tell()
        everything = [(name, state) for name in ("duplicate", "G1a") for state in ("open", "over")]
        assert told(hook) == everything
        record.append(at(clock[0], "lost-write", 3))  # found, and not told any more
        again = Monitor(tables, tmp_path / "a", hook, clock)
        takes_over(again, clock)
        again.begin(record)
        again.tell()
        assert told(hook) == [*everything, ("lost-write", "open")]


def test_who_may_have_been_taken_over_from_tells_nothing(tables: TableUrl, tmp_path: Path) -> None:
    """It was frozen, say: what it knows is out of date, and another one may be at work."""
    clock = [0.0]
    with sink() as hook:
        a, b = (Monitor(tables, tmp_path / name, hook, clock) for name in "ab")
        assert a.lease.take()
        a.begin([])
        for frozen in (HOLD + 1, ALONE + 1):
            clock[0] += frozen
            a.deliver(at(clock[0], "duplicate", 1))
            a.deliver(at(clock[0], "checks-stalled", 2, what="opened"))
            a.tell()
            assert told(hook) == []
        takes_over(b, clock)
        a.lease.renew()
        assert a.lease.lost is not None
        clock[0] += 2 * ALONE
        a.tell()
        assert told(hook) == []


@pytest.mark.long
def test_who_lost_the_store_for_long_tells_that_it_checks_nothing(
    tables: TableUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one else is known to be at work, and may not be. When the store is back, it goes on."""
    clock = [0.0]
    with sink() as hook:
        a = Monitor(tables, tmp_path / "a", hook, clock)
        assert a.lease.take()
        a.begin([])
        a.deliver(at(0, "duplicate", 1))
        a.deliver(at(0, "checks-stalled", 2, what="opened"))

        def is_away(after: int, holder: str) -> bool:
            raise TableError("The store does not answer.")

        with monkeypatch.context() as away:
            away.setattr(a.lease, "_commit", is_away)
            for seconds in (HOLD + ALONE, ALONE - 1):  # it asks for the first time after the one, and again
                clock[0] += seconds
                a.lease.renew()
                a.tell()
                assert told(hook) == []
            clock[0] += 2
            a.tell()
        assert told(hook) == [("checks-stalled", "open")]
        a.lease.renew()
        a.tell()
        assert sorted(told(hook)) == [("checks-stalled", "open"), ("duplicate", "open"), ("duplicate", "over")]
