"""How the probe log's numbers are written in Parquet, by whoever writes its files: they are most of what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deltalake import WriterProperties

STEPS: Final = "DELTA_BINARY_PACKED"
BY_STEPS: Final = (
    "op",
    "slice",
    "txn",
    "invoked",
    "completed",
    "mono_invoked",
    "mono_completed",
    "end_invoked",
    "mono_end_invoked",
)
"""Columns whose values hardly ever come again, so that a dictionary of them is as long as they are: differences of
neighbours take two thirds. (Of the numbers in lists they take more: what one reader polled the others poll as well.)
Whoever reads Parquet reads these, Spark too; it would not read BYTE_STREAM_SPLIT, which takes less."""
OF_A_SECOND: Final = ("slice",)
"""Those of the few rows of one append, where the others take a third less as they are, compressed: each value stands
there several times, of each partition that an operation concerns."""


def compacted() -> WriterProperties:
    """How files are written that stay: a tenth smaller than by deltalake's defaults, measured at a canary's rows."""
    from deltalake import ColumnProperties, WriterProperties

    steps = ColumnProperties(dictionary_enabled=False, encoding=STEPS)
    return WriterProperties(compression="ZSTD", compression_level=9, column_properties=dict.fromkeys(BY_STEPS, steps))
