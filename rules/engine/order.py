"""The one ordered list of checks, which live partitions and finished histories are run from.

Order matters in few places, and the reason stands beside each of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from rules.arrays.columns import Columns
from rules.audit import digests
from rules.checks.committed import committed_offsets, zero_offsets
from rules.checks.conditions import (
    late_evidence,
    out_of_sync,
    rebalances,
    refused_reads,
    replaced_clusters,
    stuck_closes,
    stuck_consumers,
    stuck_producers,
    throttling,
    unreachable_brokers,
    unsafe_settings,
)
from rules.checks.ends import known_ends, log_ends, stale_log_ends
from rules.checks.order import poll_order, send_order, sequence_loss
from rules.checks.records import altered_records, duplicates, irregular_records, losses, phantom_reads
from rules.checks.transactions import (
    abort_positions,
    aborted_reads,
    dirty_reads,
    fences,
    hanging_transactions,
    transaction_outcomes,
    transforms,
    unfenced_zombies,
)
from rules.kept.check import Asked, Check, News, Passage
from rules.kept.chunks import chunk_names
from rules.kept.state import State
from rules.registers import check as registers
from rules.settling import listed_ends, transactional_ids

CHECKS: Final[tuple[Check[Any], ...]] = (
    sequence_loss.CHECK,
    fences.CHECK,
    unfenced_zombies.CHECK,
    rebalances.CHECK,
    replaced_clusters.CHECK,
    abort_positions.CHECK,
    altered_records.CHECK,
    zero_offsets.CHECK,
    committed_offsets.CHECK,
    known_ends.CHECK,  # before the two that compare what it tells
    log_ends.CHECK,
    unreachable_brokers.CHECK,  # before what waits on the cluster
    out_of_sync.CHECK,  # so is this, and after that one: it adds to what explains
    throttling.CHECK,  # and this
    stuck_consumers.CHECK,
    stuck_producers.CHECK,
    refused_reads.CHECK,
    stuck_closes.CHECK,
    hanging_transactions.CHECK,
    stale_log_ends.CHECK,
    late_evidence.CHECK,
    unsafe_settings.CHECK,
    registers.CHECK,
    dirty_reads.CHECK,  # before the two that keep what it compares take the new rows in
    phantom_reads.CHECK,
    losses.CHECK,  # before whatever needs to know what was polled, and which operations turned out visible
)

SETTLED: Final[tuple[Check[Any], ...]] = (
    duplicates.CHECK,
    irregular_records.CHECK,
    listed_ends.CHECK,
    transaction_outcomes.CHECK,
    transforms.CHECK,  # it hears what became of the transactions that wrote its outputs
    transactional_ids.CHECK,  # after those: they ask it for lives that it is about to forget
    aborted_reads.CHECK,  # after what it tells of transactions has come in
    poll_order.CHECK,
    send_order.CHECK,
    digests.CHECK,  # last: it drops the chunks that nothing stands in any more
)
"""Those that are told of log time once it is settled: what was polled is in the chunks, the frontier has moved, and
losses have been judged."""

KINDS: Final[dict[str, type]] = {one.name: one.state for one in CHECKS + SETTLED}
"""The type of each check's state, by its name."""


_ASKING: Final = tuple(one for one in CHECKS + SETTLED if one.asks)
_HEARING: Final = tuple(one for one in CHECKS + SETTLED if one.hears)
_COLUMNS: Final = sorted({name for one in CHECKS + SETTLED for name in one.rows or () if isinstance(name, str)})
_FOLLOWING: Final = tuple(one for one in CHECKS if one.follows)
_FOLLOWING_SETTLED: Final = tuple(one for one in SETTLED if one.follows)


def own(state: State, check: Check[Any]) -> Any:
    """The check's state, made where there is none yet."""
    return _of(state.checks, check)


def _of(states: dict[str, Any], check: Check[Any]) -> Any:
    if check.name not in states:
        states[check.name] = check.state()
    return states[check.name]


def arrive(news: News) -> None:
    """Tell every check of new rows that may concern it."""
    state, there = news.state, _there(news.columns)
    for check in _HEARING:
        if not (news.finished and check.live_only) and check.wakes(state, there):
            check.arrive(_of(state.checks, check), news)


def _there(columns: Columns) -> frozenset[int | str]:
    """What the rows did, and those columns that a check looks for in which they say something."""
    if columns.there is None:
        columns.there = columns.functions.union([name for name in _COLUMNS if columns.tells(name)])
    found: frozenset[int | str] = columns.there
    return found


def fold(passage: Passage) -> None:
    """Tell the checks of log time that has passed, before anything of it is settled."""
    _fold(passage, _FOLLOWING)


def fold_settled(passage: Passage) -> None:
    """Tell the others, once it is."""
    _fold(passage, _FOLLOWING_SETTLED)


def _fold(passage: Passage, checks: tuple[Check[Any], ...]) -> None:
    for check in checks:
        if (passage.finished and check.live_only) or check.sleeps(passage.state):
            continue
        told = check.finish if passage.finished and check.finish is not None else check.fold
        told(_of(passage.state.checks, check), passage)


def chunks_needed(state: State, columns: Columns) -> set[str]:
    """The names of the chunks that the coming step will touch."""
    asked, there = Asked(state, columns), _there(columns)
    names: set[str] = set()
    for check in _ASKING:
        if check.wakes(state, there) or not check.sleeps(state):
            names.update(check.needs(_of(state.checks, check), asked))
    every = (columns.sent, columns.polled, state.polls, state.uncommitted)
    return names | chunk_names(
        *(np.concatenate([getattr(runs, n) for runs in every]) for n in ("writer", "seq", "length"))
    )
