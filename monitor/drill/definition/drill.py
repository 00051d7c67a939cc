"""What a drill is: a published bug, made to happen between real clients and a real broker, and what must be found then.

A drill is a row: what really happens, in words; what it needs; what must and may be found. Its `play` makes it happen
(`monitor.drill.definition.play`), and is made anew for each run. Most are one lie of the proxy, or one fault:

    Drill(
        name="retry-without-idempotence",
        what="The acknowledgement is dropped, and a client without idempotence retries.",
        seen_in="Redpanda #1",
        must=(found("duplicate", severity="warning"),),
        may=ORDER,
        play=lambda: OneLie(DropProduceResponse(PLAIN, THRICE), actors=[plain_writer()]),
    )

A drill that needs several runs (two versions of Kafka, with and without a restart) is several rows of one name and
different `case`.

**Must** is what has to be raised (a condition: opened), **may** names the other violations that the drill itself makes
true. Every other violation is a false alarm, and so is a rule that crashed. Conditions and classified findings do not
fail a drill, unless it names them in `never`, or says that all conditions `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.jars import KAFKA
from deploy.kafka_settings import Setting
from monitor.drill.definition.play import Play
from rules.vocabulary.finding import Event, Finding
from rules.vocabulary.objectives import SECOND, Objectives

OLD_KAFKA: Final = "3.8.1"
"""The version with the older transaction protocol."""

ORDER: Final = frozenset(
    {
        "int-poll-skip",
        "int-nonmonotonic-poll",
        "int-send-skip",
        "int-nonmonotonic-send",
        "poll-skip",
        "nonmonotonic-poll",
        "nonmonotonic-send",
    }
)
"""The skip and nonmonotonic findings, internal and external: what most lies about a log's order make true."""

NOTHING: Final[frozenset[str]] = frozenset()

SHORT: Final = Objectives(grace=3 * SECOND, delivery=3 * SECOND, liveness=8 * SECOND)
"""Objectives that make a drill take seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Must:
    """One finding that has to come: any of `names`, with this severity, event and these entries in its evidence, where
    they are given. Without an event, `raised` or `opened`. `times`: exactly so often, where it is given."""

    names: tuple[str, ...]
    severity: str | None = None
    event: Event | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    times: int | None = None

    def matches(self, finding: Finding, severity: str) -> bool:
        """Is this the finding?"""
        return (
            finding.anomaly in self.names
            and (finding.event == self.event if self.event else finding.event in ("raised", "opened"))
            and self.severity in (None, severity)
            and all(finding.evidence.get(key) == value for key, value in self.evidence.items())
        )

    def __str__(self) -> str:
        told = [self.severity or "", self.event if self.event == "closed" else ""]
        told += [f"{key} {value}" for key, value in self.evidence.items()]
        told += ["once" if self.times == 1 else f"{self.times} times"] if self.times is not None else []
        more = ", ".join(part for part in told if part)
        return " or ".join(self.names) + (f" ({more})" if more else "")


def found(
    *names: str, severity: str | None = None, event: Event | None = None, times: int | None = None, **evidence: Any
) -> Must:
    """Any of these anomalies must be found."""
    return Must(names=names, severity=severity, event=event, evidence=evidence, times=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """The cluster that a drill runs on. `settings`: broker settings that differ from those of a local Kafka."""

    brokers: int = 1
    version: str = KAFKA
    settings: tuple[tuple[str, Setting], ...] = ()


ONE: Final = ClusterKind()
ONE_OLD: Final = ClusterKind(version=OLD_KAFKA)
THREE: Final = ClusterKind(brokers=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One run of a drill."""

    name: str
    case: str = ""
    """What tells this run from the drill's others; empty for the only one."""
    what: str
    """What really happens."""
    seen_in: str
    """Where the bug was first seen."""
    must: tuple[Must, ...] = ()
    may: frozenset[str] = NOTHING
    never: frozenset[str] = NOTHING
    """Conditions and classified findings that fail this drill, unless another finding explains them."""
    closes: bool = False
    """Every condition has to be closed in the end."""
    cluster: ClusterKind = ONE
    changes_cluster: bool = False
    """It does something to brokers, or to settings, that others who use the cluster would notice."""
    spoils_cluster: bool = False
    """The cluster is no good for another drill afterwards."""
    probes: Mapping[str, Any] = field(default_factory=dict)
    """What differs from `QUIET`, as in the configuration's section `probes`."""
    limit: float = 60.0
    """Seconds that the must findings may take, counted from the end of the play's `act`."""
    play: Callable[[], Play]

    @property
    def title(self) -> str:
        """The name, and which of its runs."""
        return f"{self.name}/{self.case}" if self.case else self.name


QUIET: Final[Mapping[str, Any]] = {
    "topics": {"partitions": 2},
    "writer": {"count": 1, "with_five_in_flight": 0, "rate": 100.0, "partitions_per_batch": 2},
    "reader": {
        "assign": 2,
        "group": 0,
        "restless": 0,
        "per_broker": False,
        "commit_interval": 1.0,
        "position_interval": 1.0,
    },
    "transaction": {"count": 0},
    "transform": {"count": 0},
    "aborts": {"count": 0},
    "registers": {"count": 0},
    "zombies": {"count": 0},
    "end_to_end": {"count": 0},
    "audit": {"enabled": False},
    "unrest": {"enabled": False},
}
"""The probes of a drill that asks for nothing else: a writer, two readers and the observer, two partitions a topic."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` in it, table by table; pure."""
    result = dict(base)
    for key, value in changes.items():
        inner = result.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        result[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return result
