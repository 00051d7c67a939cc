"""Which rows of the probe log can be understood. Whole batches at once: healthy rows cost microseconds.

A row is *rejected* when it breaks what `SLICE_SCHEMA` promises: a required column is absent, a function, outcome or
other name is unknown, a number that counts or places something is negative or more than any log can hold, a run has no
records, a time is none of this or the next century. What a row says about the cluster is never a reason, nor what a
stranger's record says of itself: that is for the rules to judge. A rejected row stops nothing; its slice is missing
from then on, so that its process ends as unverifiable and not as guilty.

The bounds are what the rules are safe within: whatever passes here makes no rule raise.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rules.vocabulary.slices import (
    FUNCTIONS,
    MAX_COUNT,
    OUTCOMES,
    SLICE_SCHEMA,
    Irregularity,
    Isolation,
    Mode,
    RegisterAction,
)

Bools = NDArray[np.bool_]

CHECKED_SCHEMA: Final = pa.schema([f for f in SLICE_SCHEMA if f.name != "date"])
"""What the checks are given: Delta's partition column is of no use to them."""

KEYS: Final = ("cluster", "topic_id", "partition")

_NAMES: Final = {
    "f": FUNCTIONS,
    "type": OUTCOMES,
    "isolation": get_args(Isolation),
    "mode": get_args(Mode),
    "txn_intent": ("commit", "abort"),
}
_OFFSETS: Final = (
    "position_before",
    "position_after",
    "log_start",
    "log_end",
    "last_stable",
    "committed",
    "reached",
    "offset",
)
_COUNTERS: Final = ("op", "slice", "seq", "index", "slices")
_IDS: Final = ("partition", "process", "txn", "writer", "epoch", "mono_invoked", "mono_completed", "mono_end_invoked")
_TIMES: Final = ("invoked", "completed", "end_invoked", "through", "ended")
_STRANGERS: Final = ("writer", "seq", "partition")
"""What an irregular record says of itself: anybody's bytes, told on and compared with nothing."""
_LISTS: Final = ("sent", "polled", "irregular", "altered", "epochs", "marks", "txn_partitions", "sources", "registers")

MAX_OFFSET: Final = 2**48
"""A partition that is given a million records a second comes here after nine years."""
MAX_LENGTH: Final = 2**20
"""Records of one run. No operation moves a million at once, and checking a run costs work for each thousand of them."""
FIRST_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Clocks that were never set begin here."""
LAST_TIME: Final = datetime(2200, 1, 1, tzinfo=UTC)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    flat = column.combine_chunks()
    return pa.concat_arrays(flat.chunks) if isinstance(flat, pa.ChunkedArray) else flat


def _true(mask: Any) -> Bools:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)


def _outside(name: str, values: pa.Array) -> tuple[Bools | None, str]:
    """Which values are none that a column of this name can have, or None where all can (the common case, without a
    mask); and the reason in words."""
    if name == "length":
        return _beyond(values, 1, MAX_LENGTH), "is not a number of records"
    if name in _TIMES:
        return _beyond(values, FIRST_TIME, LAST_TIME), "is no time of these centuries"
    for names, high in ((_OFFSETS, MAX_OFFSET), (_COUNTERS, MAX_COUNT), (_IDS, None)):
        if name in names:
            return _beyond(values, 0, high), "is negative or out of range" if high else "is negative"
    return None, ""


def _beyond(values: pa.Array, low: Any, high: Any) -> Bools | None:
    """Which values are not low .. high; a `high` of None is no bound."""
    if len(values) == values.null_count:
        return None
    found = pc.min_max(values).as_py()
    if found["min"] >= low and (high is None or found["max"] <= high):
        return None
    low, high = pa.scalar(low, values.type), pa.scalar(found["max"] if high is None else high, values.type)
    return _true(pc.or_(pc.less(values, low), pc.greater(values, high)))


class _Reasons:
    """The first reason of each row that has one."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.found: dict[int, str] = {}

    def add(self, mask: Bools | None, reason: str, owner: NDArray[np.int64] | None = None) -> None:
        """`owner` maps the entries of `mask` to rows, where these are list elements."""
        if mask is None or not mask.any():
            return
        rows = np.flatnonzero(mask) if owner is None else owner[mask]
        for row in rows.tolist():
            self.found.setdefault(row, reason)


def _check_elements(name: str, records: pa.StructArray, owner: NDArray[np.int64], reasons: _Reasons) -> None:
    if records.null_count:
        reasons.add(_true(records.is_null()), f"{name} holds an empty element", owner)
    kind = SLICE_SCHEMA.field(name).type.value_type
    for i in range(kind.num_fields):
        inner = kind.field(i)
        values = records.field(inner.name)
        if values.null_count and not inner.nullable:
            reasons.add(_true(values.is_null()), f"{name}.{inner.name} is absent", owner)
        if name != "irregular" or inner.name not in _STRANGERS:
            mask, words = _outside(inner.name, values)
            reasons.add(mask, f"{name}.{inner.name} {words}", owner)
        if inner.name == "status":
            known = pc.is_in(values, value_set=pa.array(get_args(Irregularity)))
            if not pc.all(known).as_py():
                reasons.add(~_true(known), f"{name}.status is unknown", owner)
        elif inner.name == "action":
            known = pc.is_in(values, value_set=pa.array(get_args(RegisterAction)))
            if not pc.all(known).as_py():
                reasons.add(~_true(known), f"{name}.action is unknown", owner)


def _check_settings(column: pa.MapArray, reasons: _Reasons) -> None:
    if column.items.null_count:
        bounds = column.offsets.to_numpy()
        owner = np.repeat(np.arange(len(column)), np.diff(bounds))
        values = column.items.slice(bounds[0], bounds[-1] - bounds[0])
        reasons.add(_true(values.is_null()), "settings holds an empty value", owner)


def reasons_to_reject(slices: pa.Table) -> dict[int, str]:
    """Row number -> reason, for the rows that cannot be understood. The table has `CHECKED_SCHEMA`'s columns."""
    reasons = _Reasons(slices.num_rows)
    if not slices.num_rows:
        return {}
    for field in CHECKED_SCHEMA:
        column = slices[field.name]
        if not field.nullable and column.null_count:
            reasons.add(_true(_flat(column.is_null())), f"{field.name} is absent")
    for name, known in _NAMES.items():
        column = slices[name]
        if column.null_count == len(column):
            continue
        member = pc.is_in(column, value_set=pa.array(known), skip_nulls=True)
        wrong = pc.and_(pc.invert(member), column.is_valid())
        if pc.any(wrong).as_py():
            reasons.add(_true(_flat(wrong)), f"{name} is unknown")
    for name in (*_OFFSETS[:-1], "op", "slice", *_IDS, *_TIMES):
        if name in CHECKED_SCHEMA.names:
            mask, words = _outside(name, _flat(slices[name]))
            reasons.add(mask, f"{name} {words}")
    _check_settings(_flat(slices["settings"]), reasons)
    for name in _LISTS:
        column = slices[name]
        if column.null_count == len(column):
            continue
        lists = _flat(column)
        owner = np.asarray(pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), dtype=np.int64)
        _check_elements(name, pc.list_flatten(lists), owner, reasons)
    return reasons.found
