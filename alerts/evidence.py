"""Evidence in words: what the catalogue says of each field makes numbers readable.

`words` is for people: times as times, spans with their unit. `units` is for programs, which are given the evidence as
it is (`exact`): of every field that is a time or a span, what it counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from rules.vocabulary.anomaly import UNITS, Field, Unit
from rules.vocabulary.catalogue import CATALOGUE
from rules.vocabulary.times import from_micros, rfc3339

MEASURED: Final[tuple[Unit, ...]] = ("micros", "time", "s", "min", "ns")


def words(anomaly: str, evidence: Mapping[str, Any]) -> str:
    """The evidence on one line: key=value, lists in brackets."""
    return "  ".join(f"{name}={_value(_field(anomaly, name), value)}" for name, value in evidence.items())


def exact(value: Any) -> Any:
    """As JSON that keeps its meaning wherever it is read: whole numbers beyond 2^53, as ids of processes and writers
    are, become strings. JavaScript, jq and Grafana round them, and an id that was rounded finds nothing."""
    if isinstance(value, Mapping):
        return {str(name): exact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    return str(value) if type(value) is int and abs(value) > 2**53 else value


def units(anomaly: str, evidence: Mapping[str, Any]) -> dict[str, str]:
    """By field, what is counted where it is a time or a span."""
    told = ((name, _field(anomaly, name)) for name in evidence)
    return {name: UNITS[field.unit] for name, field in told if field is not None and field.unit in MEASURED}


def _field(anomaly: str, name: str) -> Field | None:
    entry = CATALOGUE.get(anomaly)
    return entry.field(name) if entry is not None else None


def _value(field: Field | None, value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value)
    if value is None:
        return "none" if field is not None and field.none else "unknown"
    unit = field.unit if field is not None else ""
    if unit == "micros" and isinstance(value, int):
        return "never" if value < 0 else rfc3339(from_micros(value))
    return f"{value} {unit}" if unit in ("s", "min") else str(value)
