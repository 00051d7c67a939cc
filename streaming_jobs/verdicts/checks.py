"""One partition's batch: its slices in, its row of verdicts out, and what is kept of it changed.

The checks themselves are `rules.step`; this only gives them their state. A partition's *hot* value is read and written
at each batch, and *chunks* only where the checks ask for them, so that what a healthy batch writes stays small. Where
both are, others know: the operator of the stream (`operator`), and a rebuild (`rebuild`).

**A rule that raises.** The partition is *quarantined*: nothing of that batch is applied to it, its last good state is
kept beside the error, a `check-failed` condition opens, and the partition's later rows are counted and not checked,
since checks that have missed rows would speak of gaps that are not there. Its verdict is unknown from then on; all
other partitions go on. No evidence is lost: every row is in `history`, and a rebuild replays the partition from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from rules.step import Stepped, Told, UnknownFormat, carry, prepare, settle
from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Place
from rules.vocabulary.times import micros
from streaming_jobs.history.bundles import pack, records_in
from streaming_jobs.history.validation import KEYS
from streaming_jobs.verdicts.kept import Chunks, Kept

_TEXT, _BYTES, _COUNT = pa.string(), pa.binary(), pa.int64()
OUTPUT_SCHEMA: Final = pa.schema(
    {
        "cluster": _TEXT,
        "topic_id": _TEXT,
        "partition": pa.int32(),
        "findings": _BYTES,
        "facts": _BYTES,
        "rechecks": _TEXT,
        "summary": _TEXT,
        "rejected": _BYTES,
        "slices": _COUNT,
        "sent": _COUNT,
        "polled": _COUNT,
        "state_bytes": _COUNT,
        "chunks_written": _COUNT,
        "check_us": _COUNT,
        "state_us": _COUNT,
    }
)
"""One row per partition and batch. `findings`, `facts` (for stage 2) and `rejected` are Arrow streams, absent where
there are none, and so is `rechecks`, a JSON list of [start, end) offsets that two readers saw differently. `summary` is
the JSON object of the partition's row for `partition_state`, times in microseconds. `state_bytes` counts what changed
of the partition's state, the hot value and chunks, and `chunks_written` these chunks; `check_us` and `state_us` are
spent in the checks and in the store's round trips (those that several partitions share are told by one of them)."""


@dataclass(frozen=True)
class Check:
    """The checks' entry points. Others stand in for them where the operator itself is tested; `settle` is None where
    they know no log time that is held back."""

    prepare: Callable[..., Any] = prepare
    settle: Callable[[Place, bytes], Any] | None = settle


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return micros(value)
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    raise TypeError(f"a summary holds a {type(value).__name__}")


class _Failed(NamedTuple):
    """A rule that raised, over so many `slices`, at a log time."""

    topic: str
    at: int
    slices: int
    error: Exception


def _failure(place: Place, failed: _Failed) -> Finding:
    """The condition that opens when a rule raises. Its time is the last of the batch's, so that a re-run agrees."""
    said = f"{type(failed.error).__name__}: {failed.error}".splitlines()[0][:500]
    return Finding(
        anomaly="check-failed",
        cluster=place.cluster,
        topic_id=place.topic_id,
        topic=failed.topic,
        partition=place.partition,
        event="opened",
        message=f"A rule failed on partition {place.partition} of {failed.topic}: its verdict is unknown from here on.",
        evidence={"error": said, "slices": failed.slices},
        at=failed.at,
        decidable=failed.at,
    )


