"""What the rules found in one history, in the file's own terms.

Findings name a record as writer and seq, an operation as a number and a partition as a number. Here evidence names
them as the file does: its `key`, its `value`s, its processes, and operations by their `:index`.

A history is valid if it has no violation, that is: nothing of the kind violation that the policy calls critical or
a warning. What the policy allows is listed apart, and so are conditions and what is only classified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from monitor.history_files.names import Names, jsonable
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from rules.vocabulary.policy import severity

Evidence = dict[str, Any]

_VALUE: Final = re.compile(r"\b([01])/(\d+)\b")
_PROCESS: Final = re.compile(r"\bprocess (\d+)\b")
_TRANSACTION: Final = re.compile(r"\btransaction (\d+)\b")
_OPERATION: Final = re.compile(r"\boperation (\d+)\b")


@dataclass(slots=True)
class Verdict:
    """Evidence by anomaly, in the order found."""

    anomalies: dict[str, list[Evidence]] = field(default_factory=dict)
    allowed: dict[str, list[Evidence]] = field(default_factory=dict)
    conditions: dict[str, list[Evidence]] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Is there no violation?"""
        return not self.anomalies


def verdict(findings: Iterable[Finding], names: Names, *, strict: bool = False) -> Verdict:
    """Judge the findings of one history; `strict` allows nothing."""
    judged = Verdict()
    for finding in findings:
        grade = severity(finding.anomaly, finding.context, strict=strict)
        known = CATALOGUE.get(finding.anomaly)
        if grade == "allowed":
            group = judged.allowed
        elif grade == "info" or (known is not None and known.kind != "violation"):
            group = judged.conditions
        else:
            group = judged.anomalies
        group.setdefault(finding.anomaly, []).append(_told(finding, names))
    return judged


def _told(finding: Finding, names: Names) -> Evidence:
    # What concerns several keys, as a cycle may, names them in its evidence.
    own = finding.partition
    evidence: Evidence = {"key": names.keys.get(own, own) if own >= 0 else None}
    evidence.update(_translated(finding.evidence, names))
    evidence.update((name, value) for name, value in finding.context.items() if name == "mode")
    evidence["message"] = worded(finding.message, names)
    return evidence


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
    """A rule's sentence in the file's own terms."""

    def value(match: re.Match[str]) -> str:
        return str(jsonable(names.value(int(match.group(1)), int(match.group(2)))))

    def process(match: re.Match[str]) -> str:
        number = int(match.group(1))
        return f"process {names.processes.get(number, number)}"

    def operation(match: re.Match[str]) -> str:
        return f"operation {names.index(int(match.group(1)))}"

    def transaction(match: re.Match[str]) -> str:
        return f"transaction {names.index(int(match.group(1)))}"

    def key(match: re.Match[str]) -> str:
        number = int(match.group(1))
        return f"key {names.keys.get(number, number)}"

    message = _TRANSACTION.sub(transaction, message)
    partition = rf"\bpartition (\d+)\b(?: of {re.escape(names.topic)}(?!\w))?"
    return re.sub(partition, key, _OPERATION.sub(operation, _PROCESS.sub(process, _VALUE.sub(value, message))))
