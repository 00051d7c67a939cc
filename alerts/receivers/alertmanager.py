"""Alertmanager, told through its API v2 as Prometheus tells it.

An open incident is one alert, sent again every `resend` seconds with an end a few of those ahead, so that it ends by
itself where nobody sends it any more. One that is over is sent with its end, and again for a while: Alertmanager may
have been restarted meanwhile. What it is told apart by is said by the incident's first finding and does not change. Nor
do the times of a spell: they are those that were told first, whoever sends them again, and whatever is found of it
later.

A violation that was over before Alertmanager could be told of it still wakes somebody: it is sent as open for
`NOTICED` from then on, if nothing silences it. What is silenced is sent like everything else: Alertmanager has a
silence then, see `alerts.receivers.alertmanager_silences`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from alerts.config import AlertmanagerConfig
from alerts.evidence import words
from alerts.incidents.incident import Incident, explanation, summary
from alerts.receivers.http import ask, basic, reveal, tls
from alerts.receivers.memory import Memory, Stretch, ToldTimes
from rules.vocabulary.times import rfc3339

PATH: Final = "/api/v2/alerts"
AHEAD: Final = 4
"""An open alert ends by itself after so many times `resend`, as with Prometheus."""
NOTICED: Final = timedelta(minutes=2)
"""Long enough for Alertmanager's group_wait."""
RESOLVED_FOR: Final = timedelta(minutes=15)
"""How long an end is sent again; of one under a silence, beyond that."""
DESCRIBED: Final = 2_000
"""Characters of an alert's description."""

