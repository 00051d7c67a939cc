"""A small history whose every row is known: what was lost, what is indefinite, who skipped.

Partition 3 of topic t: writer-1 sends 0 .. 9 to offsets 100 .. 109; tx-1 sends three records to 110 .. 112 in a
transaction that it is told nothing of. reader-1 is given all of them; reader-2 is given 100 .. 103, goes past 104, and
then skips to 108. Nobody is given 109.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import write_deltalake

from rules.vocabulary.slices import Run, Slice, to_table
from tests.monitor.rows import NOON

WRITER, TRANSACTIONAL, READER, SKIPPER, OBSERVER = 71519, 81515, 50771, 65229, 90001
TXN = 8142398312791225829
S = timedelta(seconds=1)


def row(f: str, process: int, at: float, **more: Any) -> Slice:
    """A row of partition 3 of t, invoked `at` seconds after noon and completed a tenth later."""
    given: dict[str, Any] = {
        "cluster": "c",
        "topic_id": "t-id",
        "topic": "t",
        "partition": 3,
        "run": "r",
        "process": process,
        "op": int(10 * at) + 1_000,
        "slice": int(10 * at) + 1_000,
        "type": "ok",
        "invoked": NOON + at * S,
        "completed": NOON + (at + 0.1) * S,
    }
    return Slice(f=f, **(given | more))  # type: ignore[arg-type]


def start(process: int, name: str, kind: str, partition: int = 3) -> Slice:
    return row("start", process, -60, kind=kind, partition=partition, settings={"name": name, "writer": str(process)})


READ: dict[str, Any] = {"isolation": "read_committed", "mode": "assign"}

STARTS = (
    start(WRITER, "writer-1", "writer"),
    start(WRITER, "writer-1", "writer", partition=4),
    start(TRANSACTIONAL, "transactions-1", "transactions"),
    start(READER, "reader-1", "reader"),
    start(SKIPPER, "reader-2", "reader"),
    start(OBSERVER, "observer", "observer"),
)
OPERATIONS = (
    row("send", WRITER, 0, sent=[Run(WRITER, 0, 100, 10)]),
    row(
        "txn",
        TRANSACTIONAL,
        1,
        type="info",
        error="_TIMED_OUT",
        sent=[Run(TRANSACTIONAL, 0, 110, 3)],
        txn=TXN,
        transactional_id="tx-1",
        txn_intent="commit",
        end_invoked=NOON + 1.05 * S,
        txn_partitions=[("t", 3), ("t", 4)],
    ),
    row(
        "poll",
        READER,
        2,
        polled=[Run(WRITER, 0, 100, 9), Run(TRANSACTIONAL, 0, 110, 3)],
        position_before=100,
        position_after=113,
        **READ,
    ),
    row("poll", SKIPPER, 3, polled=[Run(WRITER, 0, 100, 4)], position_before=100, position_after=105, **READ),
    row("poll", SKIPPER, 4, polled=[Run(WRITER, 8, 108, 1)], position_before=108, position_after=109, **READ),
    row("offsets", OBSERVER, 5, log_start=0, log_end=113, last_stable=113),
    row(
        "offsets",
        OBSERVER,
        6,
        type="info",
        error="_TIMED_OUT",
        settings={"silent": "2", "brokers": "1,2,3", "leader": "2"},
    ),
)


def write(data: Path, *rows: Slice) -> Path:
    """Append the rows to the probe log of a data folder; returns its table."""
    table = data / "tables" / "history"
    write_deltalake(str(table), to_table(rows), partition_by=["date"], mode="append")
    return table
