"""`offsetwatch findings`: the current findings, read from the Delta table without Spark.

A person gets what stands (`monitor.commands.overview`), and with --all each finding; a program gets one JSON object a
line, with the columns of `streaming_jobs.tables.findings.CURRENT`, `evidence` and `context` as objects, times as RFC
3339 in UTC, and the id of the finding's incident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from alerts.evidence import exact, words
from alerts.incidents.grouping import kind_of
from monitor.errors import UserError
from streaming_jobs.tables.findings import current_findings

STYLE: Final = {"critical": "bold red", "warning": "yellow", "info": "cyan", "allowed": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What to show; what is empty or None restricts nothing. `since`: the last event's log time is at or after it;
    `until`: the first one's is at or before it."""

    anomalies: Sequence[str] = ()
    severities: Sequence[str] = ()
    kinds: Sequence[str] = ()
    states: Sequence[str] = ()
    topic: str | None = None
    partition: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __call__(self, row: Mapping[str, Any]) -> bool:
        return (
            (not self.anomalies or row["anomaly"] in self.anomalies)
            and (not self.severities or row["severity"] in self.severities)
            and (not self.kinds or kind_of(row["anomaly"]) in self.kinds)
            and (not self.states or row["state"] in self.states)
            and (self.topic is None or row["topic"] == self.topic)
            and (self.partition is None or row["partition"] == self.partition)
            and (self.since is None or row["at"] >= self.since)
            and (self.until is None or row["first_at"] <= self.until)
        )


def read(tables: Path, wanted: Filter) -> list[dict[str, Any]]:
    """The current findings that pass, the newest first, as rows of `CURRENT`. Raises UserError where no tables are."""
    return [row for row in current_findings(tables_of(tables)).to_pylist() if wanted(row)]


def json_line(row: Mapping[str, Any], incident: str | None = None) -> str:
    """One finding as a JSON object. `incident`: that of which it is a part; null for what is only counted."""
    shown = {name: _plain(value) for name, value in row.items()} | {"incident": incident}
    for name in ("evidence", "context"):
        shown[name] = exact(json.loads(row[name]))
    return json.dumps(shown, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def place(row: Mapping[str, Any]) -> str:
    """topic/partition, or the cluster where it is about no partition."""
    return f"{row['topic']}/{row['partition']}" if row["topic"] else row["cluster"] or "all clusters"


def listed(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[Text]:
    """The findings one by one, two lines each: what happened, and its evidence."""
    for row in rows:
        state = {"open": " open", "closed": " closed"}.get(row["state"], "")
        times = f" ×{row['opened']}" if row["opened"] > 1 else ""
        head = Text(f"{row['id']} {row['at'].astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S')} ")
        head.append(row["severity"], style=STYLE.get(row["severity"], ""))
        head.append(f" {row['anomaly']}", style="bold")
        yield head.append(f"{state}{times} {place(row)}")
        explained = f" (explained by {row['implied_by']})" if row["implied_by"] else ""
        yield Text(f"  {row['message']}{explained}")
        said = words(row["anomaly"], json.loads(row["evidence"]))
        yield Text(f"  {said[: 4 * width]}{'…' if len(said) > 4 * width else ''}", style="dim")


def tables_of(tables: Path) -> Path:
    """The folder of the tables. Raises UserError where there is none."""
    if not tables.is_dir():
        raise UserError(f"there are no tables in {tables}: give the data folder of a monitor with --data")
    return tables
