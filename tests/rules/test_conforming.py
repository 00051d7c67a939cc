"""The catalogue's forms of evidence: each is well made, and what differs from it is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.vocabulary.anomaly import UNITS, Anomaly, Field, Form
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding
from tests.rules.conforming import faults


def found(anomaly: str, *subject: int | str, event: Any = "raised", **evidence: Any) -> Finding:
    return Finding(
        anomaly=anomaly,
        cluster="c",
        topic_id="t",
        topic="topic",
        partition=0,
        subject=subject,
        event=event,
        message="so it is",
        evidence=evidence,
        at=0,
        decidable=0,
    )


GOOD = found("eos-violation", "twice", "g", 7, 3, writer=7, seq=3, input_offset=5, group="g", process=1, op=2)


def test_what_the_catalogue_says_conforms() -> None:
    assert faults(GOOD) == []
    assert faults(replace(GOOD, evidence={**GOOD.evidence, "more_of_the_same": 4})) == []
    assert faults(found("unseen", event="closed", values=0, lasted_s=1.0)) == []
    assert faults(found("unsafe-config", event="opened", cleanup_policy="compact")) == []


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (replace(GOOD, evidence={**GOOD.evidence, "extra": 1}), "extra"),
        (replace(GOOD, evidence={k: v for k, v in GOOD.evidence.items() if k != "group"}), "group"),
        (replace(GOOD, evidence={**GOOD.evidence, "op": "2"}), "op"),
        (replace(GOOD, evidence={**GOOD.evidence, "op": True}), "op"),
        (replace(GOOD, evidence={**GOOD.evidence, "group": None}), "group"),
        (replace(GOOD, subject=("twice", "g", 7, 4)), "seq"),
        (replace(GOOD, subject=("thrice", "g", 7, 3)), "thrice"),
        (replace(GOOD, subject=("twice", "g", 7)), "subject"),
        (replace(GOOD, event="opened"), "opened"),
        (replace(GOOD, message=""), "message"),
        (replace(GOOD, anomaly="nonsense"), "nonsense"),
        (found("inconsistent-offsets", 3, offset=3, values=[{"writer": "1"}]), "writer"),
        (found("inconsistent-offsets", 3, offset=3, values=[1]), "values[0]"),
        (found("suspected", event="closed", values=0, first=[]), "lasted_s"),
        (found("G1c", 1, register=2), "subject"),
        (found("evidence-gap", event="raised"), "raised"),
    ],
)
def test_what_differs_is_told(finding: Finding, said: str) -> None:
    assert said in " ".join(faults(finding))


def _each(fields: tuple[Field, ...]) -> list[Field]:
    return [one for field in fields for one in (field, *_each(field.fields))]


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=list(CATALOGUE))
def test_every_entry_is_well_made(entry: Anomaly) -> None:
    assert entry.forms
    assert bool(entry.closing) == (entry.kind == "condition" and entry.name != "check-failed")  # that one stays open
    for forms in (entry.forms, entry.closing):
        assert len(forms) < 2 or all(form.when for form in forms[1:]), "several forms, and nothing tells them apart"
        for form in forms:
            _well_made(form)


def _well_made(form: Form) -> None:
    names = [field.name for field in form.fields]
    assert len(set(names)) == len(names)
    for field in _each(form.fields):
        assert field.meaning, field
        assert bool(field.fields) == (field.type in ("object", "list of object")), field
        assert field.unit or field.type not in ("int", "float", "list of int") or field.name == "register", field
        assert field.unit not in UNITS or field.type not in ("object", "list of object"), field
