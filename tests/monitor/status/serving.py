"""Status pages that are really served, of boards that tests fill."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from prometheus_client import CollectorRegistry, Gauge

from alerts.incidents.incident import Incident, Names, nameless
from alerts.incidents.silence import Silence
from alerts.serving.connection import Limits
from alerts.serving.server import Server, Tls
from monitor.status.access import Rules, allowed_hosts
from monitor.status.app import StatusApp
from monitor.status.board import Board
from monitor.status.evidence import EvidenceReader
from monitor.status.traffic import Recent
from streaming_jobs.tables.schemas import FINDINGS, PARTITION_STATE
from tests.monitor.rows import NOON

S = timedelta(seconds=1)


def state(partition: int = 3, *, topic: str = "orders", checked: float = -1.0, **changed: Any) -> dict[str, Any]:
    """A row of `partition_state`: evidence up to half a second before noon, checked `checked` seconds after noon."""
    row: dict[str, Any] = {one.name: 0 if pa.types.is_integer(one.type) else None for one in PARTITION_STATE} | {
        "cluster": "c",
        "topic_id": "t-id",
        "topic": topic,
        "partition": partition,
        "now": NOON - 0.5 * S,
        "checked_through": NOON + checked * S,
        "log_end": 100,
        "last_stable": 100,
        "readers": [],
    }
    return row | changed


def states(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=PARTITION_STATE)


@dataclass
class Monitor:
    """What a board asks of the monitor, as a test sets it."""

    now: datetime = NOON
    incidents: list[Incident] = field(default_factory=list)
    places: Mapping[str, list[str]] = field(default_factory=dict)
    not_ready: str | None = None
    silences: list[Silence] = field(default_factory=list)

    def board(self, *rows: dict[str, Any], recorded: pa.Table | None = None, names: Names = nameless) -> Board:
        made = Board(
            lambda now: list(self.incidents),
            lambda one: self.places.get(one, []),
            lambda: self.not_ready,
            clock=lambda: self.now,
            silences=lambda: self.silences,
            names=names,
        )
        made.begin(FINDINGS.empty_table() if recorded is None else recorded, states(*rows))
        return made


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Served:
    url: str
    trust: ssl.SSLContext | None = None

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def ask(
        self, method: str, path: str, *, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, whose redirect is not followed. Underscores of a header's name are hyphens."""
        where = urlsplit(self.url)
        assert where.hostname is not None
        if self.trust is not None:
            to: http.client.HTTPConnection = http.client.HTTPSConnection(
                where.hostname, where.port, timeout=120, context=self.trust
            )
        else:
            to = http.client.HTTPConnection(where.hostname, where.port, timeout=120)
        try:
            sent = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
            to.request(method, path, body=body, headers=sent)
            got = to.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode())
        finally:
            to.close()


@contextmanager
def served(
    board: Board,
    tables: Path,
    *,
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    tls: Tls | None = None,
    trust: ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> Iterator[Served]:
    """The page of this board, and of the tables below `tables`, on a free port of this machine."""
    registry = CollectorRegistry()
    Gauge("offsetwatch_answer", "For the tests.", registry=registry).set(42)
    history = tables / "history"
    rules = Rules(allowed_hosts("127.0.0.1", hosts), token, tls is not None)
    app = StatusApp(board, EvidenceReader(tables, history, timedelta(minutes=15)), Recent(history), registry, rules)
    server = Server(app.asgi, host="127.0.0.1", port=0, tls=tls, limits=limits)
    try:
        yield Served(server.url, trust)
    finally:
        server.close()
