"""A table whose newest checkpoint is damaged is read by its commits, if they are there; a damaged commit is named.

A checkpoint of Delta's log only says again what the commits before it say. Where a bad disk, or the loss of the host,
has left one that cannot be read, or a hint at one that is not there, the table cannot be opened at all, although
nothing is lost. So it is set aside, as `*.damaged`, where the commits since the last good one are there. Local folders
alone: an object store writes whole files or none.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("offsetwatch.tables")

DAMAGED: Final = ".damaged"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\..*)?\.parquet")
_HINT: Final = "_last_checkpoint"


def mend(table: Path) -> bool:
    """Take damaged checkpoints, and a hint at one that is not there, out of a table's log; returns whether there was
    one. Raises OSError where nothing may be written, and for one that says what no commit says any more: it is left."""
    mended = False
    while (damaged := _damaged(table)) is not None:
        _set_aside(table, damaged)
        mended = True
    hint = table / "_delta_log" / _HINT
    if hint.is_file() and not _leads_somewhere(hint, table):
        hint.unlink(missing_ok=True)
        mended = True
    return mended


def damaged_commit(table: Path) -> Path | None:
    """The first commit since the newest checkpoint that holds something, and not what a commit does: half of a file,
    or zeros. One that is empty is passed over, as Delta's readers do."""
    since = max(_checkpoints(table), default=-1)
    for commit in sorted(one for one in _log(table) if _COMMIT.fullmatch(one.name) and _version(one) > since):
        try:
            for line in commit.read_bytes().splitlines():
                json.loads(line)
        except ValueError:
            return commit
    return None


def absent_commit(table: Path) -> Path | None:
    """The first commit since the newest checkpoint that is not there, though a later one is."""
    since = max(_checkpoints(table), default=-1)
    there = {int(found[1]) for one in _log(table) if (found := _COMMIT.fullmatch(one.name))}
    absent = next((version for version in range(since + 1, max(there, default=-1)) if version not in there), None)
    return None if absent is None else table / "_delta_log" / f"{absent:020}.json"


def empty_commits(table: Path) -> list[Path]:
    """The commits since the newest checkpoint that hold nothing, as the loss of a host leaves what was not synced.
    Delta's readers pass them over without a word: what they said is gone."""
    if not (table / "_delta_log").is_dir():
        return []
    since = max(_checkpoints(table), default=-1)
    commits = sorted(one for one in _log(table) if _COMMIT.fullmatch(one.name) and _version(one) > since)
    return [commit for commit in commits if not commit.stat().st_size]


def write_off(commits: Iterable[Path]) -> None:
    """Let these commits say that what they said is lost, once it has been found again where it could be."""
    for commit in commits:
        made = commit.with_suffix(".writing")
        made.write_text('{"commitInfo":{"timestamp":0,"operation":"LOST","operationParameters":{}}}\n')
        made.replace(commit)


def _damaged(table: Path) -> Path | None:
    """The newest checkpoint, if it cannot be read: a reader begins with that."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    checkpoints = _checkpoints(table)
    for file in checkpoints[max(checkpoints)] if checkpoints else ():
        try:
            pq.ParquetFile(file).read()
        except (OSError, pa.ArrowException):
            return file
    return None


def _set_aside(table: Path, damaged: Path) -> None:
    version, checkpoints = _version(damaged), _checkpoints(table)
    before = max((one for one in checkpoints if one < version), default=-1)
    commits = {int(found[1]): one for one in _log(table) if (found := _COMMIT.fullmatch(one.name))}
    wanted = range(before + 1, max(commits, default=version) + 1)
    if not set(wanted) <= commits.keys():
        raise OSError(f"its checkpoint {damaged} is damaged, and the commits before it are gone")
    empty = [number for number in wanted if not commits[number].stat().st_size]
    for file in checkpoints[version]:
        with suppress(FileNotFoundError):  # another reader was first
            file.rename(file.with_name(file.name + DAMAGED))
    said = f", and nothing is known of commits {', '.join(map(str, empty))}, which are empty" if empty else ""
    log.warning("the checkpoint %s of a table is damaged: it is set aside, and its commits are read%s", damaged, said)


def _leads_somewhere(hint: Path, table: Path) -> bool:
    try:
        return int(json.loads(hint.read_bytes())["version"]) in _checkpoints(table)
    except (ValueError, TypeError, KeyError):
        return False


def _checkpoints(table: Path) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for one in _log(table):
        if _CHECKPOINT.fullmatch(one.name):
            found.setdefault(_version(one), []).append(one)
    return found


def _version(file: Path) -> int:
    return int(file.name[:20])


def _log(table: Path) -> list[Path]:
    return list((table / "_delta_log").iterdir())
