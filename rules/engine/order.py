"""The one ordered list of checks, which live partitions and finished histories are run from.

Order matters in few places, and the reason stands beside each of them.
"""

from __future__ import annotations

from typing import Any, Final

from rules.arrays.columns import Columns, Runs, listed_runs
from rules.audit import digests
from rules.checks import (
    abort_positions,
    committed_offsets,
    fences,
    log_ends,
    phantom_reads,
    rebalances,
    sequence_loss,
)
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import chunk_names
from rules.kept.state import State
from rules.registers import check as registers

CHECKS: Final[tuple[Check[Any], ...]] = (
    sequence_loss.CHECK,
    fences.CHECK,
    rebalances.CHECK,
    abort_positions.CHECK,
    committed_offsets.CHECK,
    log_ends.CHECK,
)

KINDS: Final[dict[str, type]] = {one.name: one.state for one in CHECKS}
"""The type of each check's state, by its name."""


def own(state: State, check: Check[Any]) -> Any:
    """The check's state, made where there is none yet."""
    known = state.checks.get(check.name)
    if known is None:
        known = state.checks[check.name] = check.state()
    return known


def arrive(news: News) -> None:
    """Tell every check of new rows."""
    for check in CHECKS:
        if not (news.finished and check.live_only):
            check.arrive(own(news.state, check), news)


def fold(passage: Passage) -> None:
    """Tell every check of log time that has passed."""
    for check in CHECKS:
        if passage.finished and check.live_only:
            continue
        told = check.finish if passage.finished and check.finish is not None else check.fold
        told(own(passage.state, check), passage)


def chunks_needed(state: State, columns: Columns) -> set[str]:
    """The names of the chunks that the coming step will touch."""
    asked = Asked(state, columns)
    names: set[str] = set()
    for check in CHECKS:
        names.update(check.needs(own(state, check), asked))
    for runs in (columns.sent, columns.polled, listed_runs(columns, "sources")):
        names |= chunk_names(runs.writer, runs.seq, runs.length)
    for kept in (
        state.outstanding, state.indefinite, state.polls, state.uncommitted, state.written, state.doubtful,
    ):  # fmt: skip
        names |= chunk_names(kept.writer, kept.seq, kept.length)
    if state.consumed_by or any(p.transforms for p in state.processes.values()):
        names |= chunk_names(state.log.writer, state.log.seq, state.log.length)
    names |= {digests.bucket_name(number) for number in buckets_needed(state, columns)}
    names |= phantom_reads.chunks_needed(state, columns)
    return names | registers.chunks_needed(state, columns)


def buckets_needed(state: State, columns: Columns) -> set[int]:
    """The buckets of block digests that the coming step will touch."""
    both = Runs.concat(columns.sent, columns.polled)
    return digests.buckets_needed(state, both.offset, both.length)
