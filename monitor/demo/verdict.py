"""What a demonstration showed: was what was provoked found, all of it, and was nothing else? Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from alerts.incidents.judged import kind_of
from monitor.demo.story import Provoked, Row

JUDGING: Final = ("critical", "warning")
"""The severities of violations that speak against the cluster."""
WIDTH: Final = 80
EXPLAINED_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """`found`: findings that had to come. `explained`: violations that they or the same fault explain. `others`:
    violations that nothing explains. `conditions`: conditions that opened, whether or not they have closed since."""

    provoked: Sequence[Provoked]
    found: Sequence[Row]
    explained: Sequence[Row]
    others: Sequence[Row]
    conditions: Sequence[Row]

    @property
    def missing(self) -> list[str]:
        """What was provoked and is not found."""
        return [
            lack for one in self.provoked for lack in one.missing([row for row in self.found if one.is_expected(row)])
        ]

    @property
    def complete(self) -> bool:
        """Something was provoked, and all of it was found."""
        return bool(self.found) and not self.missing

    @property
    def exit_code(self) -> int:
        return 0 if self.complete and not self.others else 1


def verdict(rows: Iterable[Row], provoked: Sequence[Provoked]) -> Verdict:
    """`rows`: current findings, as `streaming_jobs.tables.findings.CURRENT` has them."""
    rows = list(rows)
    judged = [row for row in rows if kind_of(row["anomaly"]) == "violation" and row["severity"] in JUDGING]
    found = [row for row in judged if any(one.is_expected(row) for one in provoked)]
    named = {row["id"] for row in found}
    rest = [row for row in judged if row["id"] not in named]
    explained = [row for row in rest if row["implied_by"] in named or any(one.is_consequence(row) for one in provoked)]
    also = {row["id"] for row in explained}
    return Verdict(
        provoked=provoked,
        found=found,
        explained=explained,
        others=[row for row in rest if row["id"] not in also],
        conditions=[row for row in rows if kind_of(row["anomaly"]) == "condition"],
    )


def summary(judged: Verdict, latency: float | None) -> Iterator[str]:
    """What to tell at the end, line by line, 80 columns wide. `latency`: seconds from what was done to the first count
    of a finding of it."""
    for line in _lines(judged, latency):
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _lines(judged: Verdict, latency: float | None) -> Iterator[str]:
    if not judged.provoked:
        yield "provoked: nothing; the demonstration was stopped before"
    for one in judged.provoked:
        told = iter(one.lines())
        yield f"provoked: {next(told)}"
        yield from (f"  {line}" for line in told)
    if judged.provoked:
        names = Counter(row["anomaly"] for row in judged.found)
        took = f", the first {latency:.1f} s after {judged.provoked[-1].since}" if latency is not None else ""
        yield f"found: {', '.join(f'{count} {name}' for name, count in names.items()) or 'nothing of it'}{took}"
        for name in names:
            yield _told(next(row for row in judged.found if row["anomaly"] == name))
    for lack in judged.missing:
        yield f"NOT FOUND: {lack}"
    if judged.explained:
        names = Counter(row["anomaly"] for row in judged.explained)
        yield (
            "explained by it, in transactions of ordinary probes: "
            + ", ".join(f"{count} {name}" for name, count in names.items())
        )
    for row in judged.others:
        yield f"NOT PROVOKED:{_told(row)[1:]}"
    if not judged.others:
        yield "other violations: none"
    expected = {name for one in judged.provoked for name in one.conditions}
    for words, rows in (
        ("conditions that follow from it", [row for row in judged.conditions if row["anomaly"] in expected]),
        ("other conditions", [row for row in judged.conditions if row["anomaly"] not in expected]),
    ):
        if rows:
            still = sum(row["state"] == "open" for row in rows)
            yield f"{words}: {', '.join(sorted({row['anomaly'] for row in rows}))}; {still} of {len(rows)} still open"


def _told(row: Row) -> str:
    return f"  {row['severity']} {row['anomaly']} in {row['topic']}/{row['partition']}: {row['message']}"
