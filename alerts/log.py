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
| `cluster_name` | how the configuration calls the cluster, or null |
| `message`, `evidence` | one sentence; what a person needs to believe it, an object; ids beyond 2^53 are strings |
| `units` | of the fields of `evidence` that are times or spans, what they count, by name |
| `at`, `decidable` | log time: when the rule spoke, when the evidence was first enough |
| `detection_latency_seconds` | from `decidable` to `time` |
| `implied_by` | the id of the finding that explains this one, or null |
| `replayed` | true where an earlier process recorded the event, and may have written this line before it ended |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TextIO

from alerts.event import FindingEvent
from alerts.evidence import exact, units
from alerts.incidents.incident import Names, nameless
from alerts.incidents.judged import judged
from rules.vocabulary.times import rfc3339

_LEVEL: Final = {"critical": "error", "warning": "warning", "info": "info", "allowed": "info"}


def line(event: FindingEvent, cluster_name: str = "") -> str:
    """The event as one JSON line, without its line feed."""
    return json.dumps(
        {
            "time": rfc3339(event.counted, "milliseconds"),
            "level": _LEVEL[event.severity],
            "logger": "offsetwatch.finding",
            "id": event.id,
            "event": event.event,
            "anomaly": event.anomaly,
            "severity": event.severity,
            "cluster": event.cluster,
            "cluster_name": cluster_name or None,
            "topic": event.topic,
            "topic_id": event.topic_id,
            "partition": event.partition,
            "message": event.message,
            "evidence": exact(event.evidence),
            "units": units(event.anomaly, event.evidence),
            "at": rfc3339(event.at, "milliseconds"),
            "decidable": rfc3339(event.decidable, "milliseconds"),
            "detection_latency_seconds": round(event.latency, 3),
            "implied_by": event.implied_by,
            "replayed": event.replayed,
        },
        ensure_ascii=False,
    )


class LogChannel:
    """Writes the lines to a text stream, flushed at the end of each delivery. The stream stays its owner's.

    What is only classified or allowed happens by the minute on a healthy cluster: it is counted, and written only
    with `counted`."""

    name = "log"

    def __init__(self, stream: TextIO, *, counted: bool = False, names: Names = nameless) -> None:
        self._stream = stream
        self._names = names
        self._counted = counted

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        if written := [event for event in events if self._counted or judged(event)]:
            self._stream.write("".join(line(event, self._names(event.cluster)) + "\n" for event in written))
            self._stream.flush()
