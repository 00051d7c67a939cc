"""Which of several monitors is at work on tables in an object store: a lease, kept there by conditional puts.

The lease is a Delta table without rows, beside the others. Each of its commits is put only where there is none of that
number yet, and tells who holds the lease; so of two who try at once the store knows one.

**No two clocks are compared.** Who holds it renews it every `RENEW` seconds, and has it for `HOLD` seconds from the
moment before it asked for the last renewal that came through. Who waits takes it when nothing of it has changed for
`WAIT` seconds of its own clock, which it counts from when it saw the last change. `HOLD` being less than `WAIT`, the
one has stopped writing before the other begins. One that could not renew it, as the store was away, goes on once it
can: that its commit can be put says that nobody has taken the lease meanwhile.

**A commit that is under way is stopped, too** (`fence`): it may reach the store after its sender's lease is over. So
each write of a table bears the term of its lease as a transaction of Delta's, and who takes the lease writes its own
term into every table first: what comes later with an earlier one is refused as a conflict.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from rules.vocabulary.table_errors import in_words
from streaming_jobs.errors import LeaseLost, TableError
from streaming_jobs.location import TableUrl

RENEW: Final = 2.0
HOLD: Final = 9.0
WAIT: Final = 12.0
"""Seconds."""

CLEANED_EVERY: Final = 100
"""Commits."""

_ASKING: Final = {"max_retries": "5", "retry_timeout": "3s", "connect_timeout": "2s", "timeout": "3s"}
"""Storage options: an answer that comes later is of no use."""
_NOTHING: Final = pa.schema([pa.field("nothing", pa.int64())])
_NAME: Final = "lease"
_PROPERTIES: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": f"interval {round(timedelta(minutes=10).total_seconds())} seconds",
    "delta.enableExpiredLogCleanup": "true",
}


def clock() -> float:
    """Seconds that go on while this machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Held:
    """What the newest commit tells. `holder` is one life of a process, "" where the lease is free; `called`: it for
    people; `by`: who put it, by `attempt`; `home`: that of who held it last."""

    version: int
    holder: str = ""
    called: str = ""
    by: str = ""
    attempt: str = ""
    home: str = ""


