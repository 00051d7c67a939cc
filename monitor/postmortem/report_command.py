"""`offsetwatch report`: the page of a stretch of time, written to a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from monitor.config.config import Config
from monitor.errors import UserError
from monitor.incidents.findings import require_topics
from monitor.postmortem.database import MEMORY
from monitor.postmortem.report import gather, html, sentences, stretch
from monitor.postmortem.sql_command import Part, sources
from monitor.postmortem.stretch import Stretch

STDOUT: Final = Path("-")


def run(output: Path, asked: Stretch, config: Config, history: str | None) -> None:
    """Write the report, and say in two sentences what it says; on stderr where the page itself goes to standard output.
    Raises UserError where it cannot."""
    told = write(output, asked, config, history)
    if output == STDOUT:
        print(f"offsetwatch: {told}", file=sys.stderr)
        return
    print(told)
    print(f"{output}: {output.stat().st_size / 1_000_000:.1f} MB", file=sys.stderr)


def _require_writable(output: Path) -> None:
    """Before the work, which takes minutes of a large log. What is there stays: it may be a device. Raises
    UserError."""
    try:
        fresh = not output.exists()
        with output.open("ab"):
            pass
        if fresh:
            output.unlink()
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from error


def write(output: Path, asked: Stretch, config: Config, history: str | None) -> str:
    """Write the report; returns what it says, in two sentences. Raises UserError where it cannot."""
    if output != STDOUT:
        _require_writable(output)
    named = ("--from", "--to")
    part = Part(since=asked.begin, until=asked.end, options=named, cluster=asked.cluster, memory=MEMORY)
    with sources(config, history, part) as found:
        of = replace(found, topics=asked.topics)
        require_topics(of.tables, of.history, of.topics)
        first, last = stretch(of)
        if last <= first:
            raise UserError(
                f"--to {asked.end} is not after --from {asked.begin}"
                if asked.end is not None
                else f"--from {asked.begin} is yet to come: it is {last:%Y-%m-%d %H:%M} UTC"
            )
        gathered = gather(replace(of, since=None, until=None), first, last, config.job.root / "cycles")
        text = html(gathered, datetime.now(UTC))
    if output == STDOUT:
        sys.stdout.write(text)
        return " ".join(sentences(gathered))
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output}: {error.strerror or error}") from error
    return " ".join(sentences(gathered))
