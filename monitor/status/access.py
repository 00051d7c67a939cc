"""Who may look, and what a browser may do with a page: host names, the token, the headers of every answer.

- A page on 127.0.0.1 answers to this machine's own names alone: else a web page of anybody could have a browser ask it
  under a name that leads here (DNS rebinding). `/live` and `/ready` answer to any: an orchestrator asks by address. So
  does everything to a program that gives the token, as Prometheus does by a pod's address: no such page knows it.
- With a token everything but `/live`, `/ready`, the style sheet and the script asks for it: as `Authorization: Bearer`,
  or as a cookie that a browser is given for it, by the form or by `?token=`, which is taken out of the address at
  once. The cookie holds a hash of the token; comparisons take the same time whatever is wrong.
- Nothing is loaded from elsewhere, nothing is framed, no address is told to others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "offsetwatch"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_HEALTH: Final = ("/live", "/ready")
_OPEN: Final = "/static/"
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_FORM: Final = 4_096
"""Bytes of a login form that are read."""
_WRONG: Final = 0.5
"""Seconds before a wrong token is answered."""

LoginPage = Callable[[Request, bool], Response]
"""Makes the login form of a request; whether a token was given that was wrong."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`hosts`: names under which it may be asked, None for any. `token`: None where nobody needs one. `secure`: it is
    served with TLS."""

    hosts: frozenset[str] | None
    token: str | None
    secure: bool


def allowed_hosts(listening: str, named: Sequence[str]) -> frozenset[str] | None:
    """The names under which a server that listens on `listening` may be asked: this machine's and those that are
    configured; any, where it listens to others and none is configured."""
    own = f"[{listening}]" if ":" in listening else listening.lower()
    if not named and not (own in _THIS_MACHINE or _loopback(listening)):
        return None
    return frozenset({*_THIS_MACHINE, own, *(name.lower() for name in named)})


def _loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


class Access:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, rules: Rules, login: LoginPage) -> None:
        self._app, self._rules, self._login = app, rules, login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            refused = await self._refused(Request(scope, receive))
        except ClientDisconnect:
            return
        await (refused or self._app)(scope, receive, with_headers)

    async def _refused(self, request: Request) -> Response | None:
        """The answer to a request that gets no further, None where it does."""
        if request.url.path in _HEALTH:
            return None
        token, given = self._rules.token, "authorization" in request.headers
        known = token is not None and _bearer(request, token)
        if not known and self._rules.hosts is not None and _host(request) not in self._rules.hosts:
            if token is not None and given:
                await asyncio.sleep(_WRONG)
            return PlainTextResponse("This page is not served under that name (status.hosts).\n", 421)
        if token is None or request.url.path.startswith(_OPEN):
            return None
        if request.url.path == "/login" and request.method == "POST":
            return await self._log_in(request, token)
        if request.method in ("GET", "HEAD") and "token" in request.query_params:
            if _same(request.query_params["token"], token):
                return self._admitted(_without_token(request), token)
            return await self._unknown(request, wrong=True)
        if known or _same(request.cookies.get(COOKIE, ""), cookie_of(token)):
            return None
        return await self._unknown(request, wrong=given)

    async def _log_in(self, request: Request, token: str) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _FORM:
                return PlainTextResponse("That is too long.\n", 413)
        form = parse_qs(body.decode("utf-8", "replace"))
        if not _same(form.get("token", [""])[0].strip(), token):
            return await self._unknown(request, wrong=True)
        return self._admitted(_local(form.get("next", ["/"])[0]), token)

    def _admitted(self, to: str, token: str) -> Response:
        answer = RedirectResponse(to, 303)
        answer.set_cookie(
            COOKIE, cookie_of(token), httponly=True, samesite="strict", secure=self._rules.secure, path="/"
        )
        return answer

    async def _unknown(self, request: Request, wrong: bool) -> Response:
        if wrong:
            await asyncio.sleep(_WRONG)
        if "text/html" in request.headers.get("accept", "") or request.method == "POST":
            return self._login(request, wrong)
        return PlainTextResponse(
            "A token is needed: Authorization: Bearer ...\n", 401, headers={"WWW-Authenticate": "Bearer"}
        )


def cookie_of(token: str) -> str:
    """What a browser is given for the token. It opens this page, and does not tell the token."""
    return hmac.new(token.encode(), b"offsetwatch status page, cookie 1", hashlib.sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _bearer(request: Request, token: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and _same(given.strip(), token)


def _host(request: Request) -> str:
    """The name in the request's Host header, without its port."""
    name = request.headers.get("host", "").lower()
    head, colon, port = name.rpartition(":")
    return head if colon and port.isdecimal() else name


def _local(to: str) -> str:
    """An address of ours to go on to; the first page instead of anybody else's."""
    parts = urlsplit(to)
    ours = to.startswith("/") and not to.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return to if ours and to.isprintable() else "/"


def _without_token(request: Request) -> str:
    rest = [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]
    return _local(request.url.path + (f"?{urlencode(rest)}" if rest else ""))
