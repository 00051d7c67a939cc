"""A stretch of time, and whose, as `report` and `export` are asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is asked for: times as they were written on the command line, the topics, none for all, and the
    cluster's name or id, None for all."""

    begin: str | None = None
    end: str | None = None
    topics: Sequence[str] = ()
    cluster: str | None = None
