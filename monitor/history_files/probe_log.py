"""A probe log that is kept, judged from its first row to its last: the Delta table `history` of a monitor or of a drill
that failed, or a copy of one.

It is a log that may go on, not a finished history: what waits for evidence that had not come when the log ended is not
judged, and a condition counts where it was still open then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from alerts.evidence import exact
from monitor.errors import UserError
from monitor.history_files.checks import Checks, cycles_of
from monitor.history_files.verdict import Evidence, Verdict, grouped
from rules.step import HELD
from rules.vocabulary.finding import Finding
from rules.vocabulary.finding import to_table as findings_table
from rules.vocabulary.objectives import Objectives
from rules.vocabulary.policy import severity
from rules.vocabulary.slices import Place
from rules.vocabulary.table_errors import in_words
from streaming_jobs.config import CyclesConfig, JobConfig
from streaming_jobs.cycles.search import CycleJob
from streaming_jobs.errors import EvidenceGap, TableError
from streaming_jobs.history import damage
from streaming_jobs.history.replay import Replay
from streaming_jobs.location import TableLocation, is_table, table_location
from streaming_jobs.tables.delta_tables import open_table
from streaming_jobs.tables.schemas import FINDINGS, PARTITION_STATE

SAY_EVERY: Final = 10.0
"""Seconds after which it is said how far it is: a day of a fleet takes half an hour."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Every event in the life of a finding, in the order found; each partition's summary; how many `rows` the log has,
    and of how many nobody knows what they say."""

    findings: list[Finding]
    summaries: Mapping[Place, Mapping[str, Any]]
    rows: int
    rejected: int


def located(given: str | Path) -> TableLocation | None:
    """The Delta table of the probe log at a path or a URL: the table itself, or what lies below a folder of tables or
    of data. None where there is none. Raises UserError where the URL is none, or its store does not answer."""
    try:
        at = table_location(str(given))
        places = (at, at / "history", at / "tables" / "history")
        return next((one for one in places if is_table(one)), None)
    except (ValueError, OSError, DeltaError) as error:
        raise UserError(f"{given}: {in_words(error)}") from error


def judge(
    history: TableLocation,
    objectives: Objectives,
    *,
    cycles: bool = True,
    ww: bool = False,
    pictures: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Judged:
    """Check the log in `history`. `cycles`: whether dependency cycles are searched for, their pictures go to the folder
    `pictures`. Raises the jobs' `TableError` and `EvidenceGap` where it cannot be read, and names what is damaged."""
    try:
        return _judged(history, objectives, cycles=cycles, ww=ww, pictures=pictures, say=say)
    except (TableError, EvidenceGap) as error:
        if damaged := damage.found(history, everything=True):
            raise TableError(f"{damage.told(damaged)} Put it back from a backup.") from error
        raise


def _judged(
    history: TableLocation,
    objectives: Objectives,
    *,
    cycles: bool,
    ww: bool,
    pictures: Path | None,
    say: Callable[[str], None],
) -> Judged:
    replay, checks = Replay(history), Checks(objectives, held=HELD)
    found: list[Finding] = []
    edges = replay.edges()
    checks.begin(edges)
    if edges:
        many = f"{len(edges)} partition{'s' * (len(edges) != 1)}"
        say(f"the first rows of {many} have been aged out: they are judged from where rows are left")
    rows, pieces = 0, replay.pieces()
    of, said = sum(piece.rows for piece in pieces), time.monotonic()
    for piece in pieces:
        found += checks.take(replay.read(piece))
        rows += piece.rows
        if time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            say(f"{rows:,} of {of:,} rows are judged")
    found += checks.settle()
    if cycles:
        found += _cycles(history, ww, pictures)
    found += checks.answer(history, last=True)
    return Judged(_once(found), checks.summaries, rows, len(checks.rejected))


def verdict(findings: Iterable[Finding], *, strict: bool = False, allow: Collection[str] = ()) -> Verdict:
    """Judge the findings of a log: its violations, and the conditions that were open when it ended."""
    return grouped(_standing(findings), _told, strict=strict, allow=allow)


@contextmanager
def as_tables(given: str | Path, objectives: Objectives, say: Callable[[str], None]) -> Iterator[tuple[Path, datetime]]:
    """A folder, for a moment, with what the job's tables would say of the probe log at a path or a URL, and the log
    time at which it ends.

    Raises UserError where there is no log, and the jobs' errors."""
    history = located(given)
    if history is None:
        raise UserError(f"{given}: there is no probe log: no Delta table, nor one in tables/history")
    judged = judge(history, objectives, say=say)
    rows = findings_table([(one, severity(one.anomaly, one.context)) for one in judged.findings])
    rows = rows.append_column("batch", pa.repeat(pa.scalar(0, pa.int64()), len(rows)))
    rows = rows.append_column("recorded", rows["at"])  # nobody was told of them when they happened
    states = pa.Table.from_pylist(
        [place._asdict() | dict(told) | _JUDGED_NOW for place, told in judged.summaries.items()], schema=PARTITION_STATE
    )
    end = pc.max(states["now"]).as_py() or datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="offsetwatch-") as scratch:
        open_table(Path(scratch), "findings").write(rows.select(FINDINGS.names).cast(FINDINGS), mode="append")
        open_table(Path(scratch), "partition_state").write(states, mode="append")
        yield Path(scratch), end


_JUDGED_NOW: Final = {"check_failed": None, "slices_behind": 0, "batch": 0}
"""Of `partition_state`, what is the job's own."""


def _cycles(history: TableLocation, ww: bool, pictures: Path | None) -> list[Finding]:
    """The job's own search, window by window; what it records for itself goes into a folder of the moment."""
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="offsetwatch-") as scratch:
        config = JobConfig(root=Path(scratch), history=history, cycles=CyclesConfig(ww=ww))
        CycleJob(config, [lambda searched: found.extend(cycles_of(searched))]).run()
        for drawn in sorted((config.root / "cycles").glob("*.svg")) if pictures is not None else ():
            assert pictures is not None
            (pictures / drawn.name).write_bytes(drawn.read_bytes())
    return found


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """What was raised twice is one finding; conditions open and close as often as they do."""
    known: set[str] = set()
    once = []
    for finding in findings:
        if finding.event == "raised" and finding.id in known:
            continue
        known.add(finding.id)
        once.append(finding)
    return once


def _standing(findings: Iterable[Finding]) -> list[Finding]:
    """Without the conditions that have closed."""
    standing: dict[str, Finding] = {}
    for finding in findings:
        if finding.event == "closed":
            standing.pop(finding.id, None)
        else:
            standing[finding.id] = finding
    return list(standing.values())


def _told(finding: Finding) -> Evidence:
    shown: dict[str, Any] = {"where": f"{finding.topic}/{finding.partition}" if finding.topic else finding.cluster}
    shown |= exact({**finding.evidence, **{k: v for k, v in finding.context.items() if k == "mode"}})
    return shown | {"message": finding.message}
