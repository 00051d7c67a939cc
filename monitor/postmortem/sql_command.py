"""`offsetwatch sql`: one question, a ready query, or a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from rich.console import Console

from alerts.incidents.incident import clock
from monitor.commands.times import between, moment
from monitor.config.config import Config
from monitor.config.names import ClusterNames, chosen
from monitor.errors import UserError
from monitor.history_files.probe_log import as_tables, located
from monitor.incidents.findings import known_clusters
from monitor.postmortem.answer_text import lines, write_csv, write_json
from monitor.postmortem.database import Database, Rows, Sources
from monitor.postmortem.prompt import parameters, talk
from monitor.postmortem.ready_queries import ready_queries, ready_query
from monitor.process.program_log import say
from monitor.screen import harmless
from streaming_jobs.history.reachable import reading, require_reachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Of which part of the tables the command line asks, as written there; `memory`: what a question may take;
    `options`: what the command calls the two times."""

    since: str | None = None
    until: str | None = None
    options: tuple[str, str] = ("--since", "--until")
    cluster: str | None = None
    as_of: str | None = None
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """What the command line asks for; parameters as they were written there."""

    question: str | None
    query: str | None
    parameters: Sequence[str]
    queries: bool
    part: Part
    form: Literal["table", "json", "csv"]
    limit: int


def run(asked: SqlRequest, config: Config, history: str | None) -> None:
    """Answer on standard output. Raises UserError where it cannot."""
    if asked.queries:
        for one in ready_queries().values():
            print(f"{one.usage}\n    {one.about}")
        return
    if asked.question is not None and asked.query is not None:
        raise UserError("give either SQL or --query, not both")
    if asked.parameters and asked.query is None:
        raise UserError("--param is for a ready query: --query names it")
    ready = ready_query(asked.query) if asked.query is not None else None
    given = ready.values(parameters(list(asked.parameters))) if ready is not None else {}
    show = _show(asked)
    with sources(config, history, asked.part) as of, Database(of) as database:
        for sentence in database.missing:
            print(f"offsetwatch: {sentence}", file=sys.stderr)
        text = ready.text if ready is not None else asked.question
        if text is not None:
            show(database.run(text, given))
        else:
            talk(database, show)


def _show(asked: SqlRequest) -> Callable[[Rows], None]:
    if asked.form != "table":
        return write_json if asked.form == "json" else write_csv
    width = Console().width

    def show(rows: Rows) -> None:
        for line in lines(rows, width, asked.limit):
            print(harmless(line))

    return show


@contextmanager
def sources(config: Config, history: str | None, part: Part) -> Iterator[Sources]:
    """Where the tables are: the monitor's, or, for as long as the context lasts, those that a kept probe log gives."""
    now = datetime.now(UTC)
    at = moment(part.as_of, now, "--as-of") if part.as_of is not None else None
    if at is not None and at > now:
        raise UserError(f"--as-of: {part.as_of} is yet to come, it is {clock(now)} now")
    first, last = between(part.since, part.until, now, part.options)
    job, hold, names = config.job, timedelta(seconds=config.alerts.quiet), ClusterNames(config)
    if history is None:
        require_reachable(job.tables_path, "The tables")
        with reading(job.history_path):
            yield Sources(
                tables=job.tables_path,
                history=job.history_path,
                now=at or now,
                since=first,
                until=last,
                at=at,
                hold=hold,
                memory=part.memory,
                names=names,
                cluster=chosen(config, known_clusters(job.tables_path), part.cluster),
            )
        return
    if at is not None:
        raise UserError("--as-of is for the tables of a monitor, and not for --history")
    with as_tables(history, job.objectives.objectives(), say) as (tables, end):
        log = located(history)
        assert log is not None
        yield Sources(
            tables=tables,
            history=log,
            now=end,
            since=first,
            until=last,
            hold=hold,
            memory=part.memory,
            names=names,
            cluster=chosen(config, known_clusters(tables), part.cluster),
        )
