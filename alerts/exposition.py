"""Serves `/metrics`, `/live` and `/ready` over HTTP, on this machine alone unless told otherwise.

`/live` answers 200 as long as the process does. `/ready` answers 200 once it does its work, and else 503 with the
reason. Read-only; anything else is 404.

What has no label `cluster` of its own gets that of the process (`OfCluster`). Metrics come as text, or in Prometheus'
protobuf format where that is asked for (`alerts.native_histograms`); `scraped` is what any server of ours answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from prometheus_client import Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from alerts.native_histograms import CONTENT_TYPE, asked_for, encode
from alerts.serving.connection import Limits
from alerts.serving.server import Server

Ready = Callable[[], str | None]
"""Why the process does not do its work, None where it does."""

_STARTED: Final = "<a href='/metrics'>/metrics</a> <a href='/live'>/live</a> <a href='/ready'>/ready</a>"


def _always() -> str | None:
    return None


class Registry(Protocol):
    """What metrics are collected from: prometheus_client's registry, or one around it."""

    def collect(self) -> Iterable[Metric]: ...
    def restricted_registry(self, names: Iterable[str]) -> Any: ...


class OfCluster:
    """A registry whose samples all have the label `cluster`. `cluster`: the id of the cluster that is watched, "" while
    it is not known or where there are several."""

    def __init__(self, registry: Registry, cluster: Callable[[], str]) -> None:
        self._registry, self._cluster = registry, cluster

    def collect(self) -> Iterable[Metric]:
        own = {"cluster": self._cluster()}
        for family in self._registry.collect():
            family.samples = [sample._replace(labels=own | sample.labels) for sample in family.samples]
            yield family

    def restricted_registry(self, names: Iterable[str]) -> OfCluster:
        return OfCluster(self._registry.restricted_registry(names), self._cluster)


def scraped(registry: Registry, accept: str, names: Sequence[str] = ()) -> tuple[str, bytes]:
    """The metrics (of these families alone, if any are named) in the form that an `Accept` header asks for, with its
    content type."""
    asked: Any = registry.restricted_registry(names) if names else registry
    if asked_for(accept):
        return CONTENT_TYPE, encode(asked.collect())
    write, content_type = choose_encoder(accept)
    return content_type, write(asked)


def without_creation_times() -> None:
    """No `_created` series from here on: when one began doubles their number, and nobody asks."""
    disable_created_metrics()  # type: ignore[no-untyped-call]


class Exposition:
    """A running HTTP server for one registry. Port 0 takes a free one; `url` says which. Raises PortTaken."""

    def __init__(
        self,
        registry: Registry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ready: Ready = _always,
        limits: Limits | None = None,
    ) -> None:
        without_creation_times()
        self._server = Server(_pages(registry, ready), host=host, port=port, limits=limits)
        self.url = f"{self._server.url}/metrics"

    def close(self) -> None:
        self._server.close()


def _pages(registry: Registry, ready: Ready) -> ASGIApp:
    def metrics(request: Request) -> Response:
        accept, names = request.headers.get("accept", ""), request.query_params.getlist("name[]")
        content_type, body = scraped(registry, accept, names)
        return Response(body, headers={"Content-Type": content_type})

    async def live(request: Request) -> Response:
        """Answered by the event loop itself: it waits for no thread, whatever the others do."""
        return PlainTextResponse("ok\n")

    def is_ready(request: Request) -> Response:
        reason = ready()
        return PlainTextResponse("ok\n" if reason is None else f"{reason}\n", 200 if reason is None else 503)

    async def start(request: Request) -> Response:
        return HTMLResponse(_STARTED)

    async def missing(request: Request, error: Exception) -> Response:
        return PlainTextResponse("there are /metrics, /live and /ready\n", 404)

    made = {"/": start, "/metrics": metrics, "/live": live, "/ready": is_ready}
    routes = [Route(path, page, methods=["GET"]) for path, page in made.items()]
    return Starlette(routes=routes, exception_handlers={404: missing})
