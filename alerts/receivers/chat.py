"""Chat, mail and push through Apprise: one message when an incident opens, one when it is over, and few between where
it grows worse."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from alerts.config import ChatConfig, Secret
from alerts.incidents.incident import Incident, explanation, summary
from alerts.receivers.alertmanager import Links
from alerts.receivers.http import SendFailed, reveal
from alerts.receivers.memory import Memory
from alerts.receivers.webhook import State, due, told

Notify = Callable[[str, str, str, str], bool]
"""Address, title, text, and Apprise's type of notice; whether it was sent."""


class AppriseMissing(Exception):
    """Chat is configured, and Apprise is not installed."""


class Chat:
    """One address. `notify` sends; tests give their own. Raises AppriseMissing where nothing could."""

    def __init__(
        self, target: Secret, config: ChatConfig, links: Links, *, name: str = "chat", notify: Notify | None = None
    ) -> None:
        self.name = name
        self._target = target
        self._config = config
        self._links = links
        self._notify = notify or _apprise()

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None:
        for one, state in due(incidents, memory, self._config.severities, now):
            address = reveal("alerts.chat.targets", self._target)
            if not self._notify(address, title(one, state), text(one, self._links), _notice(one, state)):
                raise SendFailed("Apprise could not send it; with --debug it says why")
            told(memory, one, state, now)


def title(incident: Incident, state: State) -> str:
    """One line, as a phone shows it."""
    told = summary(incident)
    if state == "worse":
        return f"Worse: {told}"
    if state == "open":
        return f"Again: {told}" if incident.spells > 1 else told
    if incident.became is None:
        return f"Over: {told}"
    became = incident.became.anomaly
    return f"Lost, {became}: {told}" if incident.lost else f"Part of {became}: {told}"


def _notice(incident: Incident, state: State) -> str:
    if state == "over" and incident.became is None:
        return "success"
    if state == "over" and incident.absorbed:
        return "info"
    return "failure" if incident.severity == "critical" else "warning"


def text(incident: Incident, links: Links) -> str:
    """What happened, the command that explains it, and links."""
    said = [explanation(incident), f"offsetwatch explain {incident.id}"]
    made = links.of(incident)
    said += [made[name] for name in ("dashboard", "runbook_url") if name in made]
    return "\n".join(said)


def is_known(address: str) -> bool:
    """Is it an address by which Apprise could send? Raises AppriseMissing."""
    log = logging.getLogger("apprise")
    if not log.handlers:  # else it shows the address on stderr
        log.addHandler(logging.NullHandler())
    return bool(_module().Apprise().add(address))


def _module() -> Any:
    try:
        return importlib.import_module("apprise")
    except ImportError as error:
        raise AppriseMissing("alerts.chat needs Apprise: pip install 'offsetwatch[chat]'") from error


def _apprise() -> Notify:
    apprise = _module()

    def notify(address: str, title: str, body: str, kind: str) -> bool:
        sender = apprise.Apprise()
        return bool(sender.add(address) and sender.notify(body=body, title=title, notify_type=kind))

    return notify
