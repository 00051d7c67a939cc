"""By what an event of a finding finds its incident, and what it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from alerts.event import FindingEvent
from alerts.incidents.judged import is_condition
from rules.vocabulary.conditions import UNREACHABLE
from rules.vocabulary.slices import LOGIN_REFUSED

Key = tuple[Any, ...]

OF_A_RECORD: Final = frozenset({"transaction", "value", "offset"})
"""Keys by which what is about the same record joins."""

OF_THE_CLUSTER: Final = frozenset(
    {
        "cluster-unreachable",
        "evidence-gap",
        "evidence-late",
        "foreign-commit",
        "log-truncation",
        "lost-commit",
        "offset-regression",
        "refused-reads",
        "refused-writes",
        "replaced-cluster",
        "replicas-out-of-sync",
        "stuck-close",
        "stuck-consumer",
        "stuck-producer",
        "throttled",
        "under-min-isr",
        "under-replicated-probe-topic",
        "unsafe-config",
        "unverifiable",
        "window-overflow",
    }
)
"""What concerns how a cluster is set up, a process or a group that works on many topics, or a broker that leads
partitions of many: one fact, and not one a topic."""

_ZERO: Final = "spurious-zero-offset"
TELLS: Final = {"foreign-commit": "told", "lost-commit": "told", "offset-regression": "after"}
"""Where the evidence of a finding about a group's offset has the offset that was told: one that was set from outside is
one fact with three names."""
NAMED_FOR: Final = (*TELLS, "dirty-read", "zombie-write", "precommitted-read")
"""The name that such an incident has of those that are found at one moment: the first of these. What was shown before
it was committed has none of them where some of it was aborted (`G1a`)."""
REFLECTED: Final = "eos-violation"
LOST_COMMIT: Final = "lost-commit"
_OF_AN_INPUT: Final = frozenset({"duplicate", REFLECTED})
"""An input that stands twice is reflected twice, and told of in the output's topic."""
OF_A_LOG: Final = "log"
OF_GROUPS: Final = "offsets of groups"
OF_A_GROUP: Final = "offsets of a group"
"""A group whose commits are gone begins at older ones, and its transform reflects inputs again."""
OF_AN_INPUT: Final = "input"
FOREIGN: Final = "foreign records"
"""Somebody else who writes into one probe topic writes into the others as well."""
EXPOSED: Final = "what was not committed"
"""A leader whose last stable offset is wrong, or who leaves aborted transactions out of what it tells, shows readers
records of many, in all topics. What a transform wrote for nothing is shown beside what it wrote then."""
SHOWN_TOO_EARLY: Final = frozenset({"G1a", "dirty-read", "precommitted-read", "zombie-write"})
SIGNS_OF_EXPOSURE: Final = frozenset({"G1c-process", "G1c-realtime"})
"""A cycle through such a record is found up to minutes later."""
IN_A_MOMENT: Final = (OF_A_LOG, OF_GROUPS, OF_A_GROUP, FOREIGN, EXPOSED)
"""Keys by which only what is found about the same time joins: another fault may follow."""
SIGNS_IN_A_LOG: Final = frozenset(
    {
        "inconsistent-offsets",
        "int-nonmonotonic-poll",
        "int-poll-skip",
        "nonmonotonic-poll",
        "nonmonotonic-send",
        "poll-skip",
        "sequence-loss",
        "spurious-zero-offset",
    }
)
"""What one fault of a partition's log makes of it, by several names."""
_GONE: Final = frozenset({"late-record", "lost-write", "vanished-record"})
"""And what is gone by it, or was for a while: a loss is told for itself, and what is found next is a sign of it."""
_REFUSED: Final = frozenset({"refused-reads", "refused-writes", "stuck-consumer", "stuck-producer"})
_WRITES: Final = frozenset({"refused-writes", "stuck-producer"})
_ACCESS: Final = LOGIN_REFUSED | {
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""One right that was taken away is one fact, whoever is refused for want of it and whatever that is called."""
_TO_WRITE: Final = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})
"""Who may write to no topic is refused a producer id by the cluster, and by a topic who has one."""
_SETTINGS: Final = frozenset(
    {
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
)
"""And so is a setting by which writes are refused; what brokers in trouble say changes from write to write."""
_NAMES: Final = ("writer", "host", "process", "group", "transactional_id", "run")


def is_of_the_cluster(event: FindingEvent) -> bool:
    """Is it about no topic of its own?"""
    return event.anomaly in OF_THE_CLUSTER or (event.anomaly == _ZERO and "group" in event.evidence)


def is_refused(event: FindingEvent) -> bool:
    """Does it say that somebody is refused for want of a right, or by its login?"""
    return event.anomaly in _REFUSED and event.evidence.get("error") in _ACCESS


def place_of(event: FindingEvent) -> Key:
    """The partition that it is about, of this topic's life."""
    return event.cluster, event.topic_id, event.partition


def offset_of(evidence: Mapping[str, Any]) -> int:
    """Where the record stands that it is about, the last of several that are told together, the input of a transform in
    the input's log; -1 where it names none."""
    told = (evidence.get(name) for name in ("input_offset", "offset", "last_offset"))
    return next((one for one in told if isinstance(one, int)), -1)


def keys_of(event: FindingEvent) -> Iterator[Key]:
    """By what an event finds its incident, the strongest first."""
    yield "finding", event.id
    yield from _committed(event)
    topic = "" if is_of_the_cluster(event) else event.topic
    yield "group", event.cluster, event.anomaly, topic, event.severity, *_what(event)
    if is_refused(event):
        yield "refused", event.cluster, event.evidence["error"]
        if event.anomaly in _WRITES and event.evidence["error"] in _TO_WRITE:
            yield "refused", event.cluster, "to write"
    if not is_condition(event):
        place = place_of(event)
        evidence = event.evidence
        if evidence.get("txn") is not None:
            yield "transaction", event.cluster, evidence["txn"]
        if event.anomaly in _OF_AN_INPUT and "seq" in evidence:
            yield OF_AN_INPUT, event.cluster, event.partition, evidence["writer"], evidence["seq"]
        for one in (evidence, *objects(evidence, "skipped"), *objects(evidence, "values")):
            yield from _records(place, one)
        if event.anomaly in SIGNS_IN_A_LOG | _GONE and topic:
            yield OF_A_LOG, *place
        if event.anomaly == "corrupted-record":
            yield FOREIGN, event.cluster
        if event.anomaly in SHOWN_TOO_EARLY | SIGNS_OF_EXPOSURE:
            yield EXPOSED, event.cluster
        if event.anomaly in SHOWN_TOO_EARLY or event.anomaly == REFLECTED:
            yield EXPOSED, event.cluster, event.topic_id


def _committed(event: FindingEvent) -> Iterator[Key]:
    """Offsets that were set from outside are one fact, whatever they are called in which partition, and mostly those of
    several groups: this comes before the incident of its own name, which may be of another time."""
    evidence = event.evidence
    if evidence.get("group") is None or not (event.anomaly in TELLS or event.anomaly in (_ZERO, REFLECTED)):
        return
    if event.anomaly == REFLECTED:
        yield OF_A_GROUP, event.cluster, evidence["group"]
        return
    offset = 0 if event.anomaly == _ZERO else evidence.get(TELLS[event.anomaly])
    if offset is not None:
        yield "committed", *place_of(event), evidence["group"], offset
    yield OF_GROUPS, event.cluster
    yield OF_A_GROUP, event.cluster, evidence["group"]


def _what(event: FindingEvent) -> Iterator[str]:
    """Which settings are unsafe: one that was made so is told, whatever others are. For which run alone a cluster is
    away, and whether that is because of its login. For want of which right, or by which setting, somebody is refused:
    who has given back the one is not to read that it began again when it is the other."""
    error = event.evidence.get("error")
    if event.anomaly == UNREACHABLE:
        if "run" in event.evidence:
            yield event.evidence["run"]
        if error in LOGIN_REFUSED:
            yield "login"
    if event.anomaly in _REFUSED and error in _ACCESS | _SETTINGS:
        yield str(error)
    if event.anomaly == "unsafe-config":
        if "process" in event.evidence:
            yield from sorted(event.evidence.keys() - {"process"})
        else:
            yield event.message


def _records(place: Key, evidence: Mapping[str, Any]) -> Iterator[Key]:
    if isinstance(evidence.get("writer"), int) and isinstance(evidence.get("seq"), int):
        yield "value", *place, evidence["writer"], evidence["seq"]
    told = evidence.get("offsets")
    for offset in (evidence.get("offset"), *(told if isinstance(told, list) else ())):
        if isinstance(offset, int) and offset > 0:
            yield "offset", *place, offset


def objects(evidence: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """What a list in the evidence tells of each of several, as records that were skipped."""
    told = evidence.get(name)
    return (one for one in (told if isinstance(told, list) else ()) if isinstance(one, dict))


def subject_of(event: FindingEvent) -> str:
    """topic/partition; where it is about no partition, whoever it is about."""
    if event.topic:
        return f"{event.topic}/{event.partition}" if event.partition >= 0 else event.topic
    if hostname := event.evidence.get("hostname"):
        return f"host {hostname}"
    for name in _NAMES:
        if event.evidence.get(name) is not None:
            told = event.evidence[name]
            return str(told) if isinstance(told, str) else f"{name} {told}"
    return ""
