"""`offsetwatch export`: a range of the probe log as a file for another checker."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

from monitor.commands.times import between
from monitor.config.config import Config
from monitor.config.names import chosen
from monitor.errors import UserError
from monitor.history_files.export import FileContents, Range, events
from monitor.history_files.writing import edn_line, json_line
from monitor.incidents.findings import known_clusters, require_topics
from monitor.incidents.witnesses import names
from monitor.postmortem.stretch import Stretch
from streaming_jobs.history.reachable import reading
from streaming_jobs.location import TableLocation, opened

Form = Literal["edn", "jsonl"]


def form_of(output: Path, asked: str | None) -> Form:
    """The form that is asked for, else the one that the file's name tells, of standard output JSON lines. Raises
    UserError where the name tells none."""
    if asked is not None:
        return "edn" if asked == "edn" else "jsonl"
    suffix = Path(output.stem).suffix if output.suffix == ".gz" else output.suffix
    if output != Path("-") and suffix not in (".edn", ".jsonl", ".json"):
        raise UserError(
            f"{output}: its name ends in none of .edn, .jsonl and .json (also .gz): rename it, or give --form"
        )
    return "edn" if suffix == ".edn" else "jsonl"


def run(output: Path, form: Form, asked: Stretch, config: Config) -> None:
    """The command. What was written, and what was left out, is told on stderr."""
    first, last = between(asked.begin, asked.end, datetime.now(UTC))
    with reading(config.job.history_path):
        require_topics(config.job.tables_path, config.job.history_path, asked.topics)
    cluster = chosen(config, known_clusters(config.job.tables_path), asked.cluster)
    wanted = Range(since=first, until=last, topics=asked.topics, cluster=cluster)
    with reading(config.job.history_path):
        told = export(config.job.history_path, wanted, output, form)
    for sentence in sentences(told, output):
        print(f"offsetwatch: {sentence}", file=sys.stderr)


def export(history: TableLocation, wanted: Range, output: Path, form: Form) -> FileContents:
    """Write the range to `output` (`-` is standard output; `.gz` is compressed). Raises UserError where it cannot."""
    if opened(history) is None:
        raise UserError(f"there is no probe log in {history}: give the data folder of a monitor with --data")
    told = FileContents()
    line = edn_line if form == "edn" else json_line
    found = events(history, wanted, lambda processes: names(history, processes), told)
    legend = next(found)  # a range that holds nothing leaves no file
    with _opened(output) as stream:
        stream.write(line(legend))
        for event in found:
            stream.write(line(event))
    return told


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    if output == Path("-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if output.suffix == ".gz":
            with gzip.open(output, "wb", compresslevel=6) as packed:
                yield packed  # type: ignore[misc]
        else:
            with output.open("wb") as plain:
                yield plain
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from error


def sentences(told: FileContents, output: Path) -> Iterator[str]:
    """What was written and what was left out, for a person."""
    where = "standard output" if output == Path("-") else output
    yield f"{told.operations:,} operations with {told.records:,} records are in {where}"
    for what, number in told.left_out.items():
        if number:
            yield f"left out: {number:,} {what}"
    if told.hosts > 1:
        yield f"its times are of {told.hosts} hosts: what is concluded from real time is as good as their clocks"
