"""Which files of a Delta table are put together next: for those who compact tables, the probes and the job.

deltalake's compaction takes every file below a target size and puts neighbours together up to it. What it wrote a
while ago is below the target too, and so it is written again with each compaction until it has that size: many times
as much as is kept, for a canary's probe log. So the target is chosen by what there is, as in a log-structured merge
tree: the least size below which there is little else than what is new. What was put together before is left alone
until as much has come beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

LARGEST: Final = 100 << 20
"""Bytes of a file to which nothing is added."""
LEAST: Final = 1 << 20
_BINS: Final = 8
"""So many files of the target size are written at most."""
_QUIET: Final = 64
"""A partition with no more files than this, as a day that is over, is put together as far as it goes."""


def targets(table: DeltaTable) -> Iterator[tuple[list[tuple[str, str, str]] | None, int]]:
    """The filter of each partition in which anything is to be put together, None for a table without partitions, and
    the target size there, in bytes. Raises deltalake's errors."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = table.metadata().partition_columns
    values = [actions[f"partition.{name}"].to_pylist() for name in columns]
    sizes: dict[tuple[str, ...], list[int]] = {}
    for held, *partition in zip(actions["size_bytes"].to_pylist(), *values, strict=True):
        sizes.setdefault(tuple(map(str, partition)), []).append(held)
    for where, files in sorted(sizes.items()):
        if (size := target(files)) is not None:
            yield [(name, "=", value) for name, value in zip(columns, where, strict=True)] or None, size


def target(sizes: list[int]) -> int | None:
    """The least size of a file below which all others fill no more than some bins of it; None where there is nothing
    to put together. Sizes are bytes."""
    ascending = sorted(size for size in sizes if size < LARGEST)
    if len(ascending) < 2:
        return None
    below = 0
    for size in ascending if len(ascending) > _QUIET else ():
        if size >= LEAST and 0 < below <= _BINS * size:
            return size
        below += size
    return LARGEST if len(ascending) <= _QUIET else min(max(below + 1, LEAST), LARGEST)
