"""`offsetwatch drill run`: the chosen drills one after the other, with progress, a closing table and a report."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from monitor.drill.definition.drill import Drill
from monitor.drill.definition.graded import Graded
from monitor.drill.errors import DrillStopped
from monitor.drill.reporting import report
from monitor.drill.running.session import Options, Result, Session, Staging, in_order_of_clusters
from monitor.errors import VIOLATION, UserError
from monitor.process.program_log import configure
from monitor.process.signals import stop_on_signal

if TYPE_CHECKING:
    from monitor.config.config import Config

ROOT: Final = Path(".offsetwatch")
INTERRUPTED: Final = 130
PLAIN_WIDTH: Final = 160
"""Columns of the table where it is not shown on a terminal."""


def run(
    drills: Sequence[Drill],
    *,
    into: Path | None = None,
    against: Config | None = None,
    seed: int = 0,
    keep: bool = False,
    debug: bool = False,
) -> int:
    """Run the drills, print what came of them, write the report into `into` if it is given; the exit code.

    `against`: the configured cluster instead of local ones. Raises UserError where that, or the report's folder, cannot
    be used."""
    folder = ROOT / f"drills-{time.strftime('%Y%m%d-%H%M%S')}"
    configure(debug=debug, file=folder / "logs" / "drills.log", quiet=True)
    staging = _staging(against, drills) if against is not None else None
    options = Options(seed=seed, keep=keep, against=staging)
    if into is not None:
        report.write([], into)  # a folder that cannot be used is said now, not in half an hour
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    results: dict[str, Result] = {}
    with stop_on_signal() as stop, _Progress(console, len(drills)) as progress:
        session = Session(folder, say=progress.step, stop=stop, options=options, on_found=progress.found)
        try:
            for drill in in_order_of_clusters(drills):
                progress.begin(drill)
                results[drill.title] = session.run(drill)
                progress.end(results[drill.title])
        except DrillStopped:
            pass
        finally:
            session.close()
    done = [results[drill.title] for drill in drills if drill.title in results]
    console.print(report.table(done))
    console.print(str(report.numbers(done)))
    if into is not None:
        content, page = report.write(done, into)
        console.print(f"the report is in {page} and {content}", soft_wrap=True)
    for result in done:
        if result.history is not None:
            console.print(f"the history of {result.drill.title} is kept in {result.history}", soft_wrap=True)
    if not any(result.history for result in done):
        shutil.rmtree(folder, ignore_errors=True)
    if len(done) < len(drills):
        return INTERRUPTED
    return VIOLATION if report.numbers(done).failed else 0


def _staging(config: Config, drills: Sequence[Drill]) -> Staging:
    """The configured cluster, if it can be reached and the drills leave it alone."""
    from monitor.process.reach import connection, reach

    for drill in drills:
        if drill.changes_cluster:
            raise UserError(
                f"the drill {drill.title} does something to brokers or settings: it runs only on its own cluster"
            )
    reached = connection(config)
    if any(drill.play().lies() for drill in drills):
        from monitor.drill.proxy import CannotConnect, upstream

        try:
            upstream(reached.security, reached.token)
        except CannotConnect as error:
            raise UserError(f"{config.named('cluster.security')}: {error}") from None
    return Staging(reached, len(reach(config).brokers))


class _Progress:
    """Shows where the drills are: a line that changes on a terminal, lines that follow each other elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total = console, total
        self._number, self._title, self._step = 0, "", ""
        self._began = time.monotonic()
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> _Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._line, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, drill: Drill) -> None:
        with self._lock:
            self._number += 1
            self._title, self._step, self._counts = drill.title, "", {}
            self._began = time.monotonic()

    def step(self, said: str) -> None:
        self._step = said
        if self._live is None:
            print(f"{self._title:<28} {time.monotonic() - self._began:5.1f} s  {said}", flush=True)

    def found(self, one: Graded) -> None:
        with self._lock:
            if one.finding.event == "closed":
                return
            first = one.name not in self._counts
            self._counts[one.name] = self._counts.get(one.name, 0) + 1
        if first:
            self.step(f"found {one.name} ({one.severity}): {one.finding.message}")

    def end(self, result: Result) -> None:
        line = f"[{self._number}/{self._total}] {result.drill.title}: {result.verdict} ({result.seconds:.0f} s)"
        self._console.print(line, style=report.colour(result), highlight=False, soft_wrap=True)

    def _line(self) -> Text:
        with self._lock:
            counts = ", ".join(f"{name} {n}" for name, n in self._counts.items())
        seconds = time.monotonic() - self._began
        text = f"[{self._number}/{self._total}] {self._title}  {seconds:.0f} s  {self._step}"
        return Text(text + (f"  [{counts}]" if counts else ""), overflow="ellipsis", no_wrap=True)
