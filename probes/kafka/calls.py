"""Calls into a client that may not return in time.

Closing a consumer, committing a transaction or initialising one can block for as long as a broker is silent, whatever
timeout they were given. They are made in another thread while the probe goes on saying that it lives; a call
that exceeds its limit is left behind with its thread, and the probe is told that its client is stuck.

`listed` is for answers that are none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from probes.kafka.errors import ClientStuck

T = TypeVar("T")

BEAT: Final = 0.25
"""Seconds between two signs of life while a call is waited for."""


IDLE_FOR: Final = 30.0
"""Seconds after which a thread that nobody needs ends."""

_lock: Final = threading.Lock()
_idle: Final[list[_Helper]] = []


class _Helper:
    """A thread that makes calls, one after the other: to begin one for each call is most of what a call costs."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="calls", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=IDLE_FOR)
            except Empty:
                with _lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
                continue
            job()
            del job  # it holds a client, which may be meant to go


def bounded(call: Callable[[], T], limit: float, beat: Callable[[], None], what: str) -> T:
    """`call()` and its result or its exception; `beat` is called meanwhile, every quarter of a second.

    Raises ClientStuck where it has not returned within `limit` seconds; it goes on in its thread then."""
    outcome: list[Any] = []
    done = threading.Event()
    with _lock:
        helper = _idle.pop() if _idle else _Helper()

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            with _lock:
                _idle.append(helper)
            done.set()

    helper.jobs.put(run)
    waited = 0.0
    while not done.wait(min(BEAT, max(limit - waited, 0.0))):
        waited += BEAT
        if waited >= limit:
            raise ClientStuck(f"{what} has not returned for {limit:g} s", done)
        beat()
    result, error = outcome[0]
    if error is not None:
        raise error
    return cast(T, result)


def listed(future: Future[Any]) -> int:
    """The offset that `list_offsets` was told for one partition. Raises the future's exception, and `_NO_OFFSET` where
    the client reports success with no offset: it does so for partitions that a broker's answer leaves out."""
    offset = int(future.result().offset)
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "the answer leaves the partition out"))
    return offset
