"""A data folder with a lost write in it: its finding and its probe log; names as hostile as a cluster may send them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from deltalake import write_deltalake

from rules.vocabulary.finding import Finding
from rules.vocabulary.slices import Run, Slice, to_table
from tests.monitor.rows import NOON, finding, record

WRITER, READER, OTHER = 7151953739595553680, 5077135658695701636, 6522992166584487490
TXN: Final = 8142398312791225829
EVIL: Final = "<script>document.title='pwned'</script>\"'&<img src=x onerror=document.title='pwned'>"
S: Final = timedelta(seconds=1)


def slice_(f: str, process: int, at: float, **more: Any) -> Slice:
    given: dict[str, Any] = {
        "cluster": "c",
        "topic_id": "t-id",
        "topic": "orders",
        "partition": 3,
        "run": "r",
        "process": process,
        "op": 1,
        "slice": 1,
        "type": "ok",
        "invoked": NOON + at * S,
        "completed": NOON + (at + 0.1) * S,
    }
    return Slice(f=f, **(given | more))  # type: ignore[arg-type]


def lost(**changed: Any) -> Finding:
    """Value 6 of the writer, at offset 101, is lost."""
    evidence = {"writer": WRITER, "seq": 6, "offset": 101, "txn": TXN}
    given: dict[str, Any] = {
        "topic": "orders",
        "evidence": evidence,
        "message": f"value {WRITER}/6 was passed by process {OTHER}",
    }
    return finding("lost-write", (7,), **(given | changed))


def lost_write(data: Path, *, name: str = "transactions-1", topic: str = "orders") -> Finding:
    """Make the folder; returns the finding. `name`: what the writer's probe, its transactional id and its error are
    called."""
    rows = [
        slice_("start", WRITER, -60, kind="writer", settings={"name": name, "writer": str(WRITER)}),
        slice_("start", READER, -60, kind="reader", settings={"name": "reader-1"}),
        slice_("start", OTHER, -60, kind="reader", settings={"name": "reader-2"}),
        slice_(
            "txn",
            WRITER,
            0,
            sent=[Run(WRITER, 5, 100, 4)],
            txn=TXN,
            transactional_id=name,
            txn_intent="commit",
            end_invoked=NOON + 0.05 * S,
            error=name,
        ),
        slice_("poll", READER, 0.2, polled=[Run(WRITER, 5, 100, 4)], position_before=100, position_after=104),
        slice_("poll", OTHER, 0.4, polled=[Run(WRITER, 5, 100, 1)], position_before=100, position_after=104),
    ]
    write_deltalake(str(data / "tables" / "history"), to_table(rows), partition_by=["date"])
    found = lost(topic=topic, message=f"value {WRITER}/6 of {name} was passed by process {OTHER}")
    record(data, found)
    return found
