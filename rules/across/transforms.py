"""`eos-violation`, not at all: an input that no committed output reflects, while a later input is reflected.

Joins, per transform group and partition number, what the input's partition settled (`input`) with what the output's
partition reflected (`reflected`): see `rules.checks.transforms`.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rules.vocabulary.finding import Finding
from rules.vocabulary.objectives import Objectives

SPANS_KEPT: Final = 10_000
FOREVER: Final = 2**62


def join(
    transforms: dict[str, Any], facts: pa.Table, objectives: Objectives, *, finished: bool
) -> tuple[dict[str, Any], list[Finding]]:
    """Take the facts about transforms in; returns the state after them, and what is missing."""
    if not facts.num_rows and not finished:
        return transforms, []
    order = pc.sort_indices(facts, sort_keys=[("offset", "ascending"), ("at", "ascending")])
    for fact in facts.take(order).to_pylist():
        key = f"{fact['cluster']}|{fact['group']}|{fact['partition']}"
        _take(transforms.setdefault(key, _new(fact)), fact)
    findings: list[Finding] = []
    for key in sorted(transforms):
        findings.extend(_missing(transforms[key], objectives, finished=finished))
    return transforms, findings


def _new(fact: dict[str, Any]) -> dict[str, Any]:
    """`inputs`: [offset, length, writer, seq, topic_id, topic, at] that nothing reflected yet. `reflected`, `doubtful`:
    merged [start, end) input offsets. `tops`: [at, highest reflected offset], rising; `passed`: the highest one that
    the output's log has settled. `lowest`: the first reflected offset. `gone`: the input's log start."""
    return {
        "cluster": fact["cluster"], "group": fact["group"], "partition": fact["partition"], "inputs": [],
        "reflected": [], "doubtful": [], "tops": [], "passed": -1, "lowest": -1, "horizon": -1,
        "gone": -1,
    }  # fmt: skip


def _take(one: dict[str, Any], fact: dict[str, Any]) -> None:
    kind = fact["kind"]
    if kind == "horizon":
        one["horizon"] = max(one["horizon"], fact["at"])
        return
    start, end = fact["offset"], fact["offset"] + fact["length"]
    if kind == "gone":
        one["gone"] = max(one["gone"], start)
        return
    if kind == "input":
        one["inputs"].append(
            [start, fact["length"], fact["writer"], fact["seq"], fact["topic_id"], fact["topic"], fact["at"]]
        )
    elif kind == "doubtful":
        _add(one["doubtful"], start, end)
    elif kind == "reflected":
        _add(one["reflected"], start, end)
        one["lowest"] = start if one["lowest"] < 0 else min(one["lowest"], start)
        one["tops"].append([fact["at"], end - 1])


def _add(spans: list[list[int]], start: int, end: int) -> None:
    """Add a span to a merged list; most come at its end."""
    if spans and spans[-1][0] <= start <= spans[-1][1]:
        spans[-1][1] = max(spans[-1][1], end)
        return
    spans.append([start, end])
    if len(spans) > 1 and spans[-2][0] > start:
        spans.sort()
        merged = [spans[0]]
        for span in spans[1:]:
            if span[0] <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], span[1])
            else:
                merged.append(span)
        spans[:] = merged
    del spans[:-SPANS_KEPT]


def _missing(one: dict[str, Any], objectives: Objectives, *, finished: bool) -> list[Finding]:
    limit = FOREVER if finished else one["horizon"] - objectives.grace
    for at, top in one["tops"]:
        if at <= limit:
            one["passed"] = max(one["passed"], top)
    one["tops"] = [t for t in one["tops"] if t[0] > limit]
    found: list[Finding] = []
    waiting: list[list[Any]] = []
    for offset, length, writer, seq, topic_id, topic, at in one["inputs"]:
        for start, end in _gaps(offset, offset + length, one["reflected"] + one["doubtful"]):
            if end <= one["lowest"] or one["lowest"] < 0:
                if one["lowest"] < 0:
                    waiting.append([start, end - start, writer, seq + start - offset, topic_id, topic, at])
                continue
            cut = max(start, min(end, one["passed"]))
            if cut < end:  # nothing later is reflected yet
                waiting.append([cut, end - cut, writer, seq + cut - offset, topic_id, topic, at])
            for missing in range(max(start, one["lowest"], one["gone"]), cut):
                found.append(_report_missing(one, missing, writer, seq + missing - offset, topic_id, topic, at))
    done = max((i[0] + i[1] for i in one["inputs"]), default=0)
    one["inputs"] = waiting
    keep = min((w[0] for w in waiting), default=done)
    for name in ("reflected", "doubtful"):
        one[name] = [[max(s, keep), e] for s, e in one[name] if e > keep]
    return found


def _gaps(start: int, end: int, spans: list[list[int]]) -> list[tuple[int, int]]:
    """What of [start, end) is in none of the spans."""
    gaps = []
    for s, e in sorted(spans):
        if e <= start or s >= end:
            continue
        if s > start:
            gaps.append((start, s))
        start = max(start, e)
    if start < end:
        gaps.append((start, end))
    return gaps


def _report_missing(
    one: dict[str, Any], offset: int, writer: int, seq: int, topic_id: str, topic: str, at: int
) -> Finding:
    when = max(at, one["horizon"])
    return Finding(
        anomaly="eos-violation", cluster=one["cluster"], topic_id=topic_id, topic=topic, partition=one["partition"],
        subject=("missing", one["group"], writer, seq),
        message=f"input {writer}/{seq} at offset {offset} is not reflected in the committed output of group"
        f" {one['group']}, and the input at offset {one['passed']} is",
        evidence={
            "writer": writer, "seq": seq, "offset": offset, "group": one["group"], "reflected": one["passed"],
        },
        at=when, decidable=when,
    )  # fmt: skip
