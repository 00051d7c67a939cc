"""The current findings: what a person is shown of the table of events.

A violation or an observation stands from the moment it was raised. A condition is open or closed by its last event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jobs.location import TableLocation
from streaming_jobs.tables.delta_tables import read_table
from streaming_jobs.tables.schemas import FINDINGS

_TIME: Final = pa.timestamp("us", tz="UTC")


def _own(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"comment": comment})


CURRENT: Final = pa.schema(
    [
        *(f for f in FINDINGS if f.name != "event"),
        _own("state", pa.string(), "raised, open or closed"),
        _own("first_at", _TIME, "log time of its first event"),
        _own("opened", pa.int64(), "how many times it was raised or opened"),
    ]
)
"""One row per finding id: the columns of its last event, and what became of it."""

_STATE: Final = {"raised": "raised", "opened": "open", "closed": "closed"}


def current(events: pa.Table) -> pa.Table:
    """The current findings of a table of events (`schemas.FINDINGS`), `CURRENT`, the newest first.

    An event's identity is (id, event, at): the same one written by two jobs counts once. Of two events at one log time
    the later written stands last, and a close stands after the opening it closes."""
    if not events.num_rows:
        return CURRENT.empty_table()
    frame = events.to_pandas()
    frame["at"] = events["at"].cast(pa.int64()).to_numpy()
    frame["_rank"] = (frame["event"] == "closed").astype("int8")
    frame = frame.sort_values(["id", "at", "_rank", "recorded"], kind="stable")
    frame["_row"] = frame.index
    frame = frame.drop_duplicates(["id", "event", "at"])
    groups = frame.groupby("id", sort=False)
    last = groups["_row"].last().to_numpy()
    first = groups["at"].first().to_numpy()
    opened = (frame["event"] != "closed").groupby(frame["id"], sort=False).sum().to_numpy()
    rows = events.take(pa.array(last))
    table = pa.table(
        [
            *(rows[f.name] for f in CURRENT if f.name in rows.column_names),
            pa.array([_STATE[event] for event in rows["event"].to_pylist()]),
            pa.array(first, pa.int64()).cast(_TIME),
            pa.array(opened, pa.int64()),
        ],
        names=CURRENT.names,
    ).cast(CURRENT)
    return table.take(pc.sort_indices(table, sort_keys=[("at", "descending"), ("id", "ascending")]))


def current_findings(tables: TableLocation, unwritten: Iterable[pa.Table] = ()) -> pa.Table:
    """The current findings of the tables below `tables`; none where there is no table yet. `unwritten`: events that are
    not there yet."""
    return current(pa.concat_tables([read_table(tables, "findings"), *unwritten]))
