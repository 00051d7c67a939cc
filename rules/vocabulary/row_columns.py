"""The columns of a table, made of the annotations of a row's class: what a row may say is declared once.

A column may be null where the field may be None, or has a default (as a field that came later). Numbers have 64 bits,
or those that an annotation names (`Int32`).
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import pyarrow as pa

Int32 = Annotated[int, pa.int32()]
"""A number that a table keeps in 32 bits."""

_PLAIN: Final[Mapping[type, pa.DataType]] = {
    int: pa.int64(),
    str: pa.string(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def columns(row: type) -> list[pa.Field]:
    """The columns of rows of this dataclass or NamedTuple, in its order. Raises TypeError where none can hold a
    field."""
    hints = get_type_hints(row, include_extras=True)
    if is_dataclass(row):
        absent = {f.name for f in fields(row) if f.default is not MISSING}
    else:
        absent = {*getattr(row, "_field_defaults", ())}
    return [pa.field(name, _kind(hint), name in absent or NoneType in get_args(hint)) for name, hint in hints.items()]


def items(row: type) -> dict[str, Any]:
    """What is listed by those fields of a row that are sequences."""
    hints = get_type_hints(row)
    return {name: get_args(hint)[0] for name, hint in hints.items() if get_origin(hint) is abc.Sequence}


def _kind(hint: Any) -> pa.DataType:
    """The type of a column, whether or not it may be null."""
    origin, parts = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is Annotated:
        return parts[1]
    if origin is Literal:
        return pa.string()
    if origin is abc.Sequence:
        return pa.list_(_kind(parts[0]))
    if origin is abc.Mapping:
        return pa.map_(*map(_kind, parts))
    if origin is not None and len(parts) == 1:  # or None
        return _kind(parts[0])
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return pa.struct(columns(hint))
    raise TypeError(f"no column holds {hint}")
