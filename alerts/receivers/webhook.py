"""A webhook gets one JSON document when an incident opens, one when it is over, and few between where it grows worse.

| field | holds |
|---|---|
| `version` | 1; fields may be added, none changes its meaning |
| `id` | of this document: the same one sent again, after an answer that was lost, has the same |
| `state` | `open`; `worse`, of an incident that was told as open; `over`. Who is told `over` was told `open` before |
| `incident` | what happened: see `document` |

It is signed where a secret is configured: see `alerts.config.WebhookConfig`, and `verified` for how to check it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from alerts.config import WebhookConfig
from alerts.evidence import exact
from alerts.incidents.group import PAUSE
from alerts.incidents.incident import Incident, explanation, summary
from alerts.incidents.keys import REFLECTED
from alerts.receivers.alertmanager import Links, Post
from alerts.receivers.http import Refused, post, reveal, tls
from alerts.receivers.memory import Memory, Size, ToldTimes
from rules.vocabulary.times import rfc3339

TIMESTAMP: Final = "X-Offsetwatch-Timestamp"
SIGNATURE: Final = "X-Offsetwatch-Signature"
FRESH: Final = timedelta(minutes=5)
SETTLED: Final = PAUSE
"""A condition has to have ended for so long before it is told to be over: some come and go."""
WORSE_AFTER: Final = timedelta(seconds=60)
"""So long after it was told last, an incident may be told to have grown."""
TIMES_PLACES: Final = 2
TIMES_FINDINGS: Final = 10
"""It is worse when it has so many times the places, or the findings, that were told last."""

State = Literal["open", "worse", "over"]
_log: Final = logging.getLogger("offsetwatch.alerts")


def due(
    incidents: Sequence[Incident],
    memory: Memory,
    severities: Sequence[str],
    now: datetime,
    *,
    silenced: bool = False,
) -> list[tuple[Incident, State]]:
    """What is still to be told of these incidents, the oldest first, each state once. Of what is silenced only the end
    is told, to those who know of its beginning; with `silenced` everything. What was over before it could be told is
    told to have been open all the same; but neither what is part of another incident, which is told, nor what was
    `momentary`. Of what has begun again the end is told first, however short it was."""
    found: list[tuple[Incident, State]] = []
    newest = {one.id: one.occurrence for one in sorted(incidents, key=lambda one: one.first_since)}
    for one in sorted(incidents, key=lambda one: (one.since, one.id)):
        before = memory.of(one.occurrence).last
        if one.severity not in severities:
            continue
        if one.silence is not None and not silenced and (one.ended is None or before is None):
            continue
        if before != "open" and not one.tellable(now):
            continue
        if one.ended is None:
            again = before == "open" and _again(one, memory.of(one.occurrence))
            if again and one.previous is not None:
                found.append((one.previous, "over"))
                if not one.tellable(now):
                    continue
            if before != "open" or again:
                found.append((one, "open"))
            elif _worse(one, memory.of(one.occurrence), now):
                found.append((one, "worse"))
            continue
        if before is None and one.ended >= memory.began and not one.absorbed and not one.momentary:
            found.append((one, "open"))
            before = "open"
        settled = one.kind == "violation" or now - one.ended >= SETTLED or newest[one.id] != one.occurrence
        if settled and before == "open":
            found.append((one, "over"))
    return found


def _again(incident: Incident, told: ToldTimes) -> bool:
    """Has it begun again since it was told to be open, while something that came with it went on?"""
    return told.size is not None and told.size.spell < incident.spells


def _worse(incident: Incident, told: ToldTimes, now: datetime) -> bool:
    """Has a violation grown so much since it was told last that whoever was woken by it has to know? Twice the places,
    or ten times the findings; so thirty partitions are five messages at most, a minute apart. That records were lost
    with it is told at once; that inputs were counted twice with it, which mostly comes soon, once in that time."""
    if incident.kind != "violation" or incident.severity != "critical" or told.size is None or told.sized is None:
        return False
    size = size_of(incident)
    if size.losses and not told.size.losses:
        return True
    if now - told.sized < WORSE_AFTER:
        return False
    if size.twice and not told.size.twice:
        return True
    return size.places >= TIMES_PLACES * max(told.size.places, 1) or size.findings >= TIMES_FINDINGS * max(
        told.size.findings, 1
    )


def size_of(incident: Incident) -> Size:
    findings = max(incident.findings - sum(incident.folded.values()), 1)
    return Size(incident.places, findings, incident.spells, bool(incident.losses), REFLECTED in incident.harm)


def told(memory: Memory, incident: Incident, state: State, now: datetime) -> None:
    """Remember that the receiver knows."""
    before = memory.of(incident.occurrence)
    size = size_of(incident)
    if state == "open":
        over = before.over if before.over != now else None  # its spell before that is over
        memory.note(incident.occurrence, ToldTimes(open=now, over=over, size=size, sized=now))
    elif state == "worse":
        memory.note(incident.occurrence, ToldTimes(open=before.open, over=before.over, size=size, sized=now))
    else:
        memory.note(incident.occurrence, ToldTimes(open=before.open, over=now, size=size, sized=now))


def document_id(incident: Incident, state: State) -> str:
    """Of what is told: another one for each spell, and for each size that was worse."""
    spell = f":{incident.spells}" if incident.spells > 1 else ""
    size = size_of(incident)
    harm = f"{':lost' if size.losses else ''}{':twice' if size.twice else ''}"
    grown = f":{size.places}:{size.findings}{harm}" if state == "worse" else ""
    return f"{incident.occurrence}:{state}{spell}{grown}"


class Webhook:
    """One address. `send` posts to it; tests give their own."""

    def __init__(
        self, url: str, config: WebhookConfig, links: Links, *, name: str = "webhook", send: Post | None = None
    ) -> None:
        self.name = name
        self._url = url
        self._config = config
        self._links = links
        self._send = send or self._post

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None:
        for one, state in due(incidents, memory, self._config.severities, now):
            body = json.dumps(document(one, state, self._links), ensure_ascii=False).encode()
            try:
                self._send(self._url, body, self._headers(body, now))
            except Refused as error:
                # What it does not want it will not want later either, and the next must not wait for that.
                _log.error("%s: %s; it is not told of incident %s (%s)", self.name, error, one.id, state)
            told(memory, one, state, now)

    def _headers(self, body: bytes, now: datetime) -> dict[str, str]:
        if self._config.secret is None:
            return {}
        stamp = str(int(now.timestamp()))
        secret = reveal("alerts.webhook.secret", self._config.secret)
        return {TIMESTAMP: stamp, SIGNATURE: f"v1={_signature(secret, stamp, body)}"}

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        context = tls(self._config.ca) if url.startswith("https:") else None
        post(url, body, headers, context, self._config.timeout)


def document(incident: Incident, state: State, links: Links) -> dict[str, Any]:
    """The JSON document."""
    return {
        "version": 1,
        "id": document_id(incident, state),
        "state": state,
        "incident": {
            "id": incident.id,
            "anomaly": incident.anomaly,
            "kind": incident.kind,
            "severity": incident.severity,
            "cluster": incident.cluster,
            "cluster_name": incident.cluster_name or None,
            "topic": incident.topic,
            "since": rfc3339(incident.since, "milliseconds"),
            "until": rfc3339(incident.until, "milliseconds") if incident.until is not None else None,
            "spells": incident.spells,
            "first_since": rfc3339(incident.first_since, "milliseconds"),
            "over_before_s": round(incident.rested.total_seconds(), 3) if incident.rested is not None else None,
            "became": {"anomaly": incident.became.anomaly, "id": incident.became.id} if incident.became else None,
            "subjects": list(incident.subjects),
            "places": incident.places,
            "findings": incident.findings,
            "folded": dict(incident.folded),
            "summary": summary(incident),
            "description": explanation(incident),
            "evidence": exact(incident.evidence),
            **links.of(incident),
        },
    }


def verified(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Is the document ours, and fresh? For receivers written in Python, and as the definition for all others."""
    stamp, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    if not stamp.isascii() or not stamp.isdigit() or abs(now.timestamp() - int(stamp)) > FRESH.total_seconds():
        return False
    return hmac.compare_digest(f"v1={_signature(secret, stamp, body)}".encode(), given.encode())


def _signature(secret: str, stamp: str, body: bytes) -> str:
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
