"""The tables of a monitor as a database: DuckDB over Delta, with views that say what the tables mean.

    with Database(Sources(tables=..., history=...)) as database:
        database.run("select * from incidents")

What is asked reads; nothing that is asked can write a file, read one, load an extension or change that: the files are
opened here, and DuckDB itself is given no access to any. Rows are read as they are needed; a question that takes more
memory than it may is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from alerts.event import recorded
from alerts.incidents.grouping import HOLD, Incidents
from alerts.incidents.incident import Names, nameless
from monitor.errors import UserError
from monitor.incidents.findings import of_incidents
from monitor.postmortem.past import dataset
from rules.vocabulary.slices import SLICE_SCHEMA
from rules.vocabulary.table_errors import in_words
from streaming_jobs.location import TableLocation
from streaming_jobs.tables.findings import current
from streaming_jobs.tables.schemas import FINDINGS, SPECS

T = TypeVar("T")

MEMORY: Final = "2GB"
BATCH: Final = 1_000
TABLES: Final = ("findings", "partition_state", "readers", "transactions", "cycle_search", "rejected")
_TIME: Final = pa.timestamp("us", tz="UTC")
_SIZE: Final = re.compile(r"[0-9]*[1-9][0-9]*(\.[0-9]+)? ?(MB|GB|TB|MiB|GiB|TiB)", re.IGNORECASE)
_CAST: Final = re.compile(r"\$(\w+)::(\w+)")
_KINDS: Final = {"bigint": "whole number", "int": "whole number"}
_COLOURS: Final = re.compile("[\x1b\ufffd]\\[[0-9;]*m")
"""For terminals, by those who opened the file; DuckDB takes the first character for none."""
_VIEW: Final = re.compile(r"((?:^--[^\n]*\n)+)create view (\w+)", re.MULTILINE)
INCIDENTS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "anomaly", "kind", "severity", "state", "cluster", "topic", "place")),
        ("cluster_name", pa.string()),
        ("since", _TIME),
        ("until", _TIME),
        *((name, pa.int64()) for name in ("findings", "places")),
        ("spells", pa.list_(pa.struct([("since", _TIME), ("until", _TIME)]))),
        ("message", pa.string()),
        ("runbook", pa.string()),
    ]
)
_CLIENTS: Final = """
create table clients as
select
    cluster, process, any_value(case when of_cluster.runs > 1 then name || ' of ' || run else name end) as client,
    any_value(kind) as kind, any_value(mode) as mode,
    any_value(isolation) as isolation, any_value(try_cast(writer as bigint)) as writer,
    min(invoked) as started
from (
    select *, settings['name'] as name, settings['writer'] as writer from starts
)
join (select cluster, count(distinct run) as runs from starts group by cluster) of_cluster using (cluster)
group by cluster, process
order by started
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the tables are. `since`, `until`: only operations that completed in between (log time) are read; `topics`:
    only those of these topics, where any is named. `cluster`: the id of the only one that is read, None for all. `at`:
    all tables as they were then. `now`: the machine time by which incidents are open or over."""

    tables: TableLocation
    history: TableLocation
    now: datetime
    since: datetime | None = None
    until: datetime | None = None
    topics: Sequence[str] = ()
    cluster: str | None = None
    at: datetime | None = None
    hold: timedelta = HOLD
    memory: str = MEMORY
    names: Names = nameless


class Rows:
    """The answer to one question, some rows at a time; `columns` are its names."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self.columns: list[str] = [one[0] for one in cursor.description or ()]

    def fetch(self, number: int = BATCH) -> list[tuple[Any, ...]]:
        """The next rows, none at the end. Raises UserError where the question fails on the way."""
        return _translated(lambda: self._cursor.fetchmany(number))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while rows := self.fetch():
            yield from rows