Post = Callable[[str, bytes, Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Links:
    """Where runbook and incidents can be looked at; empty where nowhere."""

    runbook: str = ""
    page: str = ""

    def of(self, incident: Incident) -> dict[str, str]:
        made = {"runbook": incident.runbook}
        if self.runbook:
            made["runbook_url"] = f"{self.runbook.rstrip('#')}#{incident.anomaly.lower()}"
        if self.page:
            made["dashboard"] = f"{self.page.rstrip('/')}/incidents/{incident.id}"
        return made


class Alertmanager:
    """One Alertmanager. `send` posts to it; tests give their own."""

    def __init__(
        self,
        url: str,
        config: AlertmanagerConfig,
        links: Links,
        *,
        name: str = "alertmanager",
        send: Post | None = None,
    ) -> None:
        self.name = name
        self._url = url.rstrip("/").removesuffix(PATH) + PATH
        self._config = config
        self._links = links
        self._send = send or self._post
        self._sent: dict[str, bool] = {}
        self._at: datetime | None = None

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None:
        """Send all that is open or has ended lately, where that has changed or `resend` has passed."""
        due: dict[str, tuple[Incident, datetime]] = {}
        named = set()
        for one in incidents:
            end = self._end(one, memory, now)
            # An occurrence long ago has the labels of the one that followed: the newest, which comes first, counts.
            if end is not None and one.id not in named:
                due[one.occurrence] = one, end
                named.add(one.id)
        standing = {occurrence: end > now for occurrence, (_, end) in due.items()}
        again = self._at is None or (now - self._at).total_seconds() >= self._config.resend
        if not due or (standing == self._sent and not again):
            self._sent = standing
            return
        sent = {name: _stretch(one, end, memory.of(name), now) for name, (one, end) in due.items()}
        body = json.dumps([self._alert(one, end, sent[name]) for name, (one, end) in due.items()])
        self._send(self._url, body.encode(), headers(self._config))
        self._sent, self._at = standing, now
        for occurrence, is_open in standing.items():
            told, stretch = memory.of(occurrence), sent[occurrence]
            if is_open and told.last != "open":
                memory.note(occurrence, ToldTimes(open=now, over=told.over, stretch=stretch))
            elif not is_open and told.last != "over":
                memory.note(occurrence, ToldTimes(open=told.open, over=now, stretch=stretch))
            elif stretch != told.stretch:
                memory.note(occurrence, ToldTimes(open=told.open, over=told.over, stretch=stretch))

    def _end(self, incident: Incident, memory: Memory, now: datetime) -> datetime | None:
        """When the alert ends, None where nothing is to be sent of it."""
        if incident.open:
            if not incident.tellable(now) and memory.of(incident.occurrence).last != "open":
                return None
            return now + AHEAD * timedelta(seconds=self._config.resend)
        told = memory.of(incident.occurrence)
        assert incident.ended is not None
        if told.open is None and told.over is None:
            if incident.kind != "violation" or incident.ended < memory.began or incident.silence is not None:
                return None
            if incident.absorbed:
                return None
            return now + NOTICED
        if told.last == "over" and told.over is not None:
            # Of an end that is silenced Alertmanager tells nobody. Who was paged before has to hear it afterwards.
            silenced = incident.ended if incident.silence is None else incident.silence.until
            if now - max(incident.ended, told.over, silenced) > RESOLVED_FOR:
                return None
        # What ended under a silence nobody is to notice; sent as open, it would be told of once the silence ends.
        if incident.kind == "violation" and told.open is not None and incident.silence is None:
            return max(incident.ended, told.open + NOTICED)
        return incident.ended

    def _alert(self, incident: Incident, end: datetime, sent: Stretch) -> dict[str, Any]:
        alert = {
            "labels": labels(incident),
            "annotations": {
                "summary": summary(incident),
                "description": description(incident),
                "explain": f"offsetwatch explain {incident.id}",
                **({"cluster_name": incident.cluster_name} if incident.cluster_name else {}),
                **self._links.of(incident),
            },
            "startsAt": rfc3339(sent.starts, "milliseconds"),
            "endsAt": rfc3339(max(sent.ends or end, sent.starts + timedelta(milliseconds=1)), "milliseconds"),
        }
        if self._links.page:
            alert["generatorURL"] = self._links.of(incident)["dashboard"]
        return alert

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        request(self._config, "POST", url, body, headers)


def _stretch(incident: Incident, end: datetime, told: ToldTimes, now: datetime) -> Stretch:
    """The times of the incident's present spell: as they were told first, where they were."""
    over = end if end <= now else None
    known = told.stretch
    if known is None or known.spell < incident.spells:
        return Stretch(incident.spells, min(incident.since, now - timedelta(seconds=1)), over)
    kept = known.ends if told.last == "over" else None
    return Stretch(known.spell, known.starts, over and (kept or over))


def request(config: AlertmanagerConfig, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """One request to an Alertmanager, with the certificates and the patience that are configured; its answer."""
    context = tls(config.ca, config.certificate, config.key) if url.startswith("https:") else None
    return ask(method, url, body, headers, context, config.timeout)


def headers(config: AlertmanagerConfig) -> dict[str, str]:
    """Who we are. Raises SendFailed where a secret cannot be read."""
    if config.token is not None:
        return {"Authorization": f"Bearer {reveal('alerts.alertmanager.token', config.token)}"}
    if config.username and config.password is not None:
        return {"Authorization": basic(config.username, reveal("alerts.alertmanager.password", config.password))}
    return {}


def labels(incident: Incident) -> dict[str, str]:
    """What tells the alert apart; each of them has few values but `incident`, of which there is one an incident."""
    told = {
        "alertname": incident.anomaly,
        "severity": incident.severity,
        "kind": incident.kind,
        "cluster": incident.cluster,
        "topic": incident.topic,
        "incident": incident.id,
        "source": "offsetwatch",
    }
    return {name: value for name, value in told.items() if value}


def description(incident: Incident) -> str:
    """What happened, and the evidence of the first finding."""
    said = f"{explanation(incident)}\nEvidence: {words(incident.anomaly, incident.evidence)}"
    return said if len(said) <= DESCRIBED else said[: DESCRIBED - 1] + "…"
