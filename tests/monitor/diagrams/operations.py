"""Rows of the probe log in one line each, as the diagrams are given them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.monitor.rows import NOON

W, V = 7_000_001, 7_000_002
"""Writers."""
R1, R2 = 8_000_001, 8_000_002
"""Readers."""
NAMES = {W: "writer-1", V: "writer-2", R1: "reader-1", R2: "reader-2"}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def _row(f: str, process: int, seconds: float, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "process": process,
        "f": f,
        "type": "ok",
        "error": None,
        "invoked": at(seconds),
        "completed": at(seconds + more.pop("took", 0.1)),
        "sent": None,
        "polled": None,
        "position_before": None,
        "position_after": None,
    }
    return given | more


def run(writer: int, seq: int, offset: int | None, length: int = 1) -> dict[str, Any]:
    return {"writer": writer, "seq": seq, "offset": offset, "length": length}


def send(process: int, seconds: float, *runs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _row(more.pop("f", "send"), process, seconds, sent=list(runs), **more)


def poll(process: int, seconds: float, before: int, after: int, *runs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _row("poll", process, seconds, polled=list(runs), position_before=before, position_after=after, **more)
