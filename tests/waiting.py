"""Waiting for what comes in its own time, without taking the processor from whom it is waited for."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator

MOST = 1.0
"""Seconds between two looks, at most."""


def looks(least: float) -> Iterator[None]:
    """One look after another, for a loop that ends when it sees what it waits for: between two there are `least`
    seconds, and three times as long as the last one took. Some read a whole table."""
    while True:
        began = time.monotonic()
        yield
        time.sleep(min(max(least, 3 * (time.monotonic() - began)), MOST))


def first_answer(
    port: int, ask: Callable[[http.client.HTTPConnection], None], within: float = 60.0
) -> tuple[int, bytes]:
    """What a server that has just been started on this machine answers, once it listens: status and body. Raises
    TimeoutError."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        asked = http.client.HTTPConnection("127.0.0.1", port)
        try:
            ask(asked)
            answer = asked.getresponse()
            return answer.status, answer.read()
        except ConnectionError:
            time.sleep(0.2)
        finally:
            asked.close()
    raise TimeoutError(f"nobody answered at port {port} within {within:.0f} s")