class Lease:
    """The lease of the tables below one URL, as one monitor sees it. `take` until it is True, then `keep`, then
    `release`; not for several threads at once, but for `require` and `lost`, which anybody may ask.

    Raises `TableError` where the store does not answer."""

    def __init__(self, tables: TableUrl, now: Callable[[], float] = clock, *, home: str = "") -> None:
        """`home`: which monitors it is that go on where each other stood, as those of one checkpoint."""
        self.place = tables / _NAME
        self.term = -1
        """Of two terms the later one is greater."""
        self.holder = uuid.uuid4().hex
        self.home = home
        self.seen: Held | None = None
        """What was there before it was ours."""
        self._called = f"process {os.getpid()} on {socket.gethostname()}"
        self._now = now
        self._table: DeltaTable | None = None
        self._since = 0.0
        self._until = 0.0
        self._version = -1
        self._lost: str | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._complaint = ""
        self._in_vain_since: float | None = None

    def take(self) -> bool:
        """Whether it is ours now: it was free, or nobody has renewed it for `WAIT` seconds of looking."""
        seen = self._look()
        if seen != self.seen:
            self.seen, self._since = seen, self._now()
        if seen.holder and self._now() - self._since < WAIT:
            return False
        asked = self._now()
        if not self._commit(seen.version, self.holder):
            return False
        self.term, self._until = self._version, asked + HOLD
        return True

    def keep(self, on_lost: Callable[[str], None]) -> None:
        """Renew it from now on, in a thread. `on_lost` is called once, in that thread, with the reason as a phrase."""

        def renew() -> None:
            while not self._ending.wait(RENEW):
                self.renew()
                if (why := self.lost) is not None:
                    on_lost(why)
                    return

        self._thread = threading.Thread(target=renew, name="lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Ask for another `HOLD` seconds, once. What the store does not answer is asked again by the next call."""
        asked = self._now()
        try:
            if not self._commit(self._version, self.holder):
                self._lost = f"another monitor ({self._look().called}) has taken the lease in {self.place}"
                return
        except TableError as error:
            self._complaint = str(error).rstrip(".")
            if self._in_vain_since is None:
                self._in_vain_since = self._now()  # and not when it asked: this machine may have slept since
            return
        self._until, self._complaint, self._in_vain_since = max(self._until, asked + HOLD), "", None

    @property
    def lost(self) -> str | None:
        """Who has taken it from us; None where nobody has that we know of."""
        return self._lost

    @property
    def doubtful_for(self) -> float:
        """For how many seconds another monitor may have had it: 0 while it is certainly ours."""
        return max(0.0, self._now() - self._until)

    @property
    def asked_in_vain_for(self) -> float:
        """For how many seconds the store is known not to answer; 0 where it did last, or has not been asked since."""
        return 0.0 if self._in_vain_since is None else self._now() - self._in_vain_since

    def require(self) -> None:
        """Raises `LeaseLost` where another has taken it, and `TableError` where another might have: it was not renewed
        in time, which the next renewal may mend."""
        if self._lost is not None:
            raise LeaseLost(f"{self._lost[:1].upper()}{self._lost[1:]}.")
        if self._now() >= self._until:
            because = f": {self._complaint}" if self._complaint else ""
            raise TableError(f"The lease in {self.place} could not be renewed for {HOLD:g} s{because}.")

    def release(self) -> None:
        """Give it up, so that who waits need not wait. Nothing is said of a store that does not answer."""
        self._ending.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._lost is None and self.term >= 0:
            self._until = 0.0  # from here on nothing is written any more
            try:
                self._commit(self._version, "")
            except TableError:
                return

    def _look(self) -> Held:
        """The newest commit."""
        newest: Held = self._asked(self._newest)
        return newest

    def _newest(self) -> Held:
        if self._table is None:
            self._table = self._opened()
        self._table.update_incremental()
        version = int(self._table.version())
        for line in (self.place / "_delta_log" / f"{version:020d}.json").read_text().splitlines():
            told: dict[str, Any] | None = json.loads(line).get("commitInfo")
            if told is not None:
                return Held(version, *(told.get(name, "") for name in ("holder", "called", "by", "attempt", "home")))
        return Held(version)

    def _opened(self) -> DeltaTable:
        for _ in range(_ATTEMPTS):
            try:
                return DeltaTable.create(
                    str(self.place),
                    _NOTHING,
                    mode="ignore",
                    name=_NAME,
                    description="Which monitor is at work.",
                    configuration=_PROPERTIES,
                    storage_options=dict(_ASKING),
                )
            except CommitFailedError:  # another one created it in this moment, or our answer was lost
                continue
        return DeltaTable(str(self.place), storage_options=dict(_ASKING))

    def _commit(self, after: int, holder: str) -> bool:
        """Put the commit that follows; False where another one was put in its place."""

        def put() -> bool:
            # Where ours is the newest that we have seen, the store refuses the next one if it no longer is.
            if self._table is None or self._table.version() != after:
                newest = self._newest()
                if newest.version != after and newest.by != self.holder:  # else the answer to ours was lost
                    return False
            table = self._table
            assert table is not None
            while True:
                attempt = uuid.uuid4().hex
                told = {"holder": holder, "called": self._called, "by": self.holder, "attempt": attempt}
                properties = CommitProperties(custom_metadata=told | {"home": self.home}, max_commit_retries=0)
                hooks = PostCommitHookProperties(cleanup_expired_logs=table.version() % CLEANED_EVERY == 0)
                try:
                    # Of all commits without rows the one after which the table knows that it is at its version.
                    table.alter.set_table_properties(
                        _PROPERTIES, commit_properties=properties, post_commithook_properties=hooks
                    )
                except CommitFailedError:
                    newest = self._newest()
                    if newest.by != self.holder:
                        return False
                    if newest.attempt != attempt:
                        continue  # nobody has heard of an earlier one of ours: this one follows it
                self._version = table.version()
                return True

        return bool(self._asked(put))

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (DeltaError, OSError) as error:
            raise TableError(f"The lease in {self.place} cannot be asked for: {in_words(error)}.") from error


_ATTEMPTS: Final = 3
