"""`offsetwatch findings`: the current findings, read from the Delta table without Spark.

A person gets a table, the newest first; a program gets one JSON object a line, with the columns of
`streaming_jobs.tables.findings.CURRENT`, `evidence` and `context` as objects, times as RFC 3339 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from alerts.evidence import exact, words
from monitor.errors import UserError
from rules.vocabulary.catalogue import CATALOGUE
from streaming_jobs.tables.findings import current_findings

STYLE: Final = {"critical": "bold red", "warning": "yellow", "info": "cyan", "allowed": "dim"}
KINDS: Final = ("violation", "condition", "classified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What to show; what is empty or None restricts nothing. `since`: the last event's log time is at or after it."""

    anomalies: Sequence[str] = ()
    severities: Sequence[str] = ()
    kinds: Sequence[str] = ()
    states: Sequence[str] = ()
    topic: str | None = None
    partition: int | None = None
    since: datetime | None = None

    def __call__(self, row: Mapping[str, Any]) -> bool:
        return (
            (not self.anomalies or row["anomaly"] in self.anomalies)
            and (not self.severities or row["severity"] in self.severities)
            and (not self.kinds or kind_of(row["anomaly"]) in self.kinds)
            and (not self.states or row["state"] in self.states)
            and (self.topic is None or row["topic"] == self.topic)
            and (self.partition is None or row["partition"] == self.partition)
            and (self.since is None or row["at"] >= self.since)
        )


def kind_of(anomaly: str) -> str:
    """violation, condition or classified; an anomaly that this version does not know counts as a violation."""
    entry = CATALOGUE.get(anomaly)
    return entry.kind if entry is not None else "violation"


def read(tables: Path, wanted: Filter) -> list[dict[str, Any]]:
    """The current findings that pass, the newest first, as rows of `CURRENT`. Raises UserError where no tables are."""
    if not tables.is_dir():
        raise UserError(f"there are no tables in {tables}: give the data folder of a monitor with --data")
    return [row for row in current_findings(tables).to_pylist() if wanted(row)]


def json_line(row: Mapping[str, Any]) -> str:
    """One finding as a JSON object."""
    shown = {name: _plain(value) for name, value in row.items()}
    for name in ("evidence", "context"):
        shown[name] = exact(json.loads(row[name]))
    return json.dumps(shown, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def place(row: Mapping[str, Any]) -> str:
    """topic/partition, or the cluster where it is about no partition."""
    return f"{row['topic']}/{row['partition']}" if row["topic"] else row["cluster"] or "all clusters"


def table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """The findings as a table; each with its message, and its evidence below."""
    shown = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for name in ("last event (UTC)", "severity", "anomaly", "state", "where", "what, and its evidence"):
        shown.add_column(name, no_wrap=name != "what, and its evidence", overflow="fold")
    for row in rows:
        evidence = Text(words(row["anomaly"], json.loads(row["evidence"])), style="dim")
        implied = [Text(f"explained by {row['implied_by']}", style="dim")] if row["implied_by"] else []
        what: RenderableType = Group(Text(row["message"]), evidence, *implied)
        times = f" ×{row['opened']}" if row["opened"] > 1 else ""
        shown.add_row(
            row["at"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
            Text(row["severity"], style=STYLE.get(row["severity"], "")),
            row["anomaly"],
            f"{row['state']}{times}",
            place(row),
            what,
        )
    return shown


def show(rows: Sequence[Mapping[str, Any]], console: Console, *, limit: int) -> None:
    """Print the table of the newest `limit` findings, and how many there are of each kind."""
    if not rows:
        console.print("no findings")
        return
    console.print(table(rows[:limit]))
    violations = sum(kind_of(row["anomaly"]) == "violation" for row in rows)
    still_open = sum(row["state"] == "open" for row in rows)
    rest = f", the newest {limit} are shown (--limit)" if len(rows) > limit else ""
    console.print(
        f"\n{len(rows)} findings: {violations} violations, {still_open} open conditions{rest}", highlight=False
    )
