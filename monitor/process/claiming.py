"""Who is at work on the data: one monitor of a data folder, and one of tables in an object store.

A lock of this machine's file system tells those apart that share the data folder; a lease in the store those that share
nothing else (`streaming_jobs.tables.lease`). One that stands by waits for both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from streaming_jobs.checkpoint_claim import claimed
from streaming_jobs.config import JobConfig
from streaming_jobs.errors import CheckpointTaken, TableError
from streaming_jobs.history.handover import Workspace
from streaming_jobs.history.layout import leave
from streaming_jobs.location import TableUrl
from streaming_jobs.tables.delta_tables import close_to_others
from streaming_jobs.tables.fence import fenced
from streaming_jobs.tables.lease import Lease

Say = Callable[[str], None]
T = TypeVar("T")

_ASK_AGAIN: Final = 1.0
"""Seconds between two questions of one that waits."""


class Claim:
    """Makes the data of one configuration this monitor's own, until `ending` ends. `prepare`: of one that stands by, is
    called once when it has nothing more to do than to wait for the lease."""

    def __init__(
        self,
        job: JobConfig,
        say: Say,
        stopping: Event,
        ending: ExitStack,
        *,
        prepare: Callable[[], None] | None,
    ) -> None:
        self._job = job
        self._say = say
        self._stopping = stopping
        self._ending = ending
        self._standby = prepare is not None
        self._prepare = prepare
        self._prepared = False
        self._waits = False
        self.lease: Lease | None = None
        """Of tables in an object store, once they are ours."""

    def __call__(self, on_lost: Callable[[str], None]) -> bool:
        """Whether the data are ours; False where a stop was asked for while another monitor had them.

        Raises `CheckpointTaken` unless it stands by, and `TableError`. `on_lost`: as `Lease.keep`."""
        if not self._locked():
            return False
        tables = self._job.tables_path
        if isinstance(tables, TableUrl):
            lease = Lease(tables, home=self._home())
            if not self._leased(lease):
                return False
            self._ending.enter_context(fenced(tables, lease))
            self._ending.callback(lease.release)
            lease.keep(on_lost)
            self.lease = lease
            self.asked_until_there(lambda: close_to_others(tables))
            self._leave_what_is_old(lease)
        if self._waits:
            self._say("the other monitor has ended: this one takes over")
        return True

    def asked_until_there(self, ask: Callable[[], T]) -> T:
        """What the tables answer. A store that is away is waited for by who stood by, and has taken over: it was there
        a moment ago, and nobody else is at work. Raises `TableError`."""
        waits = False
        while True:
            try:
                return ask()
            except TableError as error:
                over = self._stopping.is_set() or (self.lease is not None and self.lease.lost is not None)
                if not self._standby or over:
                    raise
                if not waits:
                    self._say(f"the tables are asked for again until they are there: {str(error).rstrip('.')}")
                waits = True
                self._stopping.wait(_ASK_AGAIN)

    def _home(self) -> str:
        """Which checkpoint this is, whoever has it: a shared one's URL, or what stands beside one on this disk."""
        if isinstance(self._job.checkpoint_path, TableUrl):
            return str(self._job.checkpoint_path)
        kept = self._job.claim.with_name(f"{self._job.claim.name}.id")
        try:
            return kept.read_text(encoding="utf-8")
        except FileNotFoundError:
            made = uuid.uuid4().hex
            kept.write_text(made, encoding="utf-8")
            return made

    def _leave_what_is_old(self, lease: Lease) -> None:
        """A checkpoint on this disk is behind the tables where another monitor has been at work since, with one of its
        own: state is rebuilt then."""
        checkpoint, before = self._job.checkpoint_path, lease.seen
        if isinstance(checkpoint, Path) and before is not None and before.home not in ("", lease.home):
            Workspace(checkpoint).discard()
            leave(checkpoint)

    def _locked(self) -> bool:
        while True:
            try:
                self._ending.enter_context(claimed(self._job.claim))
                return True
            except CheckpointTaken as taken:
                if not self._standby:
                    raise
                self._wait(str(taken))
            if self._stopping.wait(_ASK_AGAIN):
                return False

    def _leased(self, lease: Lease) -> bool:
        """Until the lease is ours. One that does not stand by waits only for a monitor that may be dead."""
        first = ""
        while True:
            try:
                if lease.take():
                    return True
            except TableError as error:
                if lease.seen is None:
                    raise
                self._wait(str(error))
            seen = lease.seen
            assert seen is not None
            first = first or seen.attempt
            whose = f"another monitor ({seen.called})" if seen.called else "another monitor"
            at_work = f"{whose} is at work on {self._job.tables_path}."
            if not self._standby and seen.attempt != first:
                raise CheckpointTaken(at_work)
            if self._prepare is not None and not self._prepared:
                self._prepared = True
                self._prepare()
            self._wait(at_work if self._standby else f"{at_work[:-1]}, or has died: the lease is asked for again")
            if self._stopping.wait(_ASK_AGAIN):
                return False

    def _wait(self, why: str) -> None:
        if not self._waits:
            self._say(f"standing by: {why}" if self._standby else why)
        self._waits = True
