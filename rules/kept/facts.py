"""The facts of one step and partition, gathered as columns: what stage 2 (`rules.across.resolution`) will join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rules.arrays.columns import Runs
from rules.arrays.intervals import Ints
from rules.vocabulary.finding import FACT_SCHEMA, FactKind
from rules.vocabulary.slices import Place

_OUTCOMES: Final = np.array(["ok", "fail", "info"], dtype=object)
_NONE: Final = FACT_SCHEMA.empty_table()
_COLUMNS: Final = tuple(name for name in FACT_SCHEMA.names if name not in ("cluster", "topic_id", "topic", "partition"))


class Transactions(NamedTuple):
    """The transaction of each fact, by its id, and what became of it: codes of `rules.arrays.columns`."""

    txn: Ints
    outcome: Ints


class Facts:
    """Gathers facts in the order in which they are added."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}

    def add(
        self,
        kind: FactKind,
        at: Ints,
        *,
        of: Transactions | None = None,
        group: Sequence[str] | None = None,
        runs: Runs | None = None,
        about: Sequence[str | None] | None = None,
    ) -> None:
        """One fact for each entry of `at`, log time in microseconds; the others are as long or absent. It is
        `of` a transaction, or of a transform's `group`."""
        n = len(at)
        if not n:
            return
        absent = [None] * n
        told: dict[str, Any] = {
            "kind": [kind] * n,
            "at": at.tolist(),
            "txn": absent if of is None else of.txn.tolist(),
            "group": absent if group is None else list(group),
            "outcome": absent if of is None else _OUTCOMES[of.outcome].tolist(),
            "about": absent if about is None else list(about),
        }
        for name in ("writer", "seq", "offset", "length"):
            told[name] = absent if runs is None else getattr(runs, name).tolist()
        for name, column in self._columns.items():
            column.extend(told[name])

    def table(self, place: Place, topic: str) -> pa.Table:
        """All of them, `FACT_SCHEMA`."""
        n = len(self._columns["kind"])
        if not n:
            return _NONE
        own: dict[str, Any] = {
            "cluster": [place.cluster] * n,
            "topic_id": [place.topic_id] * n,
            "topic": [topic] * n,
            "partition": [place.partition] * n,
        }
        columns = own | self._columns
        return pa.table([_array(f.type, columns[f.name]) for f in FACT_SCHEMA], schema=FACT_SCHEMA)


def _array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, kind) if values.count(None) < len(values) else pa.nulls(len(values), kind)
