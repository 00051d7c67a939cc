"""The columns that a row's class makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import pyarrow as pa
import pytest

from rules.vocabulary.row_columns import Int32, columns, items


class Part(NamedTuple):
    number: int
    place: int | None
    partition: Int32 | None = None
    late: bool = False


@dataclass(kw_only=True)
class Row:
    name: str
    outcome: Literal["ok", "fail"]
    at: datetime
    partition: Int32
    parts: Sequence[Part] = ()
    settings: Mapping[str, str] | None = None
    pair: Annotated[tuple[int, int] | None, pa.list_(pa.int64(), 2)] = None


def test_null_may_be_what_may_be_none_or_has_a_default() -> None:
    part = pa.struct(
        [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("place", pa.int64()),
            pa.field("partition", pa.int32()),
            pa.field("late", pa.bool_()),
        ]
    )
    assert pa.schema(columns(Row)) == pa.schema(
        [
            pa.field("name", pa.string(), nullable=False),
            pa.field("outcome", pa.string(), nullable=False),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("parts", pa.list_(part)),
            pa.field("settings", pa.map_(pa.string(), pa.string())),
            pa.field("pair", pa.list_(pa.int64(), 2)),
        ]
    )
    assert items(Row) == {"parts": Part}


class Odd(NamedTuple):
    number: complex


def test_what_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="complex"):
        columns(Odd)
