"""What the data folder takes, how fast it grows, and how long the disk will do.

The probe log is what grows: by so many bytes a second as its files hold, until ageing (`job.upkeep.history_days`, or
`max_gb`) takes away as much as comes. Everything else is bounded by less.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from rich.text import Text

from monitor.config.config import Config
from streaming_jobs.config import JobConfig
from streaming_jobs.location import TableLocation, TableUrl, impatience, opened
from streaming_jobs.tables.cap import bytes_and_files
from streaming_jobs.tables.schemas import SPECS

DAY: Final = timedelta(days=1)
LEAST: Final = timedelta(minutes=10)
"""What the log tells of less time says nothing about a day."""
OTHERS: Final = ("journals", "checkpoints", "logs", "cycles", "alerts", "spark")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Part:
    """A folder: its bytes and files on the disk. Of a table `live` are the files of its newest version; the others are
    deleted by the monitor's upkeep, a day later."""

    name: str
    size: int
    files: int
    live: int | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes of the disk on which a folder is."""

    folder: Path
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Storage:
    """`free`, `total`: bytes of the data folder's disk; `others`: the other disks that are written to, `log_disk` that
    of the probe log where it is one of them. `rate`: bytes a day that the probe log grows by, None where it is too
    short to say; `span`: how long its rows reach; `kept`: for how long they are kept, unless the folder would take more
    than `most` bytes. `elsewhere`: the URL of a probe log that is in an object store, and takes none of this disk;
    `tables`: that of the other tables there. `stored`: what the newest versions of those in the store take."""

    data: Path
    parts: Sequence[Part]
    free: int
    total: int
    rate: float | None
    span: timedelta
    kept: timedelta
    most: float | None = None
    elsewhere: TableUrl | None = None
    tables: TableUrl | None = None
    others: Sequence[Disk] = ()
    log_disk: Disk | None = None
    stored: Sequence[Part] = ()

    @property
    def taken(self) -> int:
        """Bytes of the whole folder."""
        return sum(part.size for part in self.parts)

    @property
    def needed(self) -> float | None:
        """Bytes that the probe log will still grow by until ageing holds it, None where nobody can say."""
        if self.rate is None:
            return None
        if self.elsewhere is not None:
            return 0.0
        grows = self.rate * (max(self.kept - self.span, timedelta(0)) / DAY)
        return grows if self.most is None else min(grows, max(self.most - self.taken, 0.0))

    @property
    def days_left(self) -> float | None:
        """Days until the disk is full at this rate; None where it will not be, or nobody can say."""
        needed, free = self.needed, self.log_disk.free if self.log_disk is not None else self.free
        return None if self.rate is None or needed is None or needed <= free else free / self.rate


def survey(config: Config) -> Storage:
    """Look at the data folder, without opening any of its files but the tables' logs. Where there is none, as on a host
    that only asks tables elsewhere, the disk is that on which it would be. Raises OSError."""
    data, job = config.data, config.job
    parts = [_table(f"tables/{folder.name}", folder) for folder in _folders(job.tables_path)]
    parts += [Part(name, *bytes_and_files(data / name)) for name in OTHERS if (data / name).is_dir()]
    rate, span = _growth(job.history_path)
    there = next(at for at in (data, *data.absolute().parents) if at.is_dir())
    disk = shutil.disk_usage(there)
    kept = timedelta(days=job.upkeep.history_days)
    most = None if job.upkeep.max_gb is None else job.upkeep.max_gb * 1e9
    shown = [part for part in parts if part.files]
    elsewhere, tables = (at if isinstance(at, TableUrl) else None for at in (job.history_path, job.tables_path))
    others = _others(there, config.written)
    log_disk = None if elsewhere is not None else _on(job.history_path, others)
    stored = _stored(job) if elsewhere is not None or tables is not None else []
    return Storage(
        data,
        shown,
        disk.free,
        disk.total,
        rate,
        span,
        kept,
        most,
        elsewhere,
        tables,
        list(others.values()),
        log_disk,
        stored,
    )


def _others(own: Path, folders: Sequence[Path]) -> dict[int, Disk]:
    """By device, the disks that these folders are on and `own` is not, each with the first folder that is there."""
    at = {one.stat().st_dev: one for one in (*reversed(folders), own) if one.is_dir()}
    del at[own.stat().st_dev]
    disks = {device: (folder, shutil.disk_usage(folder)) for device, folder in at.items()}
    return {device: Disk(folder, disk.free, disk.total) for device, (folder, disk) in disks.items()}


def _on(folder: TableLocation, disks: Mapping[int, Disk]) -> Disk | None:
    return disks.get(folder.stat().st_dev) if isinstance(folder, Path) and folder.is_dir() else None


def as_json(storage: Storage) -> dict[str, Any]:
    """The same for programs: sizes in bytes."""
    return {
        "data": str(storage.data),
        "parts": {part.name: {"bytes": part.size, "files": part.files, "live": part.live} for part in storage.parts},
        "free": storage.free,
        "total": storage.total,
        "other_disks": [{"folder": str(at.folder), "free": at.free, "total": at.total} for at in storage.others],
        "bytes_a_day": storage.rate,
        "days_left": storage.days_left,
        "max_bytes": storage.most,
        "probe_log": str(storage.elsewhere) if storage.elsewhere is not None else None,
        "tables": str(storage.tables) if storage.tables is not None else None,
        "stored": {part.name: {"bytes": part.size, "files": part.files} for part in storage.stored},
    }


def lines(storage: Storage) -> Iterator[Text]:
    """The folder's parts, the largest first, the small ones as one, and the outlook."""
    yield Text(f"{storage.data}: {size(storage.free)} free of {size(storage.total)}", style="bold")
    for disk in storage.others:
        yield Text(f"{disk.folder}: {size(disk.free)} free of {size(disk.total)}", style="bold")
    shown = [part for part in storage.parts if part.size >= storage.taken / 100]
    for part in sorted(shown, key=lambda part: (-part.size, part.name)):
        live = f", {part.live:,} of them live" if part.live is not None else ""
        yield Text(f"  {part.name:<22} {size(part.size):>8} in {part.files:,} file{'s' * (part.files > 1)}{live}")
    if rest := [part for part in storage.parts if part not in shown]:
        yield Text(f"  {f'{len(rest)} others':<22} {size(sum(part.size for part in rest)):>8}")
    if storage.tables is not None:
        yield Text(f"  the tables are at {storage.tables}")
    for part in sorted(storage.stored, key=lambda part: (-part.size, part.name)):
        yield Text(f"  {part.name:<22} {size(part.size):>8} in {part.files:,} live file{'s' * (part.files != 1)} there")
    yield Text("")
    yield Text(outlook(storage), style="bold red" if storage.days_left is not None else "")


