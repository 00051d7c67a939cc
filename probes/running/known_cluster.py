"""Which cluster the probes of a journal folder have worked in.

Another one at the same addresses has none of its records: a name leads elsewhere, or a cluster was formatted anew. A
fleet that merely began anew in the stranger's topics would find nothing wrong there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from probes.kafka.errors import ProbeError

FILE: Final = "cluster"


def former_cluster(journal_folder: Path, bootstrap: str, cluster: str) -> str:
    """The id of the cluster that these probes found at these addresses last, empty where it is this one or none was.
    Raises ProbeError where the folder cannot be used."""
    try:
        known = _read(journal_folder / FILE)
    except OSError as refused:
        raise ProbeError(f"the journal folder {journal_folder} cannot be used: {refused.strerror}") from refused
    return known[1] if known[0] == bootstrap and known[1] != cluster else ""


def note_cluster(journal_folder: Path, bootstrap: str, cluster: str) -> None:
    """It is this one from now on: whoever begins has said which it was before. Raises ProbeError likewise."""
    kept = journal_folder / FILE
    try:
        if _read(kept) != (bootstrap, cluster):
            scratch = kept.with_suffix(".new")
            scratch.write_text(json.dumps({"bootstrap": bootstrap, "id": cluster}), encoding="utf-8")
            scratch.replace(kept)
    except OSError as refused:
        raise ProbeError(f"the journal folder {journal_folder} cannot be used: {refused.strerror}") from refused


def has_worked_at(journal_folder: Path, bootstrap: str) -> bool:
    """Whether the probes of this folder have worked at these addresses last. Raises OSError."""
    return _read(journal_folder / FILE)[0] == bootstrap


def known_id(journal_folder: Path) -> str:
    """The id of the cluster that the probes of this folder worked in last, empty where nobody knows. Raises OSError."""
    return _read(journal_folder / FILE)[1]


def _read(file: Path) -> tuple[str, str]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return str(told["bootstrap"]), str(told["id"])
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return "", ""
