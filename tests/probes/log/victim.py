"""A fleet of real probes with its committer, to be killed: `python -m tests.probes.log.victim ROOT BOOTSTRAP PREFIX`.

It bears witness beside the journal: what an append was told is written to `ROOT/told` once the append has returned, and
what was opened before it leaves to `ROOT/opened`. SIGTERM ends it in order."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.log.journals.journal import Journal
from probes.running.fleet import Fleet
from rules.vocabulary.slices import Slice


def config(prefix: str) -> ProbesConfig:
    return ProbesConfig.model_validate(
        {
            "topics": {"prefix": prefix, "partitions": 2},
            "writer": {"rate": 400, "partitions_per_batch": 2},
            "reader": {"assign": 1, "group": 1, "restless": 0, "per_broker": False, "commit_interval": 0.5},
            "transaction": {"count": 2, "timeouts": [10, 1], "rate": 5, "partitions": 2},
            "unrest": {"enabled": False},
        }
    )


def gist(row: Slice) -> list[Any]:
    sent, polled = ([list(run) for run in runs] for runs in (row.sent, row.polled))
    return [row.process, row.topic_id, row.partition, row.slice, row.f, row.type, row.op, sent, polled]


def bear_witness(root: Path) -> None:
    """Each line is one write to a file of its own, after or before the journal's: death never cuts both."""
    told, opened = (os.open(root / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("told", "opened"))
    real_append, real_opened = Journal.append, Journal.opened

    def append(self: Journal, rows: Sequence[Slice]) -> None:
        real_append(self, rows)
        os.write(told, orjson.dumps([gist(row) for row in rows]) + b"\n")

    def open_(self: Journal, op: int, rows: Sequence[Slice]) -> None:
        real_opened(self, op, rows)
        os.write(opened, orjson.dumps([gist(row) for row in rows]) + b"\n")

    Journal.append, Journal.opened = append, open_  # type: ignore[method-assign]


def main(root: Path, bootstrap: str, prefix: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    bear_witness(root)
    fleet = Fleet(config(prefix), Connection(bootstrap), root / "journal", SystemClock(), history=root / "history")
    fleet.start()
    print("started", flush=True)
    stop.wait()
    fleet.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
