"""Shows a running demonstration again and again: a live screen on a terminal, new lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from monitor.demo import view
from monitor.demo.view import Snapshot

_LINE_EVERY: Final = 10.0


@contextmanager
def display(snapshot: Callable[[], Snapshot]) -> Iterator[Callable[[], None]]:
    """Something to call again and again: it shows how things stand."""
    console = Console()
    if not console.is_terminal:
        yield _Lines(snapshot)
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:

        def show() -> None:
            size = console.size
            live.update(view.screen(snapshot(), width=size.width, height=size.height), refresh=True)

        yield show


class _Lines:
    """Prints what is new since the last call, and the figures every few seconds."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._step, self._told, self._events, self._due = "", 0, 0, 0.0

    def __call__(self) -> None:
        now = self._snapshot()
        if now.step != self._step:
            self._step = now.step
            _print(view.wrapped_at(now.elapsed, now.step))
        for told in now.told[self._told :]:
            _print(view.wrapped_at(told.elapsed, told.line))
        self._told = len(now.told)
        events = view.worth_telling(now.events)
        for event in events[self._events :]:
            for text in view.event_lines(event):
                _print(text)
        self._events = len(events)
        if now.batches and now.elapsed >= self._due:
            self._due = now.elapsed + _LINE_EVERY
            _print(view.line(now))


def _print(text: str) -> None:
    print(text, flush=True)
