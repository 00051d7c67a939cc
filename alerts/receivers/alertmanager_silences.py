"""An Alertmanager that is told of our silences before it is told of incidents.

Alertmanager has silences of its own, and alerts of others: of the rules in deploy/prometheus, which speak of the same
cluster. So what is silenced here is silenced there, and incidents are sent as ever: its own page shows them, they still
stand for what follows from them, and when the silence ends it tells of what is still open.

- A silence of a cluster is one silence there, of this cluster's incidents and of the rules' alerts about it.
- A silence of a topic is one silence there for each incident that it covers, by the incident's id. One that comes to
  concern something else is told of then.

What stands there is compared with what should, once that changes and every `resend` seconds; what somebody ended there
is made again, and what has been ended here is ended there. Where Alertmanager refuses silences, it is told of incidents
all the same: rather somebody is woken.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from alerts.config import AlertmanagerConfig
from alerts.incidents.incident import Incident
from alerts.incidents.silence import Silence
from alerts.receivers.alertmanager import PATH, Alertmanager, headers, request
from alerts.receivers.http import SendFailed
from alerts.receivers.memory import Memory
from rules.vocabulary.times import rfc3339

SILENCES: Final = "/api/v2/silences"
SILENCE: Final = "/api/v2/silence"
OURS: Final = "offsetwatch|offsetwatch-rules"
"""The label `source` of incidents, and of the alerts of deploy/prometheus/rules.yml."""

_COMMENT: Final = re.compile(r"offsetwatch silence ([0-9a-f]+)(:[0-9a-f]+)?: ")
_log: Final = logging.getLogger("offsetwatch.alerts")

Ask = Callable[[str, str, bytes | None], bytes]
"""Method, path and body of a request; its answer."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A silence that Alertmanager should have: what it matches, and whose it is."""

    silence: Silence
    matchers: tuple[tuple[str, str], ...]


class SilencingAlertmanager:
    """One Alertmanager; `silences` gives those of the data folder. `ask` speaks to it; tests give their own."""

    def __init__(
        self,
        alertmanager: Alertmanager,
        url: str,
        config: AlertmanagerConfig,
        silences: Callable[[], Sequence[Silence]],
        ask: Ask | None = None,
    ) -> None:
        self.name = alertmanager.name
        self._alertmanager = alertmanager
        self._base = url.rstrip("/").removesuffix(PATH)
        self._config = config
        self._silences = silences
        self._ask = ask or self._request
        self._kept: Mapping[str, _Wanted] = {}
        self._stood: Mapping[str, _Wanted] | None = {}
        """What was wanted when all of it was done last."""
        self._at: datetime | None = None

    def tell(self, incidents: Sequence[Incident], memory: Memory, now: datetime) -> None:
        ended: list[str] = []
        try:
            ended = self._keep(incidents, now)
        except SendFailed as error:
            self._warn(f"{self.name} was not told of a silence, and may tell of what is silenced: {error}")
        self._alertmanager.tell(incidents, memory, now)
        try:
            for id_ in ended:  # only now: what is over with the silence is over there first
                self._ask("DELETE", f"{SILENCE}/{id_}", None)
            self._stood = self._kept
        except SendFailed as error:
            self._warn(f"{self.name} was not told that a silence is over, and tells nothing of it yet: {error}")

    def _warn(self, said: str) -> None:
        _log.warning("%s", said, extra={"said_once": f"silence-{said}"})

    def _keep(self, incidents: Sequence[Incident], now: datetime) -> list[str]:
        """Make the silences there that should stand; returns the ids of those that should not any more."""
        known = [one for one in self._silences() if one.until > now or now - one.until < _ENDED_LATELY]
        wanted = _wanted([one for one in known if one.active(now)], incidents)
        again = self._at is None or (now - self._at).total_seconds() >= self._config.resend
        if not known or (wanted == self._kept == self._stood and not again):
            self._kept = wanted
            return []
        held = _held(self._ask, self.name, {one.id for one in known})
        for key, one in wanted.items():
            if key not in held:
                self._ask("POST", SILENCES, json.dumps(_document(key, one, now)).encode())
        self._kept, self._at = wanted, now
        return [id_ for key, id_ in held.items() if key not in wanted]

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        return request(self._config, method, self._base + path, body, headers(self._config))


class EndedSilence:
    """A silence of ours that was ended, as one Alertmanager still has it: a monitor that works ends it there within
    seconds."""

    def __init__(self, silence: str, name: str, url: str, config: AlertmanagerConfig) -> None:
        self.name = name
        self._silence = silence
        self._base = url.rstrip("/").removesuffix(PATH)
        self._config = config

    def ids(self) -> list[str]:
        """Alertmanager's ids of it, none where it is over there. Raises SendFailed."""
        return list(_held(self._ask, self.name, {self._silence}).values())

    def end(self) -> None:
        """End it there. Raises SendFailed."""
        for id_ in self.ids():
            self._ask("DELETE", f"{SILENCE}/{id_}", None)

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        return request(self._config, method, self._base + path, body, headers(self._config))


def _held(ask: Ask, name: str, known: set[str]) -> dict[str, str]:
    """Alertmanager's ids of our silences that it has, by their keys. Raises SendFailed."""
    try:
        listed: list[dict[str, Any]] = json.loads(ask("GET", SILENCES, None))
        held = {}
        for one in listed:
            ours = _COMMENT.match(one["comment"])
            if ours is not None and ours[1] in known and one["status"]["state"] != "expired":
                held[f"{ours[1]}{ours[2] or ''}"] = str(one["id"])
    except (ValueError, KeyError, TypeError):
        raise SendFailed(f"{name} lists its silences in a way that is not understood") from None
    return held


_ENDED_LATELY: Final = timedelta(days=1)
"""So long after a silence was ended it is still looked for there: Alertmanager may have been away."""


def _wanted(active: Sequence[Silence], incidents: Sequence[Incident]) -> dict[str, _Wanted]:
    """By their keys the silences that Alertmanager should have now."""
    wanted = {}
    for silence in active:
        if not silence.topic:
            wanted[silence.id] = _Wanted(silence, (("source", OURS), ("cluster", re.escape(silence.cluster))))
            continue
        for one in incidents:
            if one.silence == silence:
                wanted[f"{silence.id}:{one.id}"] = _Wanted(silence, (("source", OURS), ("incident", one.id)))
    return wanted


def _document(key: str, wanted: _Wanted, now: datetime) -> dict[str, Any]:
    silence = wanted.silence
    return {
        "matchers": [
            {"name": name, "value": value, "isRegex": True, "isEqual": True} for name, value in wanted.matchers
        ],
        "startsAt": rfc3339(now, "milliseconds"),
        "endsAt": rfc3339(silence.until, "milliseconds"),
        "createdBy": silence.by or "offsetwatch",
        "comment": f"offsetwatch silence {key}: {silence.because}",
    }
