"""What a story of the demonstration is: something that really happens to a real cluster, and what must be found then.

story.prepare(kafka, config)     before the probes begin
provoked = story.act(scene)      make it happen; the probes and the checks are at work
provoked.missing(rows)           what is not found yet, in words: empty when all of it is
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from deploy.local_kafka import LocalKafka
from monitor.config.config import Config
from monitor.demo.probes import ProbeProcess
from monitor.errors import UserError

Row = Mapping[str, Any]
"""A finding: a row of `current_findings`, or an event's fields of the same names."""
_LOOK: Final = 0.05


def evidence_of(row: Row) -> Mapping[str, Any]:
    """The evidence as an object, whether it comes from the table (JSON) or from an event."""
    evidence = row["evidence"]
    found: Mapping[str, Any] = json.loads(evidence) if isinstance(evidence, str) else evidence
    return found


class Stopped(Exception):
    """The demonstration ends before the story does."""


class Provoked(ABC):
    """What was done to the cluster. `at`: when, by the wall clock; what is found is timed from then. `since` says in
    words what happened then."""

    at: datetime
    since: str
    words: Mapping[str, str] = {}
    """What an expected finding means here, by its name."""
    conditions: frozenset[str] = frozenset()
    """Names of conditions that follow from what was done."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """What was done, for the end of the demonstration; a few lines of text."""

    @abstractmethod
    def is_expected(self, row: Row) -> bool:
        """Is it one of the findings that must come?"""

    @abstractmethod
    def missing(self, found: Sequence[Row]) -> list[str]:
        """What of it is not among the expected findings; empty where all is."""

    def is_consequence(self, row: Row) -> bool:
        """Does the same fault make this one true, too?"""
        return False


class NotProvoked(UserError):
    """It did not happen on this cluster; the text says why. `tried`: what was done to the cluster all the same."""

    def __init__(self, why: str, tried: Provoked | None = None) -> None:
        super().__init__(why)
        self.tried = tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a story acts on. `tell` shows a line to the user, 72 columns at most."""

    kafka: LocalKafka
    config: Config
    probes: ProbeProcess
    tell: Callable[[str], None]
    stop: threading.Event

    def wait(self, until: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait until it holds. Raises NotProvoked after `seconds`, saying that `what` did not happen, and Stopped."""
        limit = time.monotonic() + seconds
        while not until():
            if self.stop.wait(_LOOK):
                raise Stopped
            if time.monotonic() > limit:
                raise NotProvoked(f"{what} did not happen within {seconds:.0f} s")


class Story(ABC):
    """One story. `title`: what happens, for people. `brokers`: how many it needs at least."""

    name: ClassVar[str]
    title: ClassVar[str]
    brokers: ClassVar[int]

    def prepare(self, kafka: LocalKafka, config: Config) -> None:
        """Make what has to be there before the probes begin."""
        del kafka, config  # as a rule nothing

    @abstractmethod
    def act(self, scene: Scene) -> Provoked:
        """Make it happen, telling each step. Raises NotProvoked where it does not happen, and Stopped."""
