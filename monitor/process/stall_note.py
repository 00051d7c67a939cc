"""A stop of the checks, noted until the findings table has it: whoever starts next knows of it.

While the checks stand still, receivers are told at once and the table only when they go on. A monitor that ends before
that, as one that is restarted because its disk was full, would leave everybody with a page that never ends, and the
tables without the outage.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from alerts.receivers.memory import Kept
from rules.vocabulary.finding import Finding
from streaming_jobs.checks_stalled import NAME, stalled

log = logging.getLogger(__name__)

KEPT_AS: Final = NAME
"""Its name beside what receivers were told."""


class StallNote:
    """Where the stop that is not in the table yet is noted; None keeps nothing."""

    def __init__(self, kept: Kept | None = None) -> None:
        self._kept = kept

    def keep(self, since: datetime, why: str) -> None:
        """The checks have stopped."""
        self._write(json.dumps({"since": since.isoformat(), "why": why}))

    def clear(self) -> None:
        """The table has it."""
        self._write("{}")

    def left(self, recorded: pa.Table) -> tuple[datetime, Finding] | None:
        """The stop that a monitor before this one told of and did not write to the findings (`recorded`), and since
        when it lasts."""
        if self._kept is None:
            return None
        try:
            noted = json.loads(self._kept.read())
            if not noted:
                return None
            since, why = datetime.fromisoformat(noted["since"]), str(noted["why"])
            opened = stalled("opened", since, since, why)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        ours = recorded.filter(pc.and_(pc.equal(recorded["anomaly"], NAME), pc.equal(recorded["event"], "opened")))
        return None if since in ours["at"].to_pylist() else (since, opened)

    def _write(self, text: str) -> None:
        if self._kept is not None:
            try:
                self._kept.write(text)
            except OSError as refused:
                log.warning("whether the checks stand still cannot be noted: %s", refused.strerror or refused)
