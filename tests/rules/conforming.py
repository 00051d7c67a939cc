"""Holds findings against the catalogue: their evidence has exactly the fields of one of the anomaly's forms, of the
types that it tells, and their subject is made of what that form says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rules.vocabulary.anomaly import MORE, Field, Form
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.finding import Finding

_PLAIN: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


def faults(finding: Finding) -> list[str]:
    """What the finding holds against the catalogue, form by form; empty where it is as one of them says."""
    entry = CATALOGUE.get(finding.anomaly)
    if entry is None:
        return [f"{finding.anomaly} is not in the catalogue"]
    if (finding.event == "raised") == (entry.kind == "condition"):
        return [f"a {entry.kind} was {finding.event}"]
    if not finding.message:
        return ["no message"]
    forms = entry.closing if finding.event == "closed" else entry.forms
    found = []
    for form in forms:
        wrong = [*_subject(finding, form), *_fields(finding.evidence, (*form.fields, MORE), "evidence")]
        if not wrong:
            return []
        found.append(f"{form.when or 'its one form'}: {'; '.join(wrong)}")
    return found or [f"nothing says that it is ever {finding.event}"]


def _subject(finding: Finding, form: Form) -> list[str]:
    named = list(form.subject)
    subject = list(finding.subject)
    if named[-1:] == ["..."]:
        return [] if len(subject) >= len(named) - 1 else [f"subject {subject} is too short"]
    if len(named) != len(subject):
        return [f"subject {subject} is not {named}"]
    wrong = []
    for name, part in zip(named, subject, strict=True):
        if type(part) not in (int, str) and not (part is None and name in finding.evidence):
            wrong.append(f"{name} of the subject is a {type(part).__name__}")
        if name.startswith('"'):
            if part != name.strip('"'):
                wrong.append(f"{part!r} in the subject is not {name}")
        elif any(field.name == name for field in form.fields) and finding.evidence.get(name) != part:
            wrong.append(f"{name} is {part!r} in the subject and {finding.evidence.get(name)!r} in the evidence")
    return wrong


def _fields(told: Mapping[str, Any], fields: Iterable[Field], where: str) -> list[str]:
    known = {field.name: field for field in fields}
    wrong = []
    for name in known.keys() - told.keys() - {"*"}:
        if not known[name].optional:
            wrong.append(f"{where} has no {name}")
    for name, value in told.items():
        field = known.get(name, known.get("*"))
        if field is None:
            wrong.append(f"{where} has {name}, which nothing explains")
        else:
            wrong += _typed(value, field, f"{where}.{name}")
    return wrong


def _typed(value: Any, field: Field, where: str) -> list[str]:
    if value is None:
        return [] if field.nullable else [f"{where} is null"]
    kind = field.type
    if kind.startswith("list of "):
        if type(value) is not list:
            return [f"{where} is a {type(value).__name__}"]
        return [one for i, part in enumerate(value) for one in _one(part, kind[8:], field, f"{where}[{i}]")]
    return _one(value, kind, field, where)


def _one(value: Any, kind: str, field: Field, where: str) -> list[str]:
    if kind == "object":
        return _fields(value, field.fields, where) if isinstance(value, Mapping) else [f"{where} is no object"]
    return [] if type(value) is _PLAIN[kind] else [f"{where} is a {type(value).__name__} and no {kind}"]
