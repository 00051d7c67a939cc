"""The times and bounds that the rules are given. All of them count log time or memory, never the machine's clock."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
"""One second in microseconds, the unit of every time in `rules`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """Microseconds of log time, except where the name says otherwise.

    `grace`: how long a missing record may still turn up before a loss is called. `delivery`: within this time of
    becoming readable, an acknowledged record must have been polled, else `unseen` opens. `liveness`: a reader that has
    not moved for this long is silent and no longer holds the settled frontier. `window_runs`: a partition's open
    window holds at most this many runs of records; beyond it the oldest part is settled early (`window-overflow`).
    While log time is held back, as where a log is read again, it is a multiple of that.
    `findings_per_step`: of one anomaly, a step reports this many findings of a partition one by one; the rest are
    counted in the last one's evidence."""

    grace: int = 10 * SECOND
    delivery: int = 10 * SECOND
    liveness: int = 30 * SECOND
    window_runs: int = 16_384
    findings_per_step: int = 1_000