class Database:
    """The database in memory, for one user. Raises UserError where no tables are, or they are not kept that long."""

    def __init__(self, sources: Sources) -> None:
        self.missing: list[str] = []
        """What is not there and has no rows therefore, a sentence each."""
        places = (sources.tables, sources.history)
        if not any(isinstance(place, Path) and place.is_dir() for place in places) and isinstance(sources.tables, Path):
            raise UserError(f"there are no tables in {sources.tables}: give the data folder of a monitor with --data")
        if not _SIZE.fullmatch(sources.memory):
            raise UserError(f"--memory {sources.memory}: this is no size like 500MB or 2GB")
        self._con = duckdb.connect(
            config={
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "temp_directory": "",
                "memory_limit": sources.memory,
            }
        )
        try:
            self._fill(sources)
        except BaseException:
            self._con.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._con.close()

    def _require_kinds(self, question: str, given: Mapping[str, str]) -> None:
        """Raises UserError for a parameter that is not what the question takes it for: to ask takes a while."""
        for name, kind in _CAST.findall(question):
            if name not in given:
                continue  # DuckDB says so
            try:
                self._con.execute(f"select $value::{kind}", {"value": given[name]})
            except duckdb.ConversionException as error:
                raise UserError(f"--param {name}={given[name]}: this is no {_KINDS.get(kind, kind)}") from error

    def run(self, question: str, parameters: Mapping[str, str] | None = None) -> Rows:
        """Ask. Raises UserError with what DuckDB says where it cannot be answered."""
        given = dict(parameters or {})
        if not _translated(lambda: self._con.extract_statements(question)):
            raise UserError("the question is empty: give SQL, or --query with a ready query's name")
        self._require_kinds(question, given)
        return Rows(_translated(lambda: self._con.execute(question, given)))

    def tables(self) -> list[tuple[str, str]]:
        """Every table and view, with a sentence."""
        return list(DESCRIBED.items())

    def _fill(self, sources: Sources) -> None:
        self._con.execute("set TimeZone = 'UTC'")
        # Of what Arrow hands over DuckDB does not know how much it is, and keeps in memory whichever side of a join it
        # guesses to be the smaller one: millions of runs instead of seven values. So it is the last one.
        self._con.execute("set disabled_optimizers = 'build_side_probe_side'")
        history = dataset(sources.history, sources.at)
        if history is None:
            self.missing.append(f"there is no probe log in {sources.history}")
        whole = _of_cluster(history if history is not None else ds.dataset(SLICE_SCHEMA.empty_table()), sources)
        self._con.register("starts", whole.filter(ds.field("f") == "start"))
        self._con.register("history", _wanted(whole, sources))
        tables = {name: self._table(sources, name) for name in TABLES}
        for name, rows in tables.items():
            self._con.register(name, rows)
        events = tables["findings"].to_table().select(FINDINGS.names).cast(FINDINGS)
        self._con.register("current_findings", current(events))
        self._con.register("incidents", self._incidents(sources, events))
        _translated(lambda: self._con.execute(_CLIENTS))
        _translated(lambda: self._con.execute(_text("views.sql")))
        self._con.execute("set lock_configuration = true")

    def _table(self, sources: Sources, name: str) -> ds.Dataset:
        try:
            found = dataset(sources.tables / name, sources.at)
        except UserError as error:
            if sources.at is None:
                raise
            self.missing.append(str(error))
            found = None
        if found is None and name == "findings" and sources.at is None:
            self.missing.append(f"there is no table findings in {sources.tables}: nothing was checked")
        return _of_cluster(found if found is not None else ds.dataset(SPECS[name].schema.empty_table()), sources)

    def _incidents(self, sources: Sources, events: pa.Table) -> pa.Table:
        incidents = Incidents(hold=sources.hold, kept=None, names=sources.names)
        incidents.take(recorded(of_incidents(events).to_pylist()))
        rows = [
            {
                "id": one.id,
                "anomaly": one.anomaly,
                "kind": one.kind,
                "severity": one.severity,
                "state": "open" if one.open else "over",
                "cluster": one.cluster,
                "topic": one.topic,
                "place": one.place,
                "cluster_name": one.cluster_name or None,
                "since": one.since,
                "until": one.until,
                "findings": one.findings,
                "places": one.places,
                "spells": [{"since": since, "until": until} for since, until in one.stretches],
                "message": one.message,
                "runbook": one.runbook,
            }
            for one in incidents.at(sources.now)
        ]
        return pa.Table.from_pylist(rows, schema=INCIDENTS)


def _of_cluster(rows: ds.Dataset, sources: Sources) -> ds.Dataset:
    """The rows of the only cluster that is asked for; a table without clusters is about all of them."""
    if sources.cluster is None or "cluster" not in rows.schema.names:
        return rows
    return rows.filter(ds.field("cluster") == sources.cluster)


def _wanted(rows: ds.Dataset, sources: Sources) -> ds.Dataset:
    """The rows of the topics that completed in between; by the day, too, which is how files are laid out."""
    since, until = sources.since, sources.until
    if sources.topics:
        rows = rows.filter(ds.field("topic").isin(list(sources.topics)))
    if since is not None:
        rows = rows.filter((ds.field("date") >= since.astimezone(UTC).date()) & (ds.field("completed") >= since))
    if until is not None:
        rows = rows.filter((ds.field("date") <= until.astimezone(UTC).date()) & (ds.field("completed") <= until))
    return rows


def _translated(act: Callable[[], T]) -> T:
    try:
        return act()
    except duckdb.OutOfMemoryException as error:
        raise UserError(
            f"the question takes more memory than it may ({str(error).splitlines()[0]}): narrow it with --since and "
            "--until, or give --memory"
        ) from error
    except duckdb.ParserException as error:
        reserved = 'a name that SQL takes for a word of its own, as the column "at", stands in double quotes'
        raise UserError(f"{_line(str(error))} ({reserved})") from error
    except (duckdb.Error, DeltaError, OSError, pa.ArrowException) as error:
        raise UserError(_line(str(error))) from error


def _line(text: str) -> str:
    """DuckDB's complaint on one line, without colours and the drawing of where in the question it is; of what a table
    could not be read for, that."""
    _, _, of_a_table = _COLOURS.sub("", text).partition("Detail: Python exception: ")
    if of_a_table:
        return f"a table cannot be read: {in_words(OSError(of_a_table.partition(': ')[2]))}"
    return " ".join(text.partition("\n\nLINE ")[0].split())


def _text(name: str) -> str:
    return files("monitor.postmortem").joinpath("sql", name).read_text(encoding="utf-8")


def _described() -> dict[str, str]:
    own = {
        "incidents": "One row an incident: what belongs together, open or over. A condition that came back soon is one:"
        " since and until are of its last spell, spells has all of them.",
        "current_findings": "One row a finding: its last event, and what became of it.",
        "clients": "One row a client's life: its name (with its run, where there are several), kind, writer, when it"
        " started.",
    }
    views = {name: " ".join(re.sub(r"^-- ?", "", said, flags=re.MULTILINE).split()) for said, name in _views()}
    raw = {"history": "The probe log as it is: one row a slice."} | {name: SPECS[name].description for name in TABLES}
    return views | own | raw


def _views() -> Sequence[tuple[str, str]]:
    return [(found[1].rpartition("\n\n")[2], found[2]) for found in _VIEW.finditer(_text("views.sql"))]


DESCRIBED: Final = _described()
"""Every table and view by its name, those for people first."""
