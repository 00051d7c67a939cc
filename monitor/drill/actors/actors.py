"""Probes that only drills have: an ordinary workload with one thing different, logged like all others.

They are given to the fleet as `Spec`s, for probes that run as threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from confluent_kafka import TopicPartition

from probes.kafka.errors import Crash, ProbeError
from probes.records.delivery import Fate, collect, fates
from probes.running.supervisor import Spec
from probes.topology import Partition
from probes.workloads.reader import Reader
from probes.workloads.transactional.aborts import Aborts
from probes.workloads.transactional.transaction_course import Course, Outline
from probes.workloads.transactional.transactions import Transactions
from probes.workloads.writer import Writer
from rules.vocabulary.slices import Run


class AlteredWriter(Writer):
    """A writer whose client settings differ by `changes`. Without idempotence it says so."""

    def __init__(self, *args: Any, changes: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._changes = dict(changes)

    def settings(self) -> Mapping[str, str]:
        return {**super().settings(), **self._changes}

    def labels(self) -> dict[str, str]:
        return super().labels() | {"idempotent": self.settings()["enable.idempotence"]}


class HeldReader(Reader):
    """A reader that takes nothing while `held` is set: paused, it drops what was fetched ahead, and polls nothing."""

    def __init__(self, *args: Any, held: threading.Event, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held = held
        self._paused = False

    def poll(self) -> int:
        if self._held.is_set() != self._paused:
            self._paused = self._held.is_set()
            listed = [TopicPartition(*where) for where in self.assigned]
            (self.consumer.pause if self._paused else self.consumer.resume)(listed)
        return super().poll()


class CarelessAborts(Aborts):
    """Goes on after an abort from where its consumer stands, as Kafka's clients do by themselves (KAFKA-17582)."""

    def go_back(self, course: Course) -> None:
        if self.gone:
            super().go_back(course)
        else:
            self.position |= course.after


Ending = Literal["commit", "abort"]
Told = Literal["committed", "aborted"]
HeldEnds = tuple[Literal["commit", "abort", "crash"], Ending]
"""How a held transaction ends, and the one after it. `crash`: its client is abandoned."""
Script = Callable[[int, Sequence[Partition]], Outline]
"""The outline of transaction number n (from 0), given the partitions that there are."""


AGAIN: Final = 60
"""How many polls may pass until everything has come again."""


