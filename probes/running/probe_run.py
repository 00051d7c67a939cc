"""The probe run: the id in every tag of these probes. It stays the same for as long as their journal folder stays."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from probes.config import ProbesConfig
from probes.kafka.errors import ProbeError
from probes.records.tag import MAX_RUN_BYTES

RUN_FILE: Final = "run"


def run_id(config: ProbesConfig, journal_folder: Path) -> str:
    """The id in the tags of these probes: the configured one, else the one that the journal folder keeps."""
    if config.run is not None:
        return config.run
    kept = journal_folder / RUN_FILE
    try:
        journal_folder.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            kept.write_text(secrets.token_hex(6) + "\n")
        run = kept.read_text().strip()
    except OSError as refused:
        raise ProbeError(f"the journal folder {journal_folder} cannot be used: {refused.strerror}") from refused
    if not re.fullmatch(r"[\w.:-]+", run) or len(run.encode()) > MAX_RUN_BYTES:
        raise ProbeError(f"{kept} does not hold a run's id")
    return run
