"""A probe in a process of its own: the same supervisor inside, told and asked through a pipe.

The parent restarts a process that died or that says nothing any more. A child whose parent has gone stops in order: it
sees the pipe's end. Signals are the parent's business; the children ignore those that a terminal sends to all. What
they log is the parent's too: it goes through the pipe, to where the parent's own lines go.
"""

from __future__ import annotations

import logging
import multiprocessing as mp
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

from probes.clock import Clock, Going, SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.running.small_process import stay_small
from probes.running.supervisor import FINISH_WITHIN, RANKS, Spec, Supervisor
from probes.topology import Layout
from probes.workloads.probe import Counters, World

log = logging.getLogger("offsetwatch.probe")

REPORT_INTERVAL: Final = 0.5
"""Seconds between two reports of a child."""
BEGINNING: Final = 5
"""So many times as long as one that has reported may be silent, a child may take until its first report: where many
interpreters begin beside each other on a busy machine, whoever ends them makes it worse."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a child process needs to know."""

    spec: Spec
    config: ProbesConfig
    connection: Connection
    run: str
    runs: frozenset[str]
    former_runs: frozenset[str]
    layout: Layout
    journals: Path
    boot: str
    """The fleet's, by whose clock the child's log is timed too."""
    said: tuple[datetime, int]
    """What the fleet's clock said last, and the monotonic clock then."""


class Host:
    """One probe's process, kept running."""

    def __init__(self, errand: Errand, places_changed: Callable[[], None], clock: Clock) -> None:
        self._errand, self._places_changed, self._clock = errand, places_changed, clock
        self._layout = errand.layout
        self.rank = RANKS.get(errand.spec.kind, 1)
        self._counters = Counters(errand.spec.name, errand.spec.kind)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"host-{errand.spec.name}", daemon=True)
        self.pid: int | None = None
        """The child's process number; of the last one where none is running."""

    def start(self) -> None:
        self._thread.start()

    def tell(self, layout: Layout) -> None:
        self._layout = layout

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self, limit: float) -> None:
        self._thread.join(limit)

    def status(self) -> Counters:
        return self._counters

    def _keep(self) -> None:
        context = mp.get_context("spawn")
        config = self._errand.config.supervision
        while not self._stopping.is_set():
            ours, theirs = context.Pipe()
            errand = replace(self._errand, said=self._clock.both())
            process = context.Process(target=_child, args=(errand, self._layout, theirs), daemon=True)
            process.start()
            self.pid = process.pid
            theirs.close()
            try:
                self._attend(process, ours)
            except (EOFError, OSError):
                if not self._stopping.is_set():
                    log.warning("the process of probe %s died", self._errand.spec.name)
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
            ours.close()
            self._stopping.wait(config.backoff)

    def _attend(self, process: Any, pipe: Pipe) -> None:
        """Pass on what there is to say until the child has ended, or is silent for too long."""
        config = self._errand.config.supervision
        told, stop_by, heard, going = self._layout, 0.0, time.monotonic(), Going()
        patience = BEGINNING * config.stuck_after
        while process.is_alive():
            if pipe.poll(REPORT_INTERVAL):
                said, value = pipe.recv()
                heard, patience = time.monotonic(), config.stuck_after
                if said == "counters":
                    self._counters = value
                elif said == "changed":
                    self._places_changed()
                elif said == "logged":
                    _log_here(value)
            if self._layout is not told:
                told = self._layout
                pipe.send(("layout", told))
            now = time.monotonic()
            if self._stopping.is_set() and not stop_by:
                pipe.send(("stop", None))
                stop_by = now + FINISH_WITHIN + config.close_within + 5.0
            going.look()
            if (stop_by and now > stop_by) or going.unheard(heard) > patience:
                log.warning("the process of probe %s does not answer", self._errand.spec.name)
                return


class ProcessSupervisor:
    """Like `Supervisor`, with a process for each probe."""

    def __init__(self, errands: Sequence[Errand], places_changed: Callable[[], None], clock: Clock) -> None:
        self._places_changed, self._clock = places_changed, clock
        self._hosts = [Host(errand, places_changed, clock) for errand in errands]

    def start(self) -> None:
        for host in self._hosts:
            host.start()

    def add(self, errand: Errand) -> None:
        host = Host(errand, self._places_changed, self._clock)
        self._hosts.append(host)
        host.start()

    def tell(self, layout: Layout) -> None:
        for host in self._hosts:
            host.tell(layout)

    def stop(self, ranks: Sequence[int] | None = None) -> None:
        for rank in sorted(set(RANKS.values())) if ranks is None else ranks:
            ending = [host for host in self._hosts if host.rank == rank]
            for host in ending:
                host.ask_to_stop()
            for host in ending:
                host.join(60.0)

    def pids(self) -> dict[str, int]:
        """The process number of each probe, by its name."""
        return {host.status().name: host.pid for host in self._hosts if host.pid is not None}

    def status(self) -> list[Counters]:
        return [host.status() for host in self._hosts]


def _log_here(record: logging.LogRecord) -> None:
    """Log what a child has logged, where its logger here would."""
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _send_logged(logged: queue.SimpleQueue[Any], pipe: Pipe) -> None:
    """Send the parent what has been logged since."""
    while not logged.empty():
        pipe.send(("logged", logged.get()))


def _child(errand: Errand, layout: Layout, pipe: Pipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay_small()
    logged: queue.SimpleQueue[Any] = queue.SimpleQueue()  # a pipe is for one thread
    logging.getLogger("offsetwatch").addHandler(QueueHandler(logged))
    logging.getLogger("offsetwatch").setLevel(logging.INFO)
    present = [layout]
    changed = threading.Event()
    clock = SystemClock(boot=errand.boot)
    clock.follow(*errand.said)
    world = World(
        config=errand.config,
        connection=errand.connection,
        clock=clock,
        run=errand.run,
        runs=errand.runs,
        layout=lambda: present[0],
        places_changed=changed.set,
        strangers=set(errand.former_runs),
    )
    supervisor = Supervisor([errand.spec], world, errand.journals)
    supervisor.start()
    try:
        while True:
            if pipe.poll(REPORT_INTERVAL):
                said, value = pipe.recv()
                if said == "stop":
                    break
                present[0] = value
            if changed.is_set():
                changed.clear()
                pipe.send(("changed", None))
            _send_logged(logged, pipe)
            pipe.send(("counters", supervisor.status()[0]))
    except (EOFError, OSError):
        log.warning("the fleet has gone; probe %s stops", errand.spec.name)
    supervisor.stop()
    try:
        _send_logged(logged, pipe)
        pipe.send(("counters", supervisor.status()[0]))
    except OSError:
        return
