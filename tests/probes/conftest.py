"""A stage for single probes: a world on a real cluster, real journals, and a witness of every row that was logged."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from deploy.local_kafka import LocalKafka
from probes.clock import SystemClock
from probes.config import ProbesConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.log.journals.differences import messages_of
from probes.log.journals.frames import frames
from probes.log.journals.journal import Journal
from probes.log.journals.segments import segments
from probes.log.life_log import LifeLog
from probes.log.rows import unpack
from probes.topics.probe_topics import ProbeTopics
from probes.topology import Layout
from probes.workloads.probe import Carried, Counters, Probe, World
from rules.vocabulary.slices import Slice
from rules.vocabulary.times import micros

P = TypeVar("P", bound=Probe)
QUIET = {"enabled": False}
FEW_TOPICS = {"transform": {"count": 0}, "registers": {"count": 0}}


class Witness(LifeLog):
    """A life's log that also keeps its rows in memory, and holds it to its word: no row is of an operation that was
    invoked before what the journal had promised to be all, and that it did not know of."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rows: list[Slice] = []

    def append(self, rows: Sequence[Slice]) -> None:
        progress = self._journal.progress
        promised, opened = progress.through, progress.open.keys()
        late = [row for row in rows if row.op not in opened and micros(row.invoked) < promised]
        super().append(rows)
        self.rows += rows
        assert not late, f"{late[0].f} of {late[0].invoked} comes after all before {promised} was promised"

    def of(self, *functions: str) -> list[Slice]:
        return [row for row in self.rows if row.f in functions]


class Stage:
    """Puts single probes on a cluster, in a topic of their own."""

    def __init__(self, bootstrap: str, folder: Path, **config: Any) -> None:
        self.prefix = f"stage-{uuid.uuid4().hex[:8]}"
        topics = {"prefix": self.prefix, "partitions": 3, **config.pop("topics", {})}
        self.config = ProbesConfig.model_validate({"topics": topics, "unrest": QUIET, **FEW_TOPICS, **config})
        self.connection = Connection(bootstrap)
        self.clock = SystemClock()
        self.folder = folder
        self.said: list[str] = []
        self.changes = 0
        self.admin = open_admin(admin_settings(self.connection, client="stage"))
        self.topics = ProbeTopics(self.admin, self.config.topics, self.said.append, self.config.topic_names)
        self.layout: Layout = self.topics.ensure()
        self.probes: list[Probe] = []

    @property
    def world(self) -> World:
        return World(
            config=self.config,
            connection=self.connection,
            clock=self.clock,
            run="run-a",
            runs=frozenset({"run-a"}),
            layout=lambda: self.layout,
            places_changed=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    def put(self, make: Callable[..., P], name: str, carried: Carried | None = None, **options: Any) -> P:
        """A probe whose life has begun."""
        counters = Counters(name, make.kind)  # type: ignore[attr-defined]
        probe = make(name, self.world, self.layout, counters, carried or Carried(), random.Random(name), **options)
        life = probe.life()
        probe.log = Witness(Journal.create(self.folder, life), life, self.layout, self.clock)
        self.probes.append(probe)
        probe.log_start()
        probe.open()
        return probe

    def read_journal(self, probe: Probe) -> list[Slice]:
        """Every row of the probe's life, as its journal on disk holds them."""
        (folder,) = [path for path in (self.folder / "lives").iterdir() if path.name.endswith(f"{probe.process:016x}")]
        found, ending = frames(b"".join(path.read_bytes() for _, path in segments(folder)))
        assert ending == "clean"
        rows = [row for message in messages_of(found) if message[0] in ("rows", "closed") for row in message[1]]
        return [unpack(row, probe.log.life.shared) for row in rows]

    def end(self) -> None:
        for probe in self.probes:
            if not probe.log.ended:
                probe.close()
                probe.log.end("ok")


MakeStage = Callable[..., Stage]
"""Of the probes' configuration, as keywords."""


def witness(probe: Probe) -> Witness:
    assert isinstance(probe.log, Witness)
    return probe.log


@pytest.fixture
def stage(kafka: LocalKafka, tmp_path: Path) -> Iterator[MakeStage]:
    made: list[Stage] = []

    def make(**config: Any) -> Stage:
        made.append(Stage(kafka.bootstrap, tmp_path / "journal", **config))
        return made[-1]

    yield make
    for one in made:
        one.end()
