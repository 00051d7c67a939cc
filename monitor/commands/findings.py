"""`offsetwatch findings`: the current findings, read from the Delta table without Spark.

A person gets what stands (`monitor.commands.overview`), and with --all each finding; a program gets one JSON object a
line, with the columns of `streaming_jobs.tables.findings.CURRENT`, `evidence` and `context` as objects, times as RFC
3339 in UTC, and the id of the finding's incident.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.text import Text

from alerts.event import parsed
from alerts.evidence import exact, words
from monitor.incidents.findings import place
from rules.vocabulary.times import rfc3339

STYLE: Final = {"critical": "bold red", "warning": "yellow", "info": "cyan", "allowed": "dim"}


def json_line(row: Mapping[str, Any], incident: str | None = None) -> str:
    """One finding as a JSON object. `incident`: that of which it is a part; null for what is only counted."""
    shown = {name: _plain(value) for name, value in row.items()} | {"incident": incident}
    for name in ("evidence", "context"):
        shown[name] = exact(parsed(row[name]))
    return json.dumps(shown, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return rfc3339(value) if isinstance(value, datetime) else value


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
        said = words(row["anomaly"], parsed(row["evidence"]))
        yield Text(f"  {said[: 4 * width]}{'…' if len(said) > 4 * width else ''}", style="dim")
