"""A part of a topic's partitions as Spark knows it: what state is kept of it, and who is asked about its rows.

For each stream that starts, Spark begins a Python process that does nothing but ask for the names of that state. So
nothing is imported here but what PySpark itself needs: with pandas, Arrow and the rules, that process took one second
of processor time instead of a quarter. The rows' own work is `part_checks`, imported where there are rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from rules.vocabulary.objectives import Objectives
    from streaming_jobs.verdicts.checks import Check
    from streaming_jobs.verdicts.part_checks import PartChecks


class Part(StatefulProcessor):
    """The checks of a part of a topic's partitions, called once per batch that holds rows of them."""

    def __init__(self, objectives: Objectives, check: Check) -> None:
        self._given: bytes = cast(Any, cloudpickle).dumps((objectives, check))

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("partitions", "kept binary")
        self._chunks = handle.getMapState("chunks", "partition int, name string", "chunk binary")
        self._checks: PartChecks | None = None

    def close(self) -> None:
        pass

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        self._checking().begin_with(initialState)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        yield self._checking().told(rows)

    def _checking(self) -> PartChecks:
        if self._checks is None:
            from streaming_jobs.verdicts.part_checks import PartChecks

            given: tuple[Objectives, Check] = pickle.loads(self._given)
            self._checks = PartChecks(*given, self._kept, self._chunks)
        return self._checks
