"""JSON over HTTP, as receivers are sent it. What goes wrong is one line that holds no secret."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from alerts.config import Secret

ANSWER_LIMIT: Final = 4_096
"""Bytes of an error's answer that are read."""
LIST_LIMIT: Final = 16 << 20
"""The same of an answer that tells something."""
TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Of the 4xx answers, those that a later attempt may not get."""


class SendFailed(Exception):
    """A receiver could not be told. The text names it, and no secret."""


class Refused(SendFailed):
    """The receiver has said that it does not want this: it will not be asked again."""


def reveal(name: str, secret: Secret) -> str:
    """The secret's value, as it is now. Raises SendFailed, which names the key."""
    if secret.env is not None:
        value = os.environ.get(secret.env)
        if value is None:
            raise SendFailed(f"{name}: the environment variable {secret.env} is not set")
        return value
    assert secret.file is not None
    try:
        return secret.file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SendFailed(f"{name}: {secret.file} cannot be read: {reason}") from None


def basic(username: str, password: str) -> str:
    """The header's value."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def tls(ca: Path | None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Whom to trust, and who we are. Raises SendFailed where a file is of no use."""
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(one) for one in (ca, certificate, key) if one is not None)
        raise SendFailed(f"{files}: {getattr(error, 'strerror', None) or 'no usable certificate'}") from None
    return context


def shown(url: str) -> str:
    """An address without what may be secret in it: user, password, path and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or '?'}" + (f":{parts.port}" if parts.port else "")


def _apart(url: str) -> tuple[str, dict[str, str]]:
    """The address without user and password, and the header that tells them instead."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, {}
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address, {"Authorization": basic(unquote(parts.username), unquote(parts.password or ""))}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A signed or authenticated document goes where it was meant to go, and nowhere else."""

    def redirect_request(self, *given: object, **more: object) -> None:
        return None


def post(url: str, body: bytes, headers: Mapping[str, str], context: ssl.SSLContext | None, timeout: float) -> None:
    """Post a JSON document. Returns once it was taken (2xx); raises Refused, or SendFailed where a later attempt may
    do."""
    ask("POST", url, body, headers, context, timeout)


def ask(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    timeout: float,
) -> bytes:
    """One request with a JSON document, or none; the answer, of which `LIST_LIMIT` bytes are read. A user and a
    password in the address are for basic authentication. Raises as `post`."""
    address, own = _apart(url)
    request = urllib.request.Request(address, data=body, method=method)
    for name, value in {"Content-Type": "application/json", "User-Agent": "offsetwatch", **own, **headers}.items():
        request.add_header(name, value)
    https = urllib.request.HTTPSHandler(context=context or ssl.create_default_context())
    try:
        with urllib.request.build_opener(https, _NoRedirects).open(request, timeout=timeout) as answer:
            told: bytes = answer.read(LIST_LIMIT)
            return told
    except urllib.error.HTTPError as error:
        with error:
            said = " ".join(error.read(ANSWER_LIMIT).decode(errors="replace").split())[:200]
        failure = Refused if 400 <= error.code < 500 and error.code not in TRY_AGAIN else SendFailed
        raise failure(f"{shown(url)} answered {error.code}{f': {said}' if said else ''}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SendFailed(f"{shown(url)}: {reason}") from None
