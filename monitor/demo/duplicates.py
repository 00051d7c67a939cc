"""The smaller story, for which one broker is enough: the same tagged records are written twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from monitor.demo.provocation import SentTwice, send_twice
from monitor.demo.story import Provoked, Row, Scene, Story, evidence_of
from monitor.process.reach import connection

RECORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Duplicated(Provoked):
    """Records of one writer stand twice in a partition, both copies acknowledged."""

    sent: SentTwice
    words: Mapping[str, str] = field(default_factory=lambda: {"duplicate": "one value stands at two offsets"})

    @property
    def at(self) -> datetime:  # type: ignore[override]
        return self.sent.at

    @property
    def since(self) -> str:  # type: ignore[override]
        return "the second copy was acknowledged"

    def lines(self) -> Iterator[str]:
        yield str(self.sent)

    def is_expected(self, row: Row) -> bool:
        if (row["anomaly"], row["topic"], row["partition"]) != ("duplicate", self.sent.topic, self.sent.partition):
            return False
        evidence = evidence_of(row)
        return evidence.get("writer") == self.sent.writer and 0 <= evidence.get("seq", -1) < self.sent.records

    def missing(self, found: Sequence[Row]) -> list[str]:
        lacking = self.sent.records - len(found)
        return [f"{lacking} of {self.sent.records} duplicates"] if lacking else []


class Duplicates(Story):
    """A producer without idempotence sends a few records, and the same bytes again."""

    name = "duplicates"
    title = "records written twice"
    brokers = 1

    def act(self, scene: Scene) -> Provoked:
        status = scene.probes.status()
        assert status.layout is not None
        where = max(status.layout.partitions(scene.config.probes.topics.records))
        scene.tell(f"a producer without idempotence sends {RECORDS} tagged records to")
        scene.tell(f"{where[0]}/{where[1]}, and the same bytes again")
        sent = send_twice(
            connection(scene.config),
            scene.config.journals,
            run=status.run,
            layout=status.layout,
            where=where,
            records=RECORDS,
        )
        scene.tell(f"both copies are acknowledged: at offset {sent.first}, and at {sent.second}")
        return Duplicated(sent)
