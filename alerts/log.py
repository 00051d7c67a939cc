"""The structured log: one JSON object a line for each event of a finding.

The fields are stable; a new one may be added, none changes its meaning or goes away:

| field | holds |
|---|---|
| `time` | when it was counted, RFC 3339 in UTC |
| `level` | `error` (critical), `warning`, or `info` (info and allowed) |
| `logger` | always `offsetwatch.finding` |
| `id`, `event` | the finding's identity; `raised`, `opened` or `closed` |
| `anomaly`, `severity` | names of the catalogue and of the policy |
| `cluster`, `topic`, `topic_id`, `partition` | where |
| `message`, `evidence` | one sentence; what a person needs to believe it, an object |
| `at`, `decidable` | log time: when the rule spoke, when the evidence was first enough |
| `detection_latency_seconds` | from `decidable` to `time` |
| `implied_by` | the id of the finding that explains this one, or null |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TextIO

from alerts.event import FindingEvent
from rules.history import from_micros

_LEVEL: Final = {"critical": "error", "warning": "warning", "info": "info", "allowed": "info"}


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(event: FindingEvent) -> str:
    """The event as one JSON line, without its line feed."""
    finding = event.finding
    return json.dumps(
        {
            "time": _time(event.counted),
            "level": _LEVEL[event.severity],
            "logger": "offsetwatch.finding",
            "id": finding.id,
            "event": finding.event,
            "anomaly": finding.anomaly,
            "severity": event.severity,
            "cluster": finding.cluster,
            "topic": finding.topic,
            "topic_id": finding.topic_id,
            "partition": finding.partition,
            "message": finding.message,
            "evidence": dict(finding.evidence),
            "at": _time(from_micros(finding.at)),
            "decidable": _time(from_micros(finding.decidable)),
            "detection_latency_seconds": round(event.latency, 3),
            "implied_by": finding.implied_by,
        },
        ensure_ascii=False,
        default=str,
    )


class LogChannel:
    """Writes the lines to a text stream, flushed at the end of each delivery. The stream stays its owner's."""

    name = "log"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        if events:
            self._stream.write("".join(line(event) + "\n" for event in events))
            self._stream.flush()