def outlook(storage: Storage) -> str:
    """What comes, in a sentence."""
    kept = f"{storage.kept / DAY:g} days (job.upkeep.history_days)"
    if storage.most is not None:
        kept += f", or as long as the folder stays below {size(storage.most)} (max_gb)"
    if storage.rate is None or storage.needed is None:
        return "How fast it grows can be told once the probe log is ten minutes long."
    grows = f"The probe log grows by {size(storage.rate)} a day"
    if storage.elsewhere is not None:
        return f"{grows} at {storage.elsewhere}, which takes none of this disk, and is kept for {kept}."
    if storage.days_left is not None:
        left = storage.days_left
        when = f"{left:.0f} days" if left >= 2 else f"{left * 24:.0f} hours"
        return (
            f"{grows}: THE DISK IS FULL IN {when.upper()}. It is kept for {kept}, for which {size(storage.needed)} "
            "more are needed."
        )
    return f"{grows} and is kept for {kept}: {size(storage.needed)} more, and no more then."


def size(count: float) -> str:
    """Bytes for people: three digits and a unit."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.95 else f"{value:.1f} {_UNITS[unit]}"


def _folders(tables: TableLocation) -> list[Path]:
    if not isinstance(tables, Path) or not tables.is_dir():
        return []
    return sorted(folder for folder in tables.iterdir() if folder.is_dir())


def _table(name: str, folder: Path) -> Part:
    taken = bytes_and_files(folder)
    try:
        return Part(name, *taken, live=len(DeltaTable(str(folder)).file_uris()))
    except (DeltaError, OSError):  # being made, or none of ours
        return Part(name, *taken)


def _stored(job: JobConfig) -> list[Part]:
    """Of the tables that are in an object store, what their newest versions take: what these no longer need is there as
    well, until upkeep has deleted it."""
    at: dict[str, TableLocation] = {"history": job.history_path} | {name: job.tables_path / name for name in SPECS}
    found = []
    for name, location in at.items():
        if not isinstance(location, TableUrl):
            continue
        try:
            table = opened(location, impatient=True)
        except (DeltaError, OSError):
            break  # it is away, as another line says: each of the others would be waited for as well
        if table is not None:
            sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
            found.append(Part(name, sum(sizes), len(sizes)))
    return [part for part in found if part.files]


def _growth(history: TableLocation) -> tuple[float | None, timedelta]:
    """Bytes a day of the log's rows, and how long they reach, by what the table's log says of its files."""
    try:
        files = pa.table(DeltaTable(str(history), storage_options=impatience(history)).get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return None, timedelta(0)
    first, last = (_known(files, column) for column in ("min.invoked", "max.completed"))
    span = max(last) - min(first) if first and last else timedelta(0)
    taken = sum(files["size_bytes"].to_pylist())
    return (taken / (span / DAY) if span >= LEAST else None), span


def _known(files: pa.Table, column: str) -> list[datetime]:
    values = files[column].to_pylist() if column in files.schema.names else []
    return [value for value in values if value is not None]
