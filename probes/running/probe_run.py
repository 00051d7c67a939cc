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
FORMER_FILE: Final = "former-runs"


def has_run(config: ProbesConfig, journal_folder: Path) -> bool:
    """May somebody have written under the run of these probes before?"""
    return config.run is not None or (journal_folder / RUN_FILE).exists()


def begin_run(journal_folder: Path, former: str) -> str:
    """A new run for this journal folder, instead of the `former` one; returns its id. Raises ProbeError."""
    run = secrets.token_hex(6)
    scratch = journal_folder / (RUN_FILE + ".new")
    try:
        with (journal_folder / FORMER_FILE).open("a") as listed:
            listed.write(former + "\n")
        scratch.write_text(run + "\n")
        scratch.replace(journal_folder / RUN_FILE)
    except OSError as refused:
        raise ProbeError(f"the journal folder {journal_folder} cannot be used: {refused.strerror}") from refused
    return run


def former_runs(journal_folder: Path) -> frozenset[str]:
    """The runs that were given up in this journal folder. Raises ProbeError."""
    try:
        return frozenset((journal_folder / FORMER_FILE).read_text().split())
    except FileNotFoundError:
        return frozenset()
    except OSError as refused:
        raise ProbeError(f"the journal folder {journal_folder} cannot be used: {refused.strerror}") from refused


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
