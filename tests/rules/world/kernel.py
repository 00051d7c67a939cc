"""A discrete-event loop: tasks are generators that yield how long they sleep, in microseconds of true time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence

SECOND = 1_000_000

Sleep = Generator[int, None, None]


class Task:
    """One running generator. A killed task never runs again, whatever it was waiting for; from `start` to `end` of
    `pauses` it does not run either, and goes on where it was."""

    __slots__ = ("_pauses", "_sleep", "alive")

    def __init__(self, sleep: Sleep, pauses: Sequence[tuple[int, int]] = ()) -> None:
        self._sleep, self._pauses = sleep, pauses
        self.alive = True

    def paused(self, now: int) -> int:
        """Until when, or 0."""
        return next((end for start, end in self._pauses if start <= now < end), 0)

    def resume(self) -> int | None:
        """Runs to the next sleep; returns its length, or nothing where the task is over."""
        try:
            return next(self._sleep)
        except StopIteration:
            self.alive = False
            return None

    def kill(self) -> None:
        self.alive = False


class Kernel:
    """True time, which no host knows, and what happens at it. Ties run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Task]] = []
        self._serial = 0

    def spawn(self, sleep: Sleep, after: int = 0, pauses: Sequence[tuple[int, int]] = ()) -> Task:
        task = Task(sleep, pauses)
        self._push(self.now + after, task)
        return task

    def at(self, time: int, action: Callable[[], None]) -> None:
        def once() -> Sleep:
            action()
            return
            yield 0

        self.spawn(once(), max(0, time - self.now))

    def run(self, until: int) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, task = heapq.heappop(self._due)
            if until_then := task.paused(self.now) if task.alive else 0:
                self._push(until_then, task)
            elif task.alive:
                slept = task.resume()
                if slept is not None and task.alive:
                    self._push(self.now + max(0, slept), task)
        self.now = until

    def _push(self, time: int, task: Task) -> None:
        self._serial += 1
        heapq.heappush(self._due, (time, self._serial, task))
