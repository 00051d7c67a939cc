"""What a channel is given: one event in the life of a finding, judged and timed.

A finding comes from the rules, its severity from the policy. The two waiting times are computed here once, so that the
metrics and the log never disagree about them:

- *detection latency*: from the moment when the evidence was first enough (`Finding.decidable`, log time, which is the
  wall clock of the probes' host) until the event was counted;
- *grace*: how long the rules waited, by their own objective, before absence counted as loss. Only findings that are
  decided on settlement have it. It is kept apart, because it is a promise and no delay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rules.catalogue import CATALOGUE
from rules.finding import Finding
from rules.history import from_micros
from rules.policy import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvent:
    """`counted`: UTC wall clock of the delivery. `grace`: seconds waited before the verdict, None where none is."""

    finding: Finding
    severity: Severity
    counted: datetime
    grace: float | None = None

    @property
    def identity(self) -> tuple[str, str, int]:
        """What makes two deliveries the same event: the finding's id, what happened to it, and when (log time, µs)."""
        return (self.finding.id, self.finding.event, self.finding.at)

    @property
    def latency(self) -> float:
        """Detection latency in seconds; not below 0, where the probes' clock is ahead of this host's."""
        return max(0.0, (self.counted - from_micros(self.finding.decidable)).total_seconds())


def events(judged: Iterable[tuple[Finding, Severity]], counted: datetime, grace: float) -> list[FindingEvent]:
    """The judged findings of a batch as events, counted now; `grace` is the rules' objective in seconds."""
    return [
        FindingEvent(finding=finding, severity=severity, counted=counted, grace=_grace(finding, grace))
        for finding, severity in judged
    ]


def _grace(finding: Finding, grace: float) -> float | None:
    entry = CATALOGUE.get(finding.anomaly)
    return grace if entry is not None and entry.decided == "on settlement" else None