class Checks:
    """The checks of all partitions, one batch of one of them after the other."""

    def __init__(self, objectives: Objectives, check: Check) -> None:
        self.objectives = objectives
        self.check = check

    def verdict(self, place: Place, slices: pa.Table, kept: Kept, chunks: Chunks, *, held: int = 0) -> dict[str, Any]:
        """The row of `OUTPUT_SCHEMA` for one batch's slices of this partition. Changes `kept` and `chunks`. `held`: as
        `rules.step.prepare` has it."""
        row = no_verdict(place)
        row["slices"] = slices.num_rows
        row["sent"], row["polled"] = records_in(slices)
        if kept.failed is not None:
            kept.behind += slices.num_rows
            row["summary"] = _unknown(slices["topic"][0].as_py(), kept)
            return row
        try:
            return row | self._judged(kept, chunks, lambda: self.check.prepare(kept.hot, slices, held=held))
        except UnknownFormat:
            raise
        except Exception as error:  # a check that crashed means unknown, not passed
            at, topic = micros(pc.max(slices["completed"]).as_py()), slices["topic"][0].as_py()
            return row | _quarantine(place, _Failed(topic, at, slices.num_rows, error), kept)

    def settled(self, place: Place, kept: Kept, chunks: Chunks, before: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row for a partition whose log time was held back and is no longer; None where it has no state, or a rule
        had failed there. `before`: the summary of its last step."""
        hot, settles = kept.hot, self.check.settle
        if hot is None or kept.failed is not None or settles is None:
            return None
        try:
            return no_verdict(place) | self._judged(kept, chunks, lambda: settles(place, hot))
        except UnknownFormat:
            raise
        except Exception as error:
            failed = _Failed(before["topic"], -1 if before["now"] is None else before["now"], 0, error)
            return no_verdict(place) | _quarantine(place, failed, kept)

    def carried(self, kept: Kept, told: Mapping[str, Told]) -> set[str]:
        """Those of these conditions that a rebuilt state cannot judge yet; it goes on with them."""
        if kept.hot is None or kept.failed is not None or self.check.settle is None:
            return set()
        kept.hot, carried = carry(kept.hot, told, self.objectives)
        return carried

    def _judged(self, kept: Kept, chunks: Chunks, prepare: Callable[[], Any]) -> dict[str, Any]:
        """What of the row tells of one step."""
        began = time.perf_counter_ns()
        prepared = prepare()
        loaded = time.perf_counter_ns()
        found = {name: chunk for name in prepared.chunks if (chunk := chunks.get(name)) is not None}
        ready = time.perf_counter_ns()
        stepped = prepared.step(found, self.objectives)
        told = _told(stepped)
        check_ns = time.perf_counter_ns() - ready + (loaded - began)
        state_ns = ready - loaded
        before = time.perf_counter_ns()
        size, written = _save(stepped, kept, chunks)
        state_ns += time.perf_counter_ns() - before
        cost = {"check_us": check_ns // 1000, "state_us": state_ns // 1000}
        return told | cost | {"state_bytes": size, "chunks_written": written}


def _told(stepped: Stepped) -> dict[str, Any]:
    """What a step says, as columns of `OUTPUT_SCHEMA`."""
    judged = [(finding, severity(finding.anomaly, finding.context)) for finding in stepped.findings]
    return {
        "findings": pack(findings_table(judged)) if judged else None,
        "facts": pack(stepped.facts) if stepped.facts.num_rows else None,
        "rechecks": orjson.dumps([list(r) for r in stepped.rechecks]).decode() if stepped.rechecks else None,
        "summary": orjson.dumps(stepped.summary, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode(),
    }


def _save(stepped: Stepped, kept: Kept, chunks: Chunks) -> tuple[int, int]:
    """Keep what changed; (bytes, chunks) that are to be written."""
    size = written = 0
    if stepped.hot != kept.hot:
        kept.hot = stepped.hot
        size += len(stepped.hot)
    for name, chunk in stepped.chunks.items():
        if chunk is None:
            chunks.remove(name)
        else:
            chunks.put(name, chunk)
            size += len(chunk)
        written += 1
    return size, written


def _quarantine(place: Place, failed: _Failed, kept: Kept) -> dict[str, Any]:
    finding = _failure(place, failed)
    kept.failed, kept.behind = finding.evidence["error"], failed.slices
    judged = [(finding, severity(finding.anomaly, finding.context))]
    return {"findings": pack(findings_table(judged)), "summary": _unknown(failed.topic, kept)}


def _unknown(topic: str, kept: Kept) -> str:
    told = {"topic": topic, "check_failed": kept.failed, "slices_behind": kept.behind}
    return orjson.dumps(told).decode()


_NOTHING: Final[dict[str, Any]] = {
    "findings": None,
    "facts": None,
    "rechecks": None,
    "summary": None,
    "rejected": None,
    "slices": 0,
    "sent": 0,
    "polled": 0,
    "state_bytes": 0,
    "chunks_written": 0,
    "check_us": 0,
    "state_us": 0,
}


def no_verdict(place: Place) -> dict[str, Any]:
    """The row of a partition of which nothing was checked."""
    return dict(zip(KEYS, place, strict=True)) | _NOTHING
