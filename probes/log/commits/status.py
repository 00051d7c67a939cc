"""What can be seen of a committer at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterStatus:
    """A glance at a committer. `rows`: appended since it started, marks included. `lag`: from the last append to now.
    `backlog`: bytes of journals that are not in the table. `lives`: journals being read. `unverifiable`: journals that
    do not tell all, with the reason. `error`: why the last turn failed."""

    last_commit: datetime | None = None
    version: int = 0
    rows: int = 0
    append_seconds: float = 0.0
    lag: timedelta | None = None
    backlog: int = 0
    lives: int = 0
    unverifiable: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
