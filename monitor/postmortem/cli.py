"""`offsetwatch sql`, `report` and `export`: their options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from monitor.options import Cluster, ConfigFile, Data, Debug, History, Panels, Topics, loaded_by


class Forms(StrEnum):
    edn = "edn"
    jsonl = "jsonl"


def add_to(app: typer.Typer) -> None:
    """Add the commands to those of the program."""
    for command in (report, sql, export):
        app.command(rich_help_panel=Panels.after)(command)


def sql(  # noqa: PLR0913
    question: Annotated[str | None, typer.Argument(help="SQL, as DuckDB understands it; none: a prompt.")] = None,
    query: Annotated[str | None, typer.Option("--query", help="Run this ready query; --queries lists them.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Of the ready query (repeatable).")
    ] = None,
    queries: Annotated[bool, typer.Option("--queries", help="List the ready queries.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only operations that completed at or after this time: 03:12, 2h (UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only operations that completed by this time.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", help="All tables as they were at this time.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row.")] = False,
    csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="All rows as CSV, for spreadsheets: text that looks like a formula gets an apostrophe."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many rows a table shows.")] = 100,
    cluster: Cluster = None,
    memory: Annotated[str, typer.Option(help="How much memory a question may take.")] = "2GB",
    config: ConfigFile = None,
    data: Data = None,
    history: History = None,
    debug: Debug = False,
) -> None:
    """Ask the tables in SQL, read-only: operations, records, incidents, partitions. --queries lists ready questions."""
    from monitor.postmortem.sql_command import Part, SqlRequest, run

    asked = SqlRequest(
        question=question,
        query=query,
        parameters=param or (),
        queries=queries,
        part=Part(since=since, until=until, cluster=cluster, as_of=as_of, memory=memory),
        form="json" if json else "csv" if csv else "table",
        limit=limit,
    )
    run(asked, loaded_by(config, data), history)


def report(  # noqa: PLR0913
    output: Annotated[Path, typer.Option("--output", "-o", help="The file; - is standard output.")] = Path(
        "report.html"
    ),
    begin: Annotated[
        str | None, typer.Option("--from", "--since", help="From this time on: 03:12, 2h, 2026-11-22T03:12 (UTC).")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", "--until", help="Until this time, written likewise.")] = None,
    topic: Topics = None,
    cluster: Cluster = None,
    config: ConfigFile = None,
    data: Data = None,
    history: History = None,
    debug: Debug = False,
) -> None:
    """One page in one file: what happened, when, to which records, seen by whom. Without times: the newest incident."""
    from monitor.postmortem.report_command import run
    from monitor.postmortem.stretch import Stretch

    run(output, Stretch(begin, end, topic or (), cluster), loaded_by(config, data), history)


def export(  # noqa: PLR0913
    output: Annotated[Path, typer.Argument(help="The file: .edn or .jsonl, also .gz; - is standard output.")],
    since: Annotated[str | None, typer.Option(help="From this time on: 03:12, 2h, 2026-11-22T03:12 (UTC).")] = None,
    until: Annotated[str | None, typer.Option(help="Until this time, written in the same ways.")] = None,
    topic: Topics = None,
    cluster: Cluster = None,
    form: Annotated[Forms | None, typer.Option(help="The form, whatever the file's name says.")] = None,
    config: ConfigFile = None,
    data: Data = None,
    debug: Debug = False,
) -> None:
    """Write a range of the probe log as a history in Jepsen's form, so that another checker can confirm a verdict."""
    from monitor.postmortem.export_command import form_of, run
    from monitor.postmortem.stretch import Stretch

    run(output, form_of(output, form), Stretch(since, until, topic or (), cluster), loaded_by(config, data))
