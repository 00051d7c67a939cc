"""What `offsetwatch explain` adds on request: a picture, and what stands in the cluster now."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from rich.text import Text

from monitor.config.config import Config
from monitor.config.names import ClusterNames
from monitor.diagrams.space_time_svg import STYLE, svg
from monitor.errors import UserError
from monitor.incidents.explained import Explained
from monitor.postmortem.raw_log import lines, read
from monitor.status.evidence import Evidence, EvidenceReader


def evidence_of(config: Config, found: Explained, now: datetime) -> Evidence:
    """The records that the first finding is about, and who did what with them. Raises UserError where it names none,
    or the probe log no longer tells."""
    hold, names = timedelta(seconds=config.alerts.quiet), ClusterNames(config)
    reader = EvidenceReader(config.job.tables_path, config.job.history_path, hold, called=names)
    evidence = reader.of(found.findings[0]["id"], now)
    if evidence.about is None:
        raise UserError("--picture and --raw are for findings about records, and this one names none")
    return evidence


def draw(config: Config, found: Explained, now: datetime, output: Path) -> None:
    """Write a picture that stands for itself: of a cycle its own, else who sent and who polled the records."""
    cycle = config.job.root / "cycles" / f"{found.findings[0]['id']}.svg"
    drawn = cycle.read_text(encoding="utf-8") if cycle.is_file() else _space_time(evidence_of(config, found, now))
    try:
        output.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--picture {output}: {error.strerror or error}") from error


def _space_time(evidence: Evidence) -> str:
    drawn = svg(evidence.diagram) if evidence.diagram is not None else ""
    if not drawn:
        raise UserError("--picture: the probe log no longer has what was done with these records")
    alone = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="1200" ', 1)
    head, _, rest = alone.partition(">")
    return f"{head}><style>{STYLE}</style>{rest}\n"


def raw_lines(config: Config, found: Explained, now: datetime, width: int) -> Iterator[Text]:
    """The batches and markers around the records, as the leader has them now."""
    evidence = evidence_of(config, found, now)
    about, first = evidence.about, evidence.explained.findings[0]
    assert about is not None
    offsets = sorted({*about.offsets, *(evidence.diagram.offsets if evidence.diagram is not None else ())})
    if not offsets:
        raise UserError("--raw: nobody was told an offset of these records")
    topic = about.topic or first["topic"]
    if config.clusters:
        config = config.of(_name(config, first["cluster"]))
    log = read(config, topic, about.partition, offsets)
    yield Text("")
    yield Text(f"What stands in {topic}/{about.partition} now", style="bold")
    if log.cluster != first["cluster"]:
        yield Text(f"of cluster {log.cluster}; the finding is of cluster {first['cluster']}", style="yellow")
    for line in lines(log, offsets, evidence.names):
        for part in textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False, drop_whitespace=False):
            yield Text(part)


def _name(config: Config, cluster: str) -> str:
    name = ClusterNames(config)(cluster)
    if not name:
        raise UserError(f"--raw: the configuration names no cluster with the id {cluster}")
    return name
