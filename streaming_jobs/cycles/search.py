"""The second job: dependency cycles, searched over windows of the probe log.

A window ends where the log is complete, reaches `window` seconds of log time back, and overlaps the one before it by
half or more: a cycle whose operations completed within half a window is found, however the windows fall. A job that
was away catches up window by window. It needs no Spark, save where GraphFrames divides the graph.

Exactly once: a cycle has one id, whichever window shows it, and what the table `findings` holds is not written again.
The order is pictures (a file each, named by the id), findings, listeners, and last the table `cycle_search`, which
says how far has been searched: after a crash in between the window's findings are in the table, are told again as
replayed, and the search goes on from there. Memory is bounded by the operations of two windows and the ids of the
cycles that `findings` keeps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.arrays.columns import integers
from rules.cycles.components import strongly_connected
from rules.cycles.picture import picture
from rules.cycles.search import NAMES, Components, Found, Limits, search
from rules.settling.completeness import GIVEN_UP
from rules.vocabulary.finding import FINDING_SCHEMA, Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import SECOND
from rules.vocabulary.policy import severity
from rules.vocabulary.times import from_micros
from streaming_jobs.config import JobConfig
from streaming_jobs.cycles.windows import Windows, complete_through, within
from streaming_jobs.errors import JobError
from streaming_jobs.tables.delta_tables import Table
from streaming_jobs.tables.schemas import CYCLE_SEARCH, FINDINGS, SPECS

log = logging.getLogger(__name__)

_APP: Final = "cycles"

_MARKED: Final = 5 * SECOND
"""Committers that are alive have marked every partition within this time: they do so once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One window. `findings` has the columns of `schemas.FINDINGS` and holds what was new; `replayed`: an earlier run
    of the job recorded them. `start` and `end` are log time in microseconds."""

    start: int
    end: int
    findings: pa.Table
    replayed: bool
    operations: int
    seconds: float
    counted: datetime


Listener = Callable[[Searched], None]


class CycleJob:
    """`start` and `stop`, or `run` to search what is there. `components` divides the graph; `engine` names it.

    Listeners are called on the job's thread. Raises `TableError` where a table cannot be opened."""

    def __init__(
        self,
        config: JobConfig,
        listeners: Sequence[Listener] = (),
        *,
        components: Components = strongly_connected,
        engine: str = "memory",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config.cycles
        self._listeners = tuple(listeners)
        self._components, self._engine = components, engine
        self._clock = clock
        self._windows = Windows(config.history_path)
        self._pictures = config.root / "cycles"
        self._findings = Table(config.tables_path, SPECS["findings"])
        self._progress = Table(config.tables_path, SPECS["cycle_search"])
        self._through: int | None = None
        self._known: set[str] = set()
        self._opened = self._caught_up = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def through(self) -> int | None:
        """The log time, in microseconds, up to which cycles have been searched."""
        return self._through

    def start(self) -> None:
        """Search every `every` seconds, in a thread."""
        self._thread = threading.Thread(target=self._keep_on, name="cycles", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the running window. Safe to call twice."""
        self._ending.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def run(self) -> list[Searched]:
        """Search all that is complete by now, window by window."""
        done: list[Searched] = []
        if not self._opened:
            done += self._open()
        while not self._ending.is_set():
            searched = self._next()
            if searched is not None:
                done.append(searched)
            if searched is None or self._caught_up:  # what came meanwhile is not worth another whole window now
                break
        return done

    def _keep_on(self) -> None:
        while not self._ending.wait(self._config.every):
            try:
                self.run()
            except JobError as error:  # told, and tried again: nothing has been passed over
                log.error("%s", error, extra={"said_once": f"cycles: {error}"})
            except Exception:
                log.exception("the search for cycles failed; the window is searched again")

    # Where to go on

    def _open(self) -> list[Searched]:
        """What earlier runs came to; what they recorded and may not have told is told."""
        before = self._progress.read()
        self._through = int(integers(before["through"])[0]) if before.num_rows else None
        rows = self._findings.read()
        rows = rows.filter(pc.is_in(rows["anomaly"], value_set=pa.array(NAMES)))
        self._known = set(rows["id"].to_pylist())
        self._opened = True
        recorded = rows.filter(pc.fill_null(pc.greater(rows["batch"], self._through or -1), False))
        if not recorded.num_rows:
            return []
        # The findings of a window were written, and the job ended before it said that the window was done.
        end = int(pc.max(recorded["batch"]).as_py())
        start, self._through = end - round(self._config.window * SECOND), end
        return [
            self._tell(
                Searched(
                    start=start,
                    end=end,
                    findings=recorded,
                    replayed=True,
                    operations=0,
                    seconds=0.0,
                    counted=self._clock(),
                )
            )
        ]

    def _next(self) -> Searched | None:
        """Search the next window; None where the log is not complete beyond the last one."""
        if not self._windows.refresh():
            return None
        span = self._windows.span(-1 if self._through is None else self._through)
        if span is None:
            return None
        earliest, newest = span
        window = round(self._config.window * SECOND)
        through = earliest - 1 if self._through is None else self._through
        last = through + window // 2
        rows = self._windows.read(through - window, last)
        marks = self._windows.read(newest - _MARKED, newest, ["mark"]) if newest > last else rows.slice(0, 0)
        end = complete_through(pa.concat_tables([rows, marks]), newest)
        if end is None or end <= through:
            if newest - last <= GIVEN_UP:
                return None
            end = last  # what has not come by now is not waited for: it can hide a cycle, and make none
        self._caught_up = end < last
        end = min(end, last)
        if end == last and not within(rows, through + 1, last).num_rows:
            later = self._windows.span(last)  # nothing was logged in there: go on where it begins again
            self._through = max(last, later[0] - 1 if later else last)
            return self._next()
        return self._search(within(rows, end - window, end), end - window, end)

    # One window

    def _search(self, rows: pa.Table, start: int, end: int) -> Searched:
        began = time.monotonic()
        limits = Limits(most=self._config.most)
        found = search(rows, ww=self._config.ww, limits=limits, components=self._components)
        fresh = {f.id: f for f in found.findings if f.id not in self._known}
        seconds = time.monotonic() - began
        now = self._clock()
        for name in found.truncated:
            log.warning("a window had %d cycles %s or more; the first of them are reported", limits.most, name)
        for one in fresh.values():
            self._draw(one)
        recorded = self._rows(list(fresh.values()), end, now)
        self._findings.write(recorded, mode="append", app_id=f"{_APP}:findings", batch=end)
        self._known.update(fresh)
        searched = self._tell(
            Searched(
                start=start,
                end=end,
                findings=recorded,
                replayed=False,
                operations=found.operations,
                seconds=seconds,
                counted=self._clock(),
            )
        )
        self._progress.write(
            self._state(found, start, end, len(fresh), seconds, now),
            mode="overwrite",
            app_id=f"{_APP}:cycle_search",
            batch=end,
        )
        self._through = end
        return searched

    def _tell(self, searched: Searched) -> Searched:
        for listener in self._listeners if searched.findings.num_rows else ():
            try:
                listener(searched)
            except Exception:
                log.exception("a listener failed on the cycles up to %s", from_micros(searched.end))
        return searched

    def _draw(self, one: Finding) -> None:
        """The picture beside the finding. Written anew by a search that comes again, to the same bytes."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        path = self._pictures / f"{one.id}.svg"
        fresh = path.with_suffix(".part")
        fresh.write_text(picture(one.anomaly, one.evidence), encoding="utf-8")
        fresh.replace(path)

    def _rows(self, fresh: list[Finding], end: int, now: datetime) -> pa.Table:
        shown = [replace(one, evidence={**one.evidence, "picture": f"cycles/{one.id}.svg"}) for one in fresh]
        judged = findings_table([(one, severity(one.anomaly, one.context)) for one in shown])
        own = {
            "batch": pa.repeat(pa.scalar(end, pa.int64()), len(fresh)),
            "recorded": pa.repeat(pa.scalar(now, FINDINGS.field("recorded").type), len(fresh)),
        }
        return pa.table(
            [judged[f.name] if f.name in FINDING_SCHEMA.names else own[f.name] for f in FINDINGS], schema=FINDINGS
        )

    def _state(self, found: Found, start: int, end: int, new: int, seconds: float, now: datetime) -> pa.Table:
        row = {
            "through": from_micros(end),
            "window_start": from_micros(max(start, 0)),
            "operations": found.operations,
            "dependencies": found.dependencies,
            "suspects": found.suspects,
            "cycles": new,
            "engine": self._engine,
            "write_write": self._config.ww,
            "search_seconds": seconds,
            "searched": now,
        }
        return pa.Table.from_pylist([row], schema=CYCLE_SEARCH)
