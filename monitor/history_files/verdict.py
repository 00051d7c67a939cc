"""What the rules found in one history, in the file's own terms.

Findings name a record as writer and seq, an operation as a number and a partition as a number. Here evidence names
them as the file does: its `key`, its `value`s, its processes, and operations by their `:index`.

A history is valid if it has no violation, that is: nothing of the kind violation that the policy calls critical or
a warning, and no acknowledged value that nobody polled (`unseen`), for nobody will any more. What the policy or the
user allows is listed apart, and so are conditions and what is only classified.

Not everything is listed one by one: a rule builds so many findings of a name and counts the others, and the search for
cycles ends after so many of a name (`Verdict.left_out`, `Verdict.unsearched`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from monitor.history_files.names import Names, as_text, jsonable
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.policy import FAILURES_OF_A_FINISHED_HISTORY, severity

Evidence = dict[str, Any]

_MORE: Final = "more_of_the_same"
"""How many findings its rule has counted and not built, in the evidence of the last one that it built."""

MEANINGS: Final = {"unseen": "Values that an ok operation acknowledged, and none polled: lost, or not read to the end."}
"""What an anomaly means in a finished history, where that is not what it means while one goes on."""

LISTED: Final = 10
"""Values that the evidence of `unseen` lists of a key."""

_TERM: Final = r"\b(?P<writer>[01])/(?P<value>\d+)\b|\b(?P<kind>process|transaction|operation) (?P<number>\d+)\b"
"""What a rule's sentence names by numbers that are not the file's."""


@dataclass(slots=True)
class Verdict:
    """Evidence by anomaly, in the order found. `left_out`: how many more there are of a name than are listed, where
    there are any. `unsearched`: the names of cycles of which there may be any number beside those listed."""

    anomalies: dict[str, list[Evidence]] = field(default_factory=dict)
    allowed: dict[str, list[Evidence]] = field(default_factory=dict)
    conditions: dict[str, list[Evidence]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    unsearched: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Is there no violation?"""
        return not self.anomalies


def judge(findings: Iterable[Finding], names: Names, *, strict: bool = False, allow: Collection[str] = ()) -> Verdict:
    """Judge the findings of one history. `strict` allows nothing that the policy would; `allow` names anomalies that
    are allowed whatever the policy says."""
    return grouped(findings, lambda finding: _told(finding, names), strict=strict, allow=allow)


def grouped(
    findings: Iterable[Finding],
    tell: Callable[[Finding], Evidence],
    *,
    strict: bool = False,
    allow: Collection[str] = (),
) -> Verdict:
    """The same, with evidence as `tell` has it."""
    judged = Verdict()
    for finding in findings:
        name = finding.anomaly
        grade = severity(name, finding.context, strict=strict)
        if grade == "allowed":
            group = judged.allowed
        elif grade == "info" or not _fails(name):
            group = judged.conditions
        else:
            group = judged.allowed if name in allow else judged.anomalies
        told = tell(finding)
        if more := told.pop(_MORE, 0):
            judged.left_out[name] = judged.left_out.get(name, 0) + more
        group.setdefault(name, []).append(told)
    return judged


def _fails(name: str) -> bool:
    """Is a finished history that has it not valid, unless it is allowed?"""
    known = CATALOGUE.get(name)
    return known is None or known.kind == "violation" or name in FAILURES_OF_A_FINISHED_HISTORY


def _told(finding: Finding, names: Names) -> Evidence:
    # What concerns several keys, as a cycle may, names them in its evidence.
    own = finding.partition
    evidence: Evidence = {"key": names.keys.get(own, own) if own >= 0 else None}
    evidence.update(_translated(finding.evidence, names))
    if finding.anomaly == "unseen":
        evidence["first"] = _values(finding.evidence["first"], names)
    evidence.update((name, value) for name, value in finding.context.items() if name == "mode")
    evidence["message"] = worded(finding.message, names)
    return evidence


def _values(runs: list[dict[str, int]], names: Names) -> list[Evidence]:
    """The first few values of these runs, one by one."""
    each = ((run["writer"], run["seq"] + i) for run in runs for i in range(min(run["values"], LISTED)))
    return [{"value": jsonable(names.value(*value))} for value in islice(each, LISTED)]


def _translated(evidence: Any, names: Names) -> Any:
    if isinstance(evidence, Mapping):
        told: Evidence = {}
        for name, value in evidence.items():
            if name == "writer" and "seq" in evidence:
                told["value"] = jsonable(names.value(value, evidence["seq"]))
            elif name == "seq" and "writer" in evidence:
                continue
            elif name == "op" or name.endswith("_op"):
                told["index" if name == "op" else f"{name[:-3]}_index"] = names.index(value)
            elif name == "txn":
                told["transaction_index"] = names.index(value)
            elif name == "process" or name.endswith("_process"):
                told[name] = names.processes.get(value, value)
            elif name == "partition":
                told["key"] = names.keys.get(value, value)
            elif name == "topic" and value == names.topic:
                continue
            elif name == "why":
                told[name] = [worded(sentence, names) for sentence in value]
            else:
                told[name] = _translated(value, names)
        return told
    if isinstance(evidence, list | tuple):
        return [_translated(item, names) for item in evidence]
    return evidence


def worded(message: str, names: Names) -> str:
    """A rule's sentence in the file's own terms. All at once: what is put in may itself read like a rule's term."""

    def told(match: re.Match[str]) -> str:
        if match["value"] is not None:
            return as_text(names.value(int(match["writer"]), int(match["value"])))
        if match["place"] is not None:
            return f"key {as_text(names.keys.get(int(match['place']), match['place']))}"
        kind, number = match["kind"], int(match["number"])
        return f"{kind} {as_text(names.processes.get(number, number) if kind == 'process' else names.index(number))}"

    of_topic = rf"(?: of {re.escape(names.topic)}(?!\w))?"
    return re.sub(rf"{_TERM}|\bpartition (?P<place>\d+)\b{of_topic}", told, message)