class ScriptedTransactions(Transactions):
    """Transactions of a script, each batch acknowledged before the next is sent.

    `open_for`: seconds that each transaction but the first stays open after its last record. `gate`: while it is not
    set, only the first transaction is made. Without `polls` it only writes."""

    def __init__(
        self,
        *args: Any,
        script: Script,
        open_for: float = 0.0,
        gate: threading.Event | None = None,
        polls: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._script, self._open_for, self._gate, self._polls = script, open_for, gate, polls
        self._number = 0

    def turn(self) -> None:
        if self._number and self._gate is not None and not self._gate.is_set():
            self.pause(0.2)
            self.log.idle()
            return
        super().turn()

    def transact(self, plan: Outline, *, crash_at: str | None) -> None:
        self._number += 1
        super().transact(self._script(self._number - 1, self.targets), crash_at=None)

    def poll(self, course: Course) -> None:
        handed = [batch for batch in course.batches if batch.queued]
        collect(self.transactor.producer, handed[-1], polls=200, beat=self.log.alive)
        if len(handed) == len(course.batches) and self._number > 1:
            self.pause(self._open_for)
        if self._polls:
            super().poll(course)


def transactional(name: str, kind: type[Transactions], timeout: float = 10.0, **options: Any) -> Spec:
    """A probe of transactions; its transactional id outlives its lives. `timeout`: seconds."""
    usual = {"timeout": timeout, "stable": True, "group": f"drill-{name}"}
    return Spec(name, kind, tuple({**usual, **options}.items()))


def scripted(script: Script, name: str = "transactions-scripted", timeout: float = 10.0, **options: Any) -> Spec:
    """A probe of scripted transactions."""
    return transactional(name, ScriptedTransactions, timeout, script=script, **options)


def held_transactions(
    name: str, hold: Hold, sends: Mapping[int, int], ends: HeldEnds, *, timeout: float = 120.0, last: bool = False
) -> Spec:
    """A probe of transactions that `hold` keeps open. `sends`: how many records go to which partition."""
    return transactional(name, HeldTransactions, timeout, hold=hold, sends=sends, ends=ends, last=last)


def alternating(first: Ending, second: Ending) -> Script:
    """Transactions that end in turn so and so. Each writes to one partition, then to another: two records each."""

    def script(number: int, targets: Sequence[Partition]) -> Outline:
        here, there = targets[number // 2 % 2], targets[1 - number // 2 % 2]
        return Outline(({here: 2}, {there: 2}), (first, second)[number % 2])

    return script


def plain_writer(name: str = "writer-plain", **changes: str) -> Spec:
    """A writer without idempotence."""
    return altered_writer(name, {"enable.idempotence": "false", **changes})


def altered_writer(name: str, changes: Mapping[str, str]) -> Spec:
    """A writer with other client settings."""
    return Spec(name, AlteredWriter, (("changes", dict(changes)),))


def held_reader(number: int, held: threading.Event) -> Spec:
    """A reader in mode assign that `held` stops and lets go."""
    name = f"reader-held-{number}"
    return Spec(name, HeldReader, (("group", f"drill-{name}"), ("held", held)))


def careless_aborts(name: str = "aborts-careless") -> Spec:
    """A probe that aborts and never seeks back."""
    return Spec(name, CarelessAborts, (("group", f"drill-{name}"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A transaction that is held open, or was. `sent`: its records as they were acknowledged. `told`: what its client
    was told in the end, and `at` when; None until then, and where it was told of an error. `then`: what it was told of
    its producer's next transaction, whose marker decides over these records where none of their own was written."""

    transactional_id: str
    txn: int
    sent: Mapping[Partition, tuple[Run, ...]]
    told: Told | None = None
    at: datetime | None = None
    then: Told | Literal["unknown"] | None = None


class Hold:
    """Keeps transactions open: those that begin while it is set stay open with all their records acknowledged, until it
    is released. Used by a drill's thread and the probes'."""

    def __init__(self) -> None:
        self.set = threading.Event()
        self.held: Mapping[str, Held] = {}
        """The last transaction of each probe that was held, by the probe's name."""
        self.open: frozenset[str] = frozenset()
        """The probes that hold one open now."""

    def begun(self, name: str, held: Held) -> None:
        """The probe of that name holds a transaction open now."""
        self.held = {**self.held, name: held}
        self.open |= {name}

    def released(self, name: str) -> None:
        """It is about to end."""
        self.open -= {name}

    def ended(self, name: str, told: Told, at: datetime) -> None:
        """Its client was told so."""
        self.held = {**self.held, name: replace(self.held[name], told=told, at=at)}

    def followed(self, name: str, told: Told | None) -> None:
        """The probe's transaction after the held one is over; None: nobody was told how, or its client is another."""
        held = self.held.get(name)
        if held is not None and held.told is not None and held.then is None:
            self.held = {**self.held, name: replace(held, then=told or "unknown")}

    def holds(self, *names: str) -> bool:
        """Do all of these hold one open?"""
        return self.open >= set(names)

    def over(self, *names: str) -> bool:
        """Were all of these told how theirs ended?"""
        return all(name in self.held and self.held[name].told is not None for name in names)


class HeldTransactions(ScriptedTransactions):
    """Transactions of one and the same batch of records. Those that begin while `hold` is set are kept open; they and
    the ones after them end as `ends` says, all others commit. `last`: there is none after the held one."""

    def __init__(
        self,
        *args: Any,
        hold: Hold,
        sends: Mapping[int, int],
        ends: HeldEnds,
        last: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, script=self._outline, polls=False, **kwargs)
        held, then = ends
        self._hold, self._sends, self._crashes = hold, dict(sends), held == "crash"
        self._ends: tuple[Ending, Ending] = ("commit" if held == "crash" else held, then)
        self._left: list[Ending] = []
        self._holding = self._done = False
        self._course: Course | None = None
        self._last = last
        # A client that begins anew ends what its predecessor left open, by a marker that no transaction of ours wrote.
        hold.followed(self.name, None)

    def turn(self) -> None:
        if self._last and self._done:
            self.pause(0.2)
            return
        super().turn()

    def transact(self, plan: Outline, *, crash_at: str | None) -> None:
        try:
            super().transact(plan, crash_at=crash_at)
        finally:
            course, self._course = self._course, None
            told: Told | None = None
            if course is not None and (course.committed or course.aborted):
                told = "committed" if course.committed else "aborted"
            if not self._holding:
                self._hold.followed(self.name, told)
            elif told is not None:
                self._hold.ended(self.name, told, self.world.clock.now())

    def _outline(self, _: int, targets: Sequence[Partition]) -> Outline:
        self._holding = self._hold.set.is_set() and not self._left
        if self._holding:
            self._left = list(self._ends)
        batch = {targets[partition]: count for partition, count in self._sends.items()}
        return Outline((batch,), self._left.pop(0) if self._left else "commit")

    def poll(self, course: Course) -> None:
        super().poll(course)
        self._course = course
        if not self._holding:
            return
        sent = {where: tuple(run for part in parts for run in part.runs) for where, parts in _fates(course).items()}
        self._hold.begun(self.name, Held(transactional_id=self.transactor.transactional_id, txn=course.txn, sent=sent))
        while self._hold.set.is_set():
            self.pause(0.1)
            self.log.alive()
        self._hold.released(self.name)
        self._done = True
        if self._crashes:
            raise Crash("the client is abandoned with a transaction open")


def _fates(course: Course) -> Mapping[Partition, Sequence[Fate]]:
    """What became of the only batch of a transaction."""
    (batch,) = course.batches
    return fates(batch)


class ClosingReader(Reader):
    """A reader that closes its client when `close` is set; the next life waits until it no longer is."""

    def __init__(self, *args: Any, close: threading.Event, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._close = close

    def turn(self) -> None:
        super().turn()
        if self._close.is_set():
            raise ProbeError("the client is closed on purpose")


class RewindingTransactions(ScriptedTransactions):
    """While `rewind` is set, what was polled in a transaction is polled in it once more, from where it began: positions
    move as in a rebalance. `told`: its rows say that there was one."""

    def __init__(self, *args: Any, rewind: threading.Event, told: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rewind, self._told = rewind, told

    def poll(self, course: Course) -> None:
        super().poll(course)
        first = {where: parts[0].decoded.runs[0].offset for where, parts in course.polled.items()}
        # To the log's very start nobody goes back: an offset of 0 would be a finding of its own.
        begin = {where: at for where, at in first.items() if at}
        if not self._rewind.is_set() or course.rebalanced or not begin:
            return
        course.rebalanced = True
        reached = {where: course.after[where] for where in begin}
        for where, at in begin.items():
            self.consumer.seek(TopicPartition(*where, at))
            course.after[where] = at
        for _ in range(AGAIN):
            super().poll(course)
            if all(course.after[where] >= at for where, at in reached.items()):
                return
        raise ProbeError("what was polled before did not come again")

    def tells(self, course: Course, where: Partition, sent: Sequence[Run]) -> Mapping[str, Any]:
        told = super().tells(course, where, sent)
        return {**told, "rebalanced": course.rebalanced} if self._told else told


def closing_reader(close: threading.Event) -> Spec:
    """A reader that closes its client when told."""
    return Spec("reader-closing", ClosingReader, (("group", "drill-reader-closing"), ("close", close)))


def rewinding(rewind: threading.Event, *, told: bool) -> Spec:
    """A transactional probe whose positions move back when told."""
    script = alternating("commit", "commit")
    return transactional("transactions-rewinding", RewindingTransactions, script=script, rewind=rewind, told=told)
