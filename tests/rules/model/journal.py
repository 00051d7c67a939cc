"""The probe log that the model's clients write: rows numbered and timed by the hosts' own clocks, and the hosts' marks.

The model has one true time, in seconds. Each host has a boot id, a wall clock that is off by a constant, and a
monotonic clock that began at some time of its own: two hosts agree on nothing that they do not measure. Each host's
committer vouches for its own processes, and holds a process back at its oldest operation that has no row yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from rules.vocabulary.slices import Mark, Slice
from tests.rules.histories import START, number


class Where(NamedTuple):
    """A partition of a topic. The topic's id is its name's first letters: the model never makes a topic twice."""

    topic: str
    partition: int

    @property
    def topic_id(self) -> str:
        return f"id-{self.topic}"


@dataclass(frozen=True)
class Host:
    """`skew`: seconds by which its wall clock is ahead of true time; `booted`: true time of its monotonic zero."""

    name: str
    skew: float
    booted: float

    def wall(self, time: float) -> datetime:
        return START + timedelta(microseconds=round((time + self.skew) * 1e6))

    def mono(self, time: float) -> int:
        return round((time - self.booted) * 1e9)


@dataclass
class Process:
    """One client's life. `pending`: since when an operation of it is under way that has no row yet."""

    name: str
    host: Host
    ops: int = 0
    pending: float | None = None
    free: float = 0.0
    closed: float | None = None
    slices: dict[Where, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def number(self) -> int:
        return number(self.name)


class Journal:
    """Collects the rows of everybody, in the order in which they were written. `time` is the true time."""

    def __init__(self, places: Iterable[Where], hosts: Iterable[Host]) -> None:
        self.rows: list[Slice] = []
        self.time = 1.0
        self.places = tuple(places)
        self.hosts = {host.name: host for host in hosts}
        self.processes: list[Process] = []
        self._committers = {host.name: Process(f"committer-{host.name}", host) for host in self.hosts.values()}

    def born(self, name: str, host: str) -> Process:
        """A new process; its start row comes from its client."""
        process = Process(name, self.hosts[host])
        self.processes.append(process)
        return process

    def write(
        self,
        process: Process,
        f: Any,
        parts: Mapping[Where, Mapping[str, Any]] | None = None,
        *,
        type: Any = "ok",
        invoked: float | None = None,
        completed: float | None = None,
        ended: float | None = None,
        op: int | None = None,
        **common: Any,
    ) -> int:
        """One operation: a row for each partition in `parts` (all of them, without). Times are true times; `ended` is
        when a transaction's end was invoked. Returns the operation's number."""
        invoked = self.time if invoked is None else invoked
        completed = max(invoked, self.time) if completed is None else completed
        host = process.host
        if op is None:
            op = process.ops
        process.ops = max(process.ops, op + 1)
        process.free = max(process.free, completed)
        if ended is not None:
            common |= {"end_invoked": host.wall(ended), "mono_end_invoked": host.mono(ended)}
        for where, part in ({place: {} for place in self.places} if parts is None else parts).items():
            self.rows.append(
                Slice(
                    cluster="c",
                    topic_id=where.topic_id,
                    topic=where.topic,
                    partition=where.partition,
                    run="run",
                    process=process.number,
                    op=op,
                    slice=process.slices[where],
                    f=f,
                    type=type,
                    invoked=host.wall(invoked),
                    completed=host.wall(completed),
                    boot=host.name,
                    mono_invoked=host.mono(invoked),
                    mono_completed=host.mono(completed),
                    **{**common, **part},
                )
            )
            process.slices[where] += 1
        return op

    def mark(self) -> None:
        """Every host's committer vouches for what is there."""
        for host in self.hosts.values():
            own = [p for p in self.processes if p.host is host and (p.closed is None or p.closed > self.time - 5)]
            parts = {
                where: {
                    "marks": [
                        Mark(p.number, p.slices[where], host.wall(self.time if p.pending is None else p.pending))
                        for p in own
                    ]
                }
                for where in self.places
            }
            self.write(self._committers[host.name], "mark", parts, completed=self.time)
