"""The log around a record: which value stands at each offset, by what its writer was told and what readers were given.

Where two disagree, both stand: a log that changed is the finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = tuple[int, int]
"""Writer and sequence number."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One value at one offset. `value`: None where nobody knows of one: a transaction's marker, an aborted record, a
    record of others, or one that is lost. `sent_by`: processes that were told this offset for it; `given_to`: those
    that were given it there; `passed_by`: those that went over the offset and were given nothing there. `in_focus`:
    the offset is one of those that were asked for."""

    offset: int
    value: Value | None
    sent_by: Sequence[int]
    given_to: Sequence[int]
    passed_by: Sequence[int]
    in_focus: bool


def log_around(rows: Iterable[Mapping[str, Any]], offsets: Sequence[int], around: int) -> list[Standing]:
    """What these rows of one partition's log tell of the offsets, and of `around` more on each side, in their order."""
    shown = sorted({at for one in offsets for at in range(max(one - around, 0), one + around + 1)})
    wanted = set(shown)
    sent: dict[tuple[int, Value], set[int]] = defaultdict(set)
    given: dict[tuple[int, Value], set[int]] = defaultdict(set)
    passed: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        had = set()
        for column, told in (("sent", sent), ("polled", given)):
            for run in row[column] or ():
                for at in _within(run, shown):
                    told[at, (run["writer"], run["seq"] + at - run["offset"])].add(row["process"])
                    had.add(at)
        before, after = row["position_before"], row["position_after"]
        if before is not None and after is not None:
            for at in wanted - had:
                if before <= at < after:
                    passed[at].add(row["process"])
    values: dict[int, set[Value]] = defaultdict(set)
    for at, value in (*sent, *given):
        values[at].add(value)
    found = []
    for at in shown:
        past, focus = sorted(passed[at]), at in offsets
        for value in sorted(values[at]):
            found.append(Standing(at, value, sorted(sent[at, value]), sorted(given[at, value]), past, focus))
        if not values[at]:
            found.append(Standing(at, None, (), (), past, focus))
    return found


def _within(run: Mapping[str, Any], shown: Sequence[int]) -> list[int]:
    if run["offset"] is None or run["offset"] < 0:
        return []
    return [at for at in shown if run["offset"] <= at < run["offset"] + run["length"]]
