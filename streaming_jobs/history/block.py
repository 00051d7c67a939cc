"""What the source that plans and the tasks that read tell each other: no Spark and no Arrow, so that both may know it.

The one half wants no Arrow, and what only reads tables, as `offsetwatch findings`, no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BUNDLE_DDL: Final = "cluster string, topic_id string, part int, rejected boolean, payload binary"
"""The columns of bundles (`bundles`)."""


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a file, in bytes, whose row groups one task reads; `rows`, where it is known, if it is the whole."""

    path: str
    start: int
    end: int
    rows: int | None
