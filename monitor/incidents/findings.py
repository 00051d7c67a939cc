"""The current findings of a data folder, and which of them are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from alerts.incidents.incident import Names, nameless
from alerts.incidents.judged import JUDGED, kind_of
from alerts.incidents.remade_topics import REMADE
from monitor.errors import UserError
from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import TableError
from streaming_jobs.history.reachable import require_reachable
from streaming_jobs.location import TableLocation, is_table, opened
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.findings import current_findings

_NO_TABLES: Final = "there are no tables in {}: give the data folder of a monitor with --data"


def of_incidents(events: pa.Table) -> pa.Table:
    """Those rows of `findings` that incidents are made of, or that are said with them."""
    judged = pc.is_in(events["severity"], value_set=pa.array(sorted(JUDGED)))
    return events.filter(pc.or_(judged, pc.equal(events["anomaly"], REMADE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What to show; what is empty or None restricts nothing. `cluster`: its id. `since`: the last event is of this
    log time or later; `until`: the first one is of this or earlier."""

    anomalies: Sequence[str] = ()
    severities: Sequence[str] = ()
    kinds: Sequence[str] = ()
    states: Sequence[str] = ()
    cluster: str | None = None
    topics: Sequence[str] = ()
    partition: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __call__(self, row: Mapping[str, Any]) -> bool:
        return (
            (not self.anomalies or row["anomaly"] in self.anomalies)
            and (not self.severities or row["severity"] in self.severities)
            and (not self.kinds or kind_of(row["anomaly"]) in self.kinds)
            and (not self.states or row["state"] in self.states)
            and (self.cluster is None or row["cluster"] == self.cluster)
            and (not self.topics or row["topic"] in self.topics)
            and (self.partition is None or row["partition"] == self.partition)
            and (self.since is None or row["at"] >= self.since)
            and (self.until is None or row["first_at"] <= self.until)
        )


def read(tables: TableLocation, wanted: Filter, names: Names = nameless) -> list[dict[str, Any]]:
    """The current findings that pass, the newest first, as rows of `CURRENT` with the cluster's name. Raises UserError
    where no tables are."""
    return [named(row, names) for row in current_findings(tables_of(tables)).to_pylist() if wanted(row)]


def named(row: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The row with `cluster_name`, None where the cluster has no name."""
    return {**row, "cluster_name": names(row["cluster"]) or None}


def place(row: Mapping[str, Any]) -> str:
    """topic/partition, the topic where it is about several partitions of it, or the cluster where it is about none."""
    name = row.get("cluster_name")
    if not row["topic"]:
        return name or row["cluster"] or "all clusters"
    of = f" of {name}" if name else ""
    return f"{row['topic']}/{row['partition']}{of}" if row["partition"] >= 0 else f"{row['topic']}{of}"


def tables_of(tables: TableLocation) -> TableLocation:
    """Where the tables are. Raises UserError where there are none, and TableError where a store does not let us in."""
    if isinstance(tables, Path) and not tables.is_dir():
        raise UserError(_NO_TABLES.format(tables))
    require_reachable(tables, "The tables")
    try:
        missing = not is_table(tables / "findings") and is_table(tables / "partition_state")
    except (DeltaError, OSError) as error:
        raise TableError(f"The tables at {tables} cannot be read: {in_words(error)}.") from error
    if missing:
        raise UserError(f"the table {tables / 'findings'} is missing: nobody can say what was found")
    return tables


def known_clusters(tables: TableLocation) -> set[str]:
    """The ids of the clusters that the tables tell of."""
    told = (read_table(tables_of(tables), table)["cluster"] for table in ("partition_state", "findings"))
    return {cluster for column in told for cluster in pc.unique(column).to_pylist() if cluster}


def require_topics(tables: TableLocation, history: TableLocation, topics: Collection[str]) -> None:
    """Raises UserError where neither the tables nor the probe log know one of these topics: a name that was mistyped
    must not look like quiet; and where neither is there."""
    if topics and all(isinstance(place, Path) and not place.is_dir() for place in (tables, history)):
        raise UserError(_NO_TABLES.format(tables))
    known: set[str] = set()
    for seen in _topics_seen(tables, history) if topics else ():
        known |= seen
        if known.issuperset(topics):
            return
    if unknown := sorted(set(topics) - known):
        listed = ", ".join(sorted(known)) or "none"
        raise UserError(f"--topic: nothing is known of a topic {', '.join(unknown)}; known are: {listed}")


def _topics_seen(tables: TableLocation, history: TableLocation) -> Iterator[set[str]]:
    """The topics' names, those that are had at once first: of the checks' tables, then of the log, its newest day
    first."""
    for table in ("partition_state", "findings"):
        if not isinstance(tables, Path) or tables.is_dir():
            yield set(pc.unique(read_table(tables, table)["topic"]).to_pylist()) - {""}
    log = opened(history)
    if log is None:
        return
    rows = log.to_pyarrow_dataset()
    for day in sorted({one["date"] for one in log.partitions()}, reverse=True):
        of_day = rows.filter(pc.field("date") == pa.scalar(date.fromisoformat(day)))
        for batch in of_day.to_batches(columns=["topic"]):
            yield set(pc.unique(batch["topic"]).to_pylist())
