"""The stateful operator in PySpark's own tester, without a stream: what it reads, what it writes, what it survives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

from rules.step import Stepped, Stored, UnknownFormat, step
from rules.vocabulary.finding import FACT_SCHEMA
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.slices import Place, Slice, to_table
from streaming_jobs.history.bundles import bundles_of, unpack
from streaming_jobs.verdicts.operator import Check, Partition, verdict_rows
from tests.streaming_jobs.checks import instead
from tests.streaming_jobs.probe_log import duplicates

KEY = ("c", "t", 0)


class _Unwrapped(Partition):
    """PySpark's tester wraps every key into a tuple of one, as if all keys were of one column."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N803
        return super().handleInputRows(key[0], rows, timerValues)


class Operator:
    """One partition's operator, fed batch by batch."""

    def __init__(self, check: Check | None = None) -> None:
        self.tester = TwsTester(_Unwrapped(Objectives(), check or Check()))

    def feed(self, rows: Sequence[Slice], pieces: int = 1) -> dict[str, Any]:
        """The verdict on a batch whose rows come in so many bundles."""
        table = to_table([row for row in rows if row.partition == 0])
        size = -(-table.num_rows // pieces)
        frames = [
            bundles_of(table.slice(i, size)).to_pandas()[["rejected", "payload"]]
            for i in range(0, table.num_rows, size)
        ]
        out = self.tester.testInPandas(KEY, pd.concat(frames, ignore_index=True))
        (row,) = verdict_rows(pa.Table.from_pandas(out)).to_pylist()
        return dict(row)

    def state(self) -> tuple[bytes | None, str | None, int] | None:
        kept = self.tester.peekValueState("partition", KEY)
        return None if kept is None else (kept[0], kept[1], kept[2])

    def chunks(self) -> dict[str, bytes]:
        return {k[0]: v[0] for k, v in self.tester.peekMapState("chunks", KEY).items()}


def subjects(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    if verdict["findings"] is None:
        return []
    rows = unpack(verdict["findings"]).to_pylist()
    return [(r["anomaly"], r["event"]) for r in rows]


def test_it_is_the_checks_with_their_state_kept() -> None:
    parts = duplicates(3)
    operator, stored = Operator(), Stored()
    for part in parts:
        rows = to_table([row for row in part if row.partition == 0])
        expected = step({Place(*KEY): stored}, rows, Objectives())[Place(*KEY)]
        verdict = operator.feed(part, pieces=2)
        assert verdict["slices"] == rows.num_rows
        assert (verdict["sent"], verdict["polled"]) == (5, 6)
        assert sorted(unpack(verdict["findings"])["id"].to_pylist()) == sorted(f.id for f in expected.findings)
        assert orjson.loads(verdict["summary"])["polled"] == expected.summary["polled"]
        stored.take(expected)
        assert operator.state() == (expected.hot, None, 0)
        assert operator.chunks() == stored.chunks


class _Deletes:
    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        ((place, kept),) = stored.items()
        chunks: dict[str, bytes | None] = {"a": None, "b": b"two"} if kept.hot else {"a": b"one"}
        return {place: Stepped(b"hot", chunks, [], FACT_SCHEMA.empty_table(), [], {"topic": "topic"})}


def test_it_writes_what_changed_and_removes_what_is_told() -> None:
    operator = Operator(instead(_Deletes(), ["a", "z"]))
    part = duplicates(1)[0]
    first = operator.feed(part)
    assert (first["state_bytes"], first["chunks_written"]) == (6, 1)
    second = operator.feed(part)
    assert (second["state_bytes"], second["chunks_written"]) == (3, 2)  # the hot value is the same: not written
    assert operator.chunks() == {"b": b"two"}


class _FailsOn:
    """The real checks, that raise on the given call."""

    def __init__(self, call: int, error: Exception) -> None:
        self.calls, self.call, self.error = 0, call, error

    def __call__(self, stored: Any, slices: pa.Table, objectives: Objectives) -> dict[Place, Stepped]:
        self.calls += 1
        if self.calls == self.call:
            raise self.error
        return step(stored, slices, objectives)


def test_a_rule_that_raises_quarantines_its_partition_with_its_last_good_state() -> None:
    operator = Operator(instead(_FailsOn(2, KeyError("polled"))))
    parts = duplicates(4)
    operator.feed(parts[0])
    good, chunks = operator.state(), operator.chunks()
    assert good is not None
    failed = operator.feed(parts[1])
    assert subjects(failed) == [("check-failed", "opened")]
    (row,) = unpack(failed["findings"]).to_pylist()
    assert row["severity"] == "critical"
    assert orjson.loads(row["evidence"])["error"] == "KeyError: 'polled'"
    behind = failed["slices"]
    assert operator.state() == (good[0], "KeyError: 'polled'", behind)
    later = operator.feed(parts[2])
    assert subjects(later) == []  # it opened once; the rows are counted and not checked
    assert orjson.loads(later["summary"])["slices_behind"] == behind + later["slices"]
    assert operator.state() == (good[0], "KeyError: 'polled'", behind + later["slices"])
    assert operator.chunks() == chunks


def test_a_state_of_another_version_is_not_taken_for_a_failed_rule() -> None:
    operator = Operator(instead(_FailsOn(1, UnknownFormat("version 7"))))
    with pytest.raises(UnknownFormat):
        operator.feed(duplicates(1)[0])
