"""Which rows of the probe log can be understood. Whole batches at once: healthy rows cost microseconds.

A row is *rejected* when it breaks what `SLICE_SCHEMA` promises: a required column is absent, a function, outcome or
other name is unknown, a number that counts or places something is negative, a run has no records. What a row says
about the cluster is never a reason: that is for the rules to judge. A rejected row stops nothing; its slice is missing
from then on, so that its process ends as unverifiable and not as guilty.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rules.vocabulary.slices import FUNCTIONS, OUTCOMES, SLICE_SCHEMA, Irregularity, Isolation, Mode, RegisterAction

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
_NATURAL: Final = (
    "partition", "op", "slice", "position_before", "position_after", "log_start", "log_end", "last_stable", "committed",
    "reached",
)  # fmt: skip
_LISTS: Final = ("sent", "polled", "irregular", "altered", "marks", "txn_partitions", "sources", "registers")
_MAX_LENGTH: Final = 2**40
"""No run is longer, and no sequence number higher than 2**62: sums of them stay within int64."""


def _flat(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    flat = column.combine_chunks()
    return pa.concat_arrays(flat.chunks) if isinstance(flat, pa.ChunkedArray) else flat


def _true(mask: Any) -> Bools:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)


def _outside(values: pa.Array, low: int, high: int = 2**62) -> Bools | None:
    """Which values lie outside low .. high, or None where none does (the common case, without a mask)."""
    if len(values) == values.null_count:
        return None
    found = pc.min_max(values).as_py()
    if found["min"] >= low and found["max"] <= high:
        return None
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
        if inner.name in ("seq", "offset", "index", "slices", "partition"):
            reasons.add(_outside(values, 0), f"{name}.{inner.name} is negative or out of range", owner)
        elif inner.name == "length":
            reasons.add(_outside(values, 1, _MAX_LENGTH), f"{name}.length is not a number of records", owner)
        elif inner.name == "status":
            known = pc.is_in(values, value_set=pa.array(get_args(Irregularity)))
            if not pc.all(known).as_py():
                reasons.add(~_true(known), f"{name}.status is unknown", owner)
        elif inner.name == "action":
            known = pc.is_in(values, value_set=pa.array(get_args(RegisterAction)))
            if not pc.all(known).as_py():
                reasons.add(~_true(known), f"{name}.action is unknown", owner)


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
    for name in _NATURAL:
        reasons.add(_outside(_flat(slices[name]), 0), f"{name} is negative or out of range")
    for name in _LISTS:
        column = slices[name]
        if column.null_count == len(column):
            continue
        lists = _flat(column)
        owner = np.asarray(pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), dtype=np.int64)
        _check_elements(name, pc.list_flatten(lists), owner, reasons)
    return reasons.found
