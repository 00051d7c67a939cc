"""The status page and the metrics of this monitor, wired to their configuration."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

from alerts.exposition import Exposition, Registry, without_creation_times
from alerts.serving.server import Server, Tls
from monitor.config.config import Config, StatusConfig
from monitor.config.names import ClusterNames
from monitor.errors import ConfigError
from monitor.status.access import Rules, allowed_hosts
from monitor.status.app import StatusApp
from monitor.status.board import Board
from monitor.status.evidence import EvidenceReader
from monitor.status.traffic import Recent


def serve(config: Config, board: Board, registry: Registry, say: Callable[[str], None], ending: ExitStack) -> str:
    """Serve the page, or without it the metrics alone, until `ending` ends; returns the address of the first page.

    Raises PortTaken, and ConfigError where the token or the certificate cannot be read."""
    alerts, status = config.alerts, config.status
    if not status.page:
        exposition = Exposition(registry, host=alerts.metrics_host, port=alerts.metrics_port, ready=board.not_ready)
        ending.callback(exposition.close)
        say(f"metrics are served at {exposition.url}")
        return exposition.url.removesuffix("metrics")
    without_creation_times()
    hosts = allowed_hosts(alerts.metrics_host, status.hosts)
    token, tls = status.read_token(), tls_of(status)
    app = StatusApp(
        board,
        EvidenceReader(
            config.job.tables_path,
            config.job.history_path,
            timedelta(seconds=alerts.quiet),
            called=ClusterNames(config),
        ),
        Recent(config.job.history_path),
        registry,
        Rules(hosts, token, tls is not None),
        alerts.runbook_url,
    )
    server = Server(app.asgi, host=alerts.metrics_host, port=alerts.metrics_port, tls=tls)
    ending.callback(server.close)
    say(f"metrics are served at {server.url}/metrics")
    say(f"the status page is served at {server.url}/")
    if token is None and hosts is None:
        say(f"whoever reaches {alerts.metrics_host} can look at it: status.token asks for a token")
    return f"{server.url}/"


def tls_of(status: StatusConfig) -> Tls | None:
    """What the page is served with; None without TLS. Raises ConfigError where certificate or key are of no use."""
    if status.certificate is None or status.key is None:
        return None
    tls = Tls(status.certificate, status.key)
    try:
        tls.check()
    except OSError as error:  # an SSLError is one
        unusable = isinstance(error, ssl.SSLError) or not error.strerror
        reason = "no usable certificate and key" if unusable else error.strerror
        raise ConfigError(f"status.certificate, status.key: {tls.certificate}, {tls.key}: {reason}") from error
    return tls
