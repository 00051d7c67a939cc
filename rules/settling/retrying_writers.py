"""Writers without idempotence: their retries may write a record twice, so that less is promised of their records.

Known by the settings in their start rows. Remembered while their process lives, and then until the log start has passed
where the log ended when it was forgotten: below that stands all that they ever wrote. So there are as many as live,
and as there are in the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rules.kept.state import State

_ID: Final = re.compile("[0-9]{1,19}")


def writer_told(settings: Mapping[str, str]) -> int:
    """The id of the writer that these settings name, -1 for none that could be one."""
    told = settings.get("writer", "")
    return int(told) if _ID.fullmatch(told) and int(told) < 2**63 else -1


def note(state: State, process: int, settings: Mapping[str, str]) -> None:
    """A process started with these settings."""
    writer = writer_told(settings)
    if settings.get("idempotent") == "false" and writer >= 0 and writer not in state.not_idempotent:
        state.not_idempotent.append(writer)
        state.not_idempotent_processes.append(process)
        state.not_idempotent_until.append(-1)


def forget(state: State) -> None:
    """Drop those whose process is forgotten and whose records are gone."""
    if not state.not_idempotent:
        return
    end = max(state.log_end, state.highest_acknowledged + 1, state.highest_polled + 1)
    kept = []
    for writer, process, until in zip(
        state.not_idempotent, state.not_idempotent_processes, state.not_idempotent_until, strict=True
    ):
        until = -1 if process in state.processes else end if until < 0 else until
        if until < 0 or until > state.log_start:
            kept.append((writer, process, until))
    state.not_idempotent, state.not_idempotent_processes, state.not_idempotent_until = (
        [entry[i] for entry in kept] for i in range(3)
    )
