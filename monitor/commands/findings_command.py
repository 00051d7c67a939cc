"""What `offsetwatch findings` does: the tables are asked once, and what is found is told in one of three forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rich.text import Text

from monitor.commands.findings import json_line, listed
from monitor.commands.overview import lines
from monitor.commands.times import moment
from monitor.config.config import Config
from monitor.config.names import ClusterNames
from monitor.errors import UserError
from monitor.history_files.probe_log import as_tables, located
from monitor.incidents.findings import Filter, known_clusters, read, require_topics
from monitor.incidents.kept_silences import kept_silences
from monitor.incidents.overview import Overview, gather, verdict, with_silences
from monitor.incidents.room import no_room
from monitor.process.program_log import say
from monitor.screen import Screen
from rules.vocabulary.catalogue import CATALOGUE
from streaming_jobs.config import JobConfig
from streaming_jobs.damaged_table_log import empty_commits
from streaming_jobs.history.handover import is_under_way
from streaming_jobs.history.reachable import require_reachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the command line asks for; times as they were written there. Told are `incidents`, or `each` finding, or a
    line of JSON for each."""

    anomalies: Sequence[str]
    severities: Sequence[str]
    kinds: Sequence[str]
    states: Sequence[str]
    topics: Sequence[str]
    partition: int | None
    cluster: str | None
    since: str | None
    until: str | None
    form: Literal["incidents", "each", "json"]
    limit: int

    def filter(self, now: datetime) -> Filter:
        """Raises UserError where there is no such anomaly, or time."""
        for name in self.anomalies:
            if name not in CATALOGUE:
                raise UserError(f"--anomaly: there is no anomaly {name}; known are {', '.join(CATALOGUE)}")
        wanted = Filter(
            anomalies=self.anomalies,
            severities=self.severities,
            kinds=self.kinds,
            states=self.states,
            topics=self.topics,
            partition=self.partition,
            since=moment(self.since, now, "--since") if self.since else None,
            until=moment(self.until, now, "--until") if self.until else None,
        )
        if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
            raise UserError(f"--until {self.until} is before --since {self.since}")
        return wanted


def run(asked: Question, configured: Callable[[], Config], history: str | None) -> None:
    """Answer on standard output. Raises UserError where it cannot; what is asked is looked at first."""
    now = datetime.now(UTC)
    wanted = asked.filter(now)
    config = configured()
    job, names = config.job, ClusterNames(config)
    if asked.topics and history is None:
        require_reachable(job.history_path)
    kept = nullcontext((job.tables_path, now)) if history is None else _judged(history, job)
    with kept as (tables, at):
        if isinstance(tables, Path):
            for commit in empty_commits(tables / "findings"):
                say(f"{commit} is empty: what was told there is not listed, and is looked for when a monitor starts")
        require_topics(tables, (history and located(history)) or job.history_path, asked.topics)
        if asked.cluster is not None:
            wanted = replace(wanted, cluster=names.resolve(asked.cluster, known_clusters(tables)))
        overview, incidents = gather(tables, at, wanted, timedelta(seconds=config.alerts.quiet), names)
        overview = (
            replace(overview, kept=True)
            if history is not None
            else with_silences(
                overview, kept_silences(config), no_room(config), rebuilding=is_under_way(job.rebuild_folder)
            )
        )
        rows = read(tables, wanted, names) if asked.form != "incidents" else []
    if asked.form == "json":
        for row in rows:
            print(json_line(row, (incidents.of(row["id"]) or "").partition("@")[0] or None))
    else:
        _show(asked, overview, rows)


def _show(asked: Question, overview: Overview, rows: Sequence[dict[str, Any]]) -> None:
    console = Screen()
    console.print(Text(verdict(overview)))
    if asked.form == "incidents":
        for line in lines(overview, console.width, limit=asked.limit):
            console.print(line)
        return
    for line in listed(rows[: asked.limit], console.width):
        console.print(line)
    if len(rows) > asked.limit:
        console.print(f"{len(rows)} findings, the newest {asked.limit} are shown (--limit)")


def _judged(history: str, job: JobConfig) -> AbstractContextManager[tuple[Path, datetime]]:
    return as_tables(history, job.objectives.objectives(), say)
