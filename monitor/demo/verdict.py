"""What a demonstration showed: was what was provoked found, all of it, and was nothing else? Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from alerts.incidents.grouping import kind_of
from monitor.demo.provocation import Provoked

Row = Mapping[str, Any]

JUDGING: Final = ("critical", "warning")
"""The severities of violations that speak against the cluster."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`found`: the provoked duplicates. `implied`: violations that they explain. `others`: violations that nothing
    explains. `conditions`: conditions that opened, whether or not they have closed since."""

    provoked: Provoked | None
    found: Sequence[Row]
    implied: Sequence[Row]
    others: Sequence[Row]
    conditions: Sequence[Row]

    @property
    def complete(self) -> bool:
        """Every value that was written twice was found."""
        return self.provoked is not None and len(self.found) == self.provoked.records

    @property
    def exit_code(self) -> int:
        return 0 if self.complete and not self.others else 1


def verdict(rows: Iterable[Row], provoked: Provoked | None) -> Verdict:
    """`rows`: current findings, as `streaming_jobs.tables.findings.CURRENT` has them."""
    rows = list(rows)
    judged = [row for row in rows if kind_of(row["anomaly"]) == "violation" and row["severity"] in JUDGING]
    found = [row for row in judged if provoked is not None and is_provoked(row, provoked)]
    named = {row["id"] for row in found}
    rest = [row for row in judged if row["id"] not in named]
    implied = [row for row in rest if row["implied_by"] in named]
    return Verdict(
        provoked=provoked,
        found=found,
        implied=implied,
        others=[row for row in rest if row not in implied],
        conditions=[row for row in rows if kind_of(row["anomaly"]) == "condition"],
    )


def is_provoked(row: Row, provoked: Provoked) -> bool:
    """A duplicate of one of the provoked writer's values, in the place where it wrote."""
    if (row["anomaly"], row["topic"], row["partition"]) != ("duplicate", provoked.topic, provoked.partition):
        return False
    evidence = evidence_of(row)
    return evidence.get("writer") == provoked.writer and 0 <= evidence.get("seq", -1) < provoked.records


def evidence_of(row: Row) -> Mapping[str, Any]:
    """The evidence as an object, whether it comes from the table (JSON) or from an event."""
    evidence = row["evidence"]
    found: Mapping[str, Any] = json.loads(evidence) if isinstance(evidence, str) else evidence
    return found


def summary(judged: Verdict, latency: float | None) -> Iterator[str]:
    """What to tell at the end, line by line. `latency`: seconds from the second copy's acknowledgement to the count."""
    if judged.provoked is None:
        yield "provoked: nothing; the demonstration was stopped before its violation"
    else:
        yield f"provoked: {judged.provoked}"
        of = f"{len(judged.found)} of {judged.provoked.records} duplicates"
        took = f", the first {latency:.1f} s after its second copy was acknowledged" if latency is not None else ""
        yield f"found: {of}{took}"
        for row in judged.found[:1]:
            yield f"  {row['severity']} {row['anomaly']} in {row['topic']}/{row['partition']}: {row['message']}"
    for row in judged.implied:
        yield f"explained by it: {row['anomaly']} in {row['topic']}/{row['partition']}: {row['message']}"
    for row in judged.others:
        yield f"NOT PROVOKED: {row['severity']} {row['anomaly']} in {row['topic']}/{row['partition']}: {row['message']}"
    if not judged.others:
        yield "other violations: none"
    if judged.conditions:
        still = sum(row["state"] == "open" for row in judged.conditions)
        names = ", ".join(sorted({row["anomaly"] for row in judged.conditions}))
        yield f"conditions that opened: {len(judged.conditions)} ({names}), {still} still open"
