"""The status page's addresses. Read-only: everything but the login form is GET.

/                   what stands now, for people            /status     the same as JSON
/fragments/overview the same without its frame, for the script that refreshes it
/incidents/ID       the evidence of one incident           /metrics    for Prometheus
/live, /ready       is the process alive, does it check    /static/    style sheet and script
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from alerts.exposition import Registry, scraped
from alerts.incidents.incident import Incident, clock, explanation, where
from monitor.diagrams import space_time_svg
from monitor.diagrams.sparkline import sparkline
from monitor.errors import UserError
from monitor.incidents.explained import UnknownId, under_silences
from monitor.screen import on_a_page
from monitor.status import incident_view, overview_view
from monitor.status.access import Access, Rules
from monitor.status.board import Board, Seen
from monitor.status.evidence import EvidenceReader
from monitor.status.runbook import Paragraph, sections
from monitor.status.traffic import Recent, TrafficPace
from streaming_jobs.errors import TableError

_log: Final = logging.getLogger(__name__)
FOLDER: Final = Path(__file__).resolve().parent
_CACHED: Final = {"Cache-Control": "no-cache"}
"""Asked for again each time, and cheaply answered: a page never meets the script of another version."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The part of the first page that is refreshed, and what it was made of."""

    seen: Seen
    pace: TrafficPace | None
    page: overview_view.Page
    live: str


class StatusApp:
    """The application of one monitor; `asgi` is what a server serves."""

    def __init__(
        self,
        board: Board,
        evidence: EvidenceReader,
        recent: Recent,
        registry: Registry,
        rules: Rules,
        runbook_url: str = "",
    ) -> None:
        self._board, self._evidence, self._recent = board, evidence, recent
        self._registry, self._runbook_url = registry, runbook_url
        self._to_do: Mapping[str, Sequence[Paragraph]] = sections()
        self._templates = _templates()
        self._drawing = threading.Lock()
        self._drawn: _Drawn | None = None
        self._style = (FOLDER / "static" / "page.css").read_text(encoding="utf-8") + space_time_svg.STYLE
        self._script = (FOLDER / "static" / "page.js").read_text(encoding="utf-8")
        pages = Starlette(
            routes=[
                Route("/", self._overview, methods=["GET"]),
                Route("/fragments/overview", self._fragment, methods=["GET"]),
                Route("/incidents/{id}", self._incident, methods=["GET"]),
                Route("/status", self._status, methods=["GET"]),
                Route("/metrics", self._metrics, methods=["GET"]),
                Route("/live", self._live, methods=["GET"]),
                Route("/ready", self._ready, methods=["GET"]),
                Route("/static/page.css", self._css, methods=["GET"]),
                Route("/static/page.js", self._js, methods=["GET"]),
            ],
            exception_handlers={
                404: self._missing,
                500: self._failed,
                UserError: self._not_known,
                TableError: self._unreadable,
            },
        )
        self.asgi: ASGIApp = Access(pages, rules, self._login)  # around everything: also around what fails

    # For people. These are called in threads of their own: what they read holds up nobody else.

    def _overview(self, request: Request) -> Response:
        drawn = self._draw()
        return self._page("overview.html", page=drawn.page, live=Markup(drawn.live))

    def _fragment(self, request: Request) -> Response:
        return HTMLResponse(self._draw().live)

    def _draw(self) -> _Drawn:
        """What stands now, drawn once for all who look in the same second."""
        seen = self._board.seen()
        pace = self._recent.pace(seen.overview.checked.newest)
        with self._drawing:
            if self._drawn is None or self._drawn.seen is not seen or self._drawn.pace is not pace:
                page = overview_view.page(seen, pace)
                live = self._templates.get_template("_overview.html").render(page=page)
                self._drawn = _Drawn(seen, pace, page, live)
            return self._drawn

    def _incident(self, request: Request) -> Response:
        seen, wanted = self._board.seen(), request.path_params["id"]
        now = seen.now
        try:
            evidence = self._evidence.of(wanted, now)
        except UnknownId:
            incidents = [*seen.overview.open, *seen.overview.over]
            known = next((one for one in incidents if one.id.startswith(wanted)), None)
            if known is None or len(wanted) < _LEAST_ID:
                raise
            return self._message(request, 503, _not_written(known))
        told = replace(evidence, explained=under_silences(evidence.explained, self._board.silences(), now))
        return self._page("incident.html", page=incident_view.page(told, now, self._to_do, self._runbook_url))

    def _login(self, request: Request, wrong: bool) -> Response:
        to = request.url.path if request.method == "GET" and request.url.path != "/login" else "/"
        return self._page("login.html", 401, wrong=wrong, to=to)

    def _page(self, template: str, status: int = 200, **given: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(given), status)

    # What is not there

    def _missing(self, request: Request, error: Exception) -> Response:
        return self._message(request, 404, "There is no such page.")

    def _not_known(self, request: Request, error: Exception) -> Response:
        return self._message(request, 404, f"{error}")

    def _unreadable(self, request: Request, error: Exception) -> Response:
        return self._message(request, 503, f"The evidence cannot be read right now: {error}")

    def _failed(self, request: Request, error: Exception) -> Response:
        _log.error("the page %s failed: %s: %s", request.url.path, type(error).__name__, error, exc_info=error)
        return self._message(request, 500, "This page has failed; the monitor's log says how. The checks go on.")

    def _message(self, request: Request, status: int, text: str) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return self._page("message.html", status, text=text)
        return PlainTextResponse(f"{text}\n", status)

    # For programs

    def _status(self, request: Request) -> Response:
        seen = self._board.seen()
        return JSONResponse(overview_view.as_json(seen, self._recent.pace(seen.overview.checked.newest)))

    def _metrics(self, request: Request) -> Response:
        accept, names = request.headers.get("accept", ""), request.query_params.getlist("name[]")
        content_type, body = scraped(self._registry, accept, names)
        return Response(body, headers={"Content-Type": content_type})

    async def _live(self, request: Request) -> Response:
        """Answered by the event loop itself: it waits for no thread, whatever the others do."""
        return PlainTextResponse("ok\n")

    def _ready(self, request: Request) -> Response:
        reason = self._board.not_ready()
        return PlainTextResponse("ok\n" if reason is None else f"{reason}\n", 200 if reason is None else 503)

    def _css(self, request: Request) -> Response:
        return Response(self._style, media_type="text/css", headers=_CACHED)

    def _js(self, request: Request) -> Response:
        return Response(self._script, media_type="text/javascript", headers=_CACHED)


def _not_written(incident: Incident) -> str:
    """What is known of an incident that could not be written yet, as where the disk is full."""
    return (
        f"{incident.severity} {incident.anomaly} in {where(incident)}, since {clock(incident.holds_since)}: "
        f"{explanation(incident)} Its evidence is not in the tables yet, and comes there when they can be written."
    )


_LEAST_ID: Final = 4


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=on_a_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Drawn by us, with everything inside escaped.
    environment.filters["sparkline"] = lambda values: Markup(sparkline(values))
    environment.filters["drawing"] = Markup
    environment.filters["utc"] = lambda at: at.astimezone(UTC).strftime("%H:%M:%S")
    return environment
