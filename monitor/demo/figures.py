"""What a running demonstration has come to, gathered from the threads of the job and of the story."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from alerts.event import FindingEvent
from monitor.demo.verdict import JUDGING
from monitor.demo.view import Snapshot, StoryLine
from streaming_jobs.checks_stalled import NAME as CHECKS_STALLED

if TYPE_CHECKING:
    from probes.workloads.probe import Counters
    from streaming_jobs.integrity_job import Batch, BatchProgress

_RATE_OVER: Final = 5.0
_LEAST_SPAN: Final = 0.5
_COUNTED: Final = ("sent", "acknowledged", "polled", "errors", "transactions_committed", "transactions_aborted")


class Figures:
    """Counts and lines since the start. `limit`: seconds after which the demonstration stops, 0 for never."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._told: list[StoryLine] = []
        self._states: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._events: list[FindingEvent] = []
        self._allowed = 0
        self._past: deque[tuple[float, int, int, int]] = deque()
        self.step = "starting"
        """What is being done now, for the user."""
        self.cluster = ""
        self.url: str | None = None
        self.progress: BatchProgress | None = None
        self.batches = 0
        self.checking_since = 0.0
        """Seconds from the start to the first batch; 0 before."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def tell(self, line: str, *, found: bool = False) -> None:
        """Add a line to the story. `found`: it is what all of it is about."""
        with self._lock:
            self._told.append(StoryLine(self.elapsed, line, found))

    def on_batch(self, events: Sequence[FindingEvent], batch: Batch) -> None:
        with self._lock:
            self.batches += batch.number is not None
            self.checking_since = self.checking_since or self.elapsed
            for state in batch.states.to_pylist():
                self._states[(state["topic"], state["partition"])] = state
            judging = [event for event in events if event.severity in JUDGING]
            self._events += judging
            self._allowed += len(events) - len(judging)

    def on_stalled(self, event: FindingEvent) -> None:
        with self._lock:
            self._events.append(event)

    def snapshot(self, probes: Sequence[Counters]) -> Snapshot:
        """This moment. Rates are over the last five seconds in which it was called."""
        now = time.monotonic()
        totals = {name: sum(getattr(probe, name) for probe in probes) for name in _COUNTED}
        self._past.append((now, totals["sent"], totals["acknowledged"], totals["polled"]))
        while now - self._past[0][0] > _RATE_OVER:
            self._past.popleft()
        first, span = self._past[0], max(now - self._past[0][0], _LEAST_SPAN)
        rates = [(total - before) / span for total, before in zip(self._past[-1][1:], first[1:], strict=True)]
        with self._lock:
            states, events, told = list(self._states.values()), list(self._events), list(self._told)
        reached = [state["now"] for state in states if state["now"] is not None]
        progress = self.progress
        return Snapshot(
            step=self.step,
            elapsed=self.elapsed,
            limit=self._limit or None,
            cluster=self.cluster,
            url=self.url,
            told=told,
            sent=totals["sent"],
            acknowledged=totals["acknowledged"],
            polled=totals["polled"],
            errors=totals["errors"],
            committed=totals["transactions_committed"],
            aborted=totals["transactions_aborted"],
            sent_rate=rates[0],
            acknowledged_rate=rates[1],
            polled_rate=rates[2],
            states=states,
            checked_until=max(0.0, (datetime.now(UTC) - min(reached)).total_seconds()) if reached else None,
            batches=self.batches,
            batch_seconds=progress.duration if progress else None,
            rows_rate=progress.input_rows_per_second if progress else None,
            events=events,
            allowed=self._allowed,
        )


class Standing:
    """Passes on at once that the checks stand still: no batch can tell of it until they go on."""

    name = "demo"

    def __init__(self, told: Callable[[FindingEvent], None]) -> None:
        self._told = told

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        for event in events:
            if event.anomaly == CHECKS_STALLED and event.event == "opened":
                self._told(event)
