"""The alerts' section of the configuration. Keys that do not stand here are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

UNFIT_URL: Final = "receiver_url"
"""The type of a complaint about an address that may hold a secret: what was given is not shown."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Secret(_Section):
    """A secret that an environment variable or a file holds; it is read anew each time that it is needed."""

    env: str | None = Field(None, min_length=1)
    file: Path | None = None

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError('a secret is { env = "NAME" } or { file = "path" }')
        return self


def _address(url: str) -> str:
    """Raises where nobody could be told at it. A chat's hook has its secret in the path, others a password before the
    host: it is not shown."""
    if not _leads_to_a_host(url):
        raise PydanticCustomError(
            UNFIT_URL, "is no address of a receiver: http:// or https://, a host, and no blank or letter beyond ASCII"
        )
    return url


def _leads_to_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fit and all("!" <= letter <= "~" for letter in url)


def _link(url: str) -> str:
    """Raises where it would lead nobody anywhere, or run something: alerts show it to whoever is on call."""
    if url and not _leads_to_a_host(url):
        raise ValueError("must be a page's address: http:// or https://, a host, and no blank or letter beyond ASCII")
    return url


Url = Annotated[str, AfterValidator(_address)]
Link = Annotated[str, AfterValidator(_link)]


class AlertmanagerConfig(_Section):
    """Alertmanagers that are told of incidents, each of them, as Prometheus tells them. Open incidents are sent again
    until they end. How to route them: deploy/prometheus/alertmanager.yml."""

    urls: tuple[Url, ...] = Field((), description='Their addresses, as in ["http://alertmanager:9093"].')
    resend: float = Field(60.0, gt=0, le=86_400, description="Open incidents are sent again after so many seconds.")
    timeout: float = Field(10.0, gt=0, le=3600, description="How long an answer may take, seconds.")
    token: Secret | None = Field(None, description='A bearer token, as { env = "NAME" } or { file = "path" }.')
    username: str = Field("", description="For basic authentication.")
    password: Secret | None = Field(None, description='As { env = "NAME" } or { file = "path" }.')
    ca: Path | None = Field(None, description="Certificates to trust, instead of the system's.")
    certificate: Path | None = Field(None, description="A client certificate, where they ask for one.")
    key: Path | None = Field(None, description="Its key.")


class WebhookConfig(_Section):
    """Addresses that get a JSON document when an incident opens, and when it is over; each of them once, with retries.

    With a secret it is signed: X-Offsetwatch-Signature is "v1=" and the HMAC-SHA256, in hexadecimal, of the timestamp
    in X-Offsetwatch-Timestamp, a full stop, and the body. Refuse what is older than five minutes."""

    urls: tuple[Url, ...] = Field((), description="Where it is posted to.")
    secret: Secret | None = Field(None, description='Signs it, as { env = "NAME" } or { file = "path" }.')
    severities: tuple[Literal["critical", "warning"], ...] = Field(
        ("critical", "warning"), description="Of which incidents they are told."
    )
    timeout: float = Field(10.0, gt=0, le=3600, description="How long an answer may take, seconds.")
    ca: Path | None = Field(None, description="Certificates to trust, instead of the system's.")


class ChatConfig(_Section):
    """Chat, mail, push: whatever Apprise can send to, where `pip install offsetwatch[chat]` was done."""

    targets: tuple[Secret, ...] = Field(
        (), description='Apprise addresses; they hold tokens, so each is { env = "NAME" } or { file = "path" }.'
    )
    severities: tuple[Literal["critical", "warning"], ...] = Field(
        ("critical",), description="Of which incidents they are told."
    )


class AlertsConfig(_Section):
    """Where findings are counted and written, and who is told of incidents."""

    metrics: bool = Field(True, description="Serve Prometheus metrics over HTTP.")
    metrics_host: str = Field("127.0.0.1", min_length=1, description="The address to listen on; 0.0.0.0 for everyone.")
    metrics_port: int = Field(
        9477, ge=0, le=65_535, description="The monitor's port; 0 takes a free one and says which."
    )
    probes_port: int = Field(9478, ge=0, le=65_535, description="The port of `probe run`, which serves its own.")
    partition_series: Literal["none", "essential", "all"] = Field(
        "essential",
        description="The series of each partition: none, the six or so that are looked at, or all. Those by topic are "
        "there in any case.",
    )
    broker_series: int = Field(
        16,
        ge=0,
        le=10_000,
        description="At most this many brokers have latency series of their own; others are `other`.",
    )
    log: str = Field(
        "stdout",
        min_length=1,
        description="Where findings are written to: stdout, stderr, or a file's path. A file grows until you rotate it "
        "(logrotate's copytruncate).",
    )
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="json: one line for each finding; text: for people, of each incident; auto: text on a terminal, "
        "else json.",
    )
    log_counted: bool = Field(
        False, description="Write a JSON line also for what is only counted: findings of severity info and allowed."
    )
    quiet: float = Field(
        900.0,
        gt=0,
        le=7 * 86_400,
        description="An incident of violations is over when none has been found for so many seconds; one of conditions "
        "when all of them have ended.",
    )
    runbook_url: Link = Field("", description="Where docs/runbook.md is published; alerts link to its sections.")
    page_url: Link = Field("", description="Where people look at incidents; alerts link to PAGE/incidents/ID.")
    alertmanager: AlertmanagerConfig = AlertmanagerConfig()
    webhook: WebhookConfig = WebhookConfig()
    chat: ChatConfig = ChatConfig()
