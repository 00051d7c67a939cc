"""How connections of our own reach brokers that want TLS or a login, and how requests are asked on them.

Drills' proxies, `explain --raw`, the probe of zombies and the observer do both themselves. Clients speak to a proxy in
the clear, and only on loopback, so that a lie can be told about every request and no client's settings have to fit the
proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from scramp import ScramClient, ScramException

from probes.kafka.client import token_function
from probes.kafka.wire.errors import CannotConnect, Refused
from probes.kafka.wire.frames import BUFFER, read_frame, write_frame
from probes.kafka.wire.messages import Api, Payload, build, decode_response, new_request, request_class

CLIENT_ID: Final = "offsetwatch-login"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_VERSIONS: Final = {Api.SASL_HANDSHAKE: 1, Api.SASL_AUTHENTICATE: 1}
_NETWORK: Final = {"broker.address.family", "client.dns.lookup", "client.rack", "socket.keepalive.enable"}
_LOGIN_WITHIN: Final = 10.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(bootstrap: str) -> list[Address]:
    """The addresses of a list that commas separate."""
    found = []
    for one in bootstrap.split(","):
        host, _, port = one.strip().rpartition(":")
        found.append(Address(host.strip("[]"), int(port)))
    return found


async def asked(line: Stream, api: Api, version: int, client: str, **values: Any) -> Payload:
    """The answer to one request, on a connection where nothing else is under way.

    Raises OSError, and Undecodable."""
    reader, writer = line
    kind = request_class(api, version)
    assert kind is not None
    await write_frame(writer, new_request(api, version, 1, client, build(kind, **values)))
    frame = await read_frame(reader)
    if frame is None:
        raise ConnectionResetError("the broker closed the connection")
    return decode_response(api, version, frame)


@dataclass(frozen=True, slots=True)
class Login:
    """`mechanism`: one of `MECHANISMS`. `token`: of OAUTHBEARER, gives a token for each connection."""

    mechanism: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Connections to brokers; the default is for those that want neither."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None

    async def connect(self, broker: Address) -> Stream:
        """A connection that is ready for requests. Raises `OSError`, `Refused` where the login is not accepted."""
        reader, writer = await asyncio.open_connection(*broker, limit=BUFFER, ssl=self.tls)
        if self.login is not None:
            try:
                async with asyncio.timeout(_LOGIN_WITHIN):
                    await _Conversation((reader, writer)).log_in(self.login)
            except BaseException:
                writer.transport.abort()
                raise
        return reader, writer


PLAIN: Final = Upstream()


def upstream(security: Mapping[str, str], token: str | None = None) -> Upstream:
    """What these settings of librdkafka ask for; `token`: for OAUTHBEARER, the function that gives tokens, by its name
    (`probes.kafka.client.Connection`). Raises `CannotConnect` for a setting that cannot be followed."""
    left = {key: value for key, value in security.items() if key not in _NETWORK}
    protocol = left.pop("security.protocol", "plaintext").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise CannotConnect(f"a connection of our own does not know security.protocol {protocol}")
    login = _login(left, token) if protocol.startswith("SASL") else None
    tls = _tls(left) if protocol.endswith("SSL") else None
    for key in left:
        # A setting of a layer that the protocol does not use means nothing to a client, either.
        ours = (login is not None and key.startswith("sasl.")) or (tls is not None and "ssl." in key)
        if ours or not key.startswith(("sasl.", "ssl.", "enable.ssl.")):
            raise CannotConnect(f"a connection of our own does not understand {key}")
    return Upstream(tls, login)


def _login(left: dict[str, str], token: str | None) -> Login:
    names = [left.pop(key, None) for key in ("sasl.mechanism", "sasl.mechanisms")]
    mechanism = next((name for name in names if name), "GSSAPI")
    if mechanism not in MECHANISMS:
        raise CannotConnect(
            f"a connection of our own cannot log in by sasl.mechanism {mechanism}, only {', '.join(MECHANISMS)}"
        )
    login = Login(mechanism, left.pop("sasl.username", ""), left.pop("sasl.password", ""))
    given = left.pop("sasl.oauthbearer.config", "")
    if mechanism != "OAUTHBEARER":
        return login
    if token is None:
        raise CannotConnect("a connection of our own logs in by OAUTHBEARER only with cluster.token")
    function = token_function(token)
    return replace(login, token=lambda: function(given)[0])


def _tls(left: dict[str, str]) -> ssl.SSLContext:
    location, pem = left.pop("ssl.ca.location", None), left.pop("ssl.ca.pem", None)
    certificate, key = left.pop("ssl.certificate.location", None), left.pop("ssl.key.location", None)
    password = left.pop("ssl.key.password", None)
    by_name = left.pop("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    verified = left.pop("enable.ssl.certificate.verification", "true").lower() == "true"
    told = {"ssl.ca.location": location, "ssl.certificate.location": certificate, "ssl.key.location": key}
    for name, path in told.items():
        if path is not None and not Path(path).exists():
            raise CannotConnect(f"{name}: {path} does not exist")
    try:
        folder = location is not None and Path(location).is_dir()
        context = ssl.create_default_context(
            cafile=None if folder else location, capath=location if folder else None, cadata=pem
        )
        if certificate is not None:
            context.load_cert_chain(certificate, key, password)
    except (ssl.SSLError, OSError) as error:
        raise CannotConnect(f"a connection of our own cannot use the TLS files: {error}") from error
    context.check_hostname = by_name and verified
    if not verified:
        context.verify_mode = ssl.CERT_NONE
    return context


class _Conversation:
    """The first requests of a connection: which mechanism, and what it asks for."""

    def __init__(self, line: Stream) -> None:
        self._line = line

    async def log_in(self, login: Login) -> None:
        await self._ask(Api.SASL_HANDSHAKE, login, mechanism=login.mechanism)
        if login.mechanism == "PLAIN":
            await self._send(login, f"\0{login.username}\0{login.password}")
            return
        if login.token is not None:
            # What a broker has to say of a token that it refuses, it says in the answer, before the error.
            if said := await self._send(login, f"n,,\x01auth=Bearer {login.token()}\x01\x01"):
                raise Refused(f"the login by {login.mechanism}", said)
            return
        client = ScramClient([login.mechanism], login.username, login.password)
        try:
            client.set_server_first(await self._send(login, client.get_client_first()))
            client.set_server_final(await self._send(login, client.get_client_final()))
        except ScramException as error:
            raise Refused(f"the login by {login.mechanism}", str(error)) from error

    async def _send(self, login: Login, text: str) -> str:
        answer = await self._ask(Api.SASL_AUTHENTICATE, login, auth_bytes=text.encode())
        return bytes(answer.auth_bytes).decode()

    async def _ask(self, api: Api, login: Login, **values: Any) -> Payload:
        answer = await asked(self._line, api, _VERSIONS[api], CLIENT_ID, **values)
        if answer.error_code is not ErrorCode.none:
            raise Refused(f"the login by {login.mechanism}", answer.error_code.name)
        return answer
