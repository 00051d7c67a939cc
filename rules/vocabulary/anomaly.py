"""What the catalogue says of an anomaly: what it means, and which evidence a finding of it holds, field by field.

A finding's evidence has one of the anomaly's *forms*: every field of that form that is not optional, and no other.
Where an anomaly is found in several ways it has several forms, each with its own subject. A condition has forms for the
event that opens it, and for the one that closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["violation", "condition", "classified"]
Decided = Literal["at once", "on settlement", "on resolution", "while it lasts"]

Type = Literal["int", "float", "str", "bool", "list of int", "list of str", "object", "list of object"]
"""As JSON tells them; an object's own fields are listed with it."""

Unit = Literal[
    "",
    "offset",
    "seq",
    "writer",
    "process",
    "operation",
    "transaction",
    "partition",
    "broker",
    "host",
    "hash",
    "epoch",
    "producer",
    "producer epoch",
    "generation",
    "id",
    "micros",
    "time",
    "s",
    "min",
    "ns",
    "records",
    "values",
    "rows",
    "offsets",
    "processes",
    "partitions",
    "brokers",
    "runs",
    "findings",
    "operations",
    "facts",
    "entries",
]
"""What a number counts or names. `micros`: log time, microseconds since the epoch; `time`: RFC 3339; `ns`: nanoseconds
of a boot's monotonic clock. "" where it is a word, a sentence, or an object."""

UNITS: Final[dict[Unit, str]] = {
    "offset": "offset",
    "seq": "sequence number of its writer",
    "writer": "writer id",
    "process": "process id",
    "operation": "operation number of its process",
    "transaction": "transaction number",
    "partition": "partition number",
    "broker": "broker id",
    "host": "process id of the host's committer",
    "hash": "32-bit hash",
    "epoch": "leader epoch",
    "producer": "producer id",
    "producer epoch": "producer epoch",
    "generation": "generation of its group",
    "id": "write id of a register",
    "micros": "µs of log time since the epoch",
    "time": "RFC 3339, UTC",
    "s": "s",
    "min": "min",
    "ns": "ns of the boot's monotonic clock",
}
"""Units in words; those that are not here are said by their names."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a finding's evidence.

    `optional`: it is there only where it is known. `nullable`: it is always there, and null where it is not known, or
    where there is `none`.
    `fields`: those of an object, or of each object of a list; "*" stands for any other name."""

    name: str
    type: Type
    unit: Unit
    meaning: str
    optional: bool = False
    nullable: bool = False
    none: bool = False
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a finding of an anomaly is told.

    `subject`: the parts of the finding's subject: a word in quotes stands for itself, others are fields of the evidence
    or are explained by their names; what comes before "..." is repeated. `when`: which way it is, where an anomaly has
    several."""

    subject: tuple[str, ...]
    fields: tuple[Field, ...]
    when: str = ""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`decided`: `at once` (seen, hence proven), `on settlement` (absence, or an index that a later row could change),
    `on resolution` (another partition decides), `while it lasts` (conditions). `evidence`: what it is, in a sentence;
    `forms`: exactly, of a finding that is raised or opened; `closing`: of the event that closes a condition."""

    name: str
    kind: Kind
    decided: Decided
    meaning: str
    evidence: str
    forms: tuple[Form, ...]
    closing: tuple[Form, ...] = ()

    def field(self, name: str) -> Field | None:
        """What a finding of this anomaly calls so."""
        for form in (*self.forms, *self.closing):
            for one in (*form.fields, MORE):
                if one.name == name:
                    return one
        return None


MORE: Final = Field(
    "more_of_the_same", "int", "findings", "how many more there were than are told one by one", optional=True
)
"""Any finding may have it: the last of a flood says how many there were beyond."""


def form(*fields: Field, subject: tuple[str, ...] = (), when: str = "") -> Form:
    """A form with these fields."""
    return Form(subject, fields, when)


def violation(name: str, decided: Decided, meaning: str, evidence: str, *forms: Form) -> Anomaly:
    """What must never be: raised once, and it stands for ever."""
    return Anomaly(name, "violation", decided, meaning, evidence, forms)


def condition(name: str, meaning: str, evidence: str, *forms: Form, closing: Sequence[Form] = ()) -> Anomaly:
    """What is open while it lasts. `forms`: of the event that opens it."""
    return Anomaly(name, "condition", "while it lasts", meaning, evidence, forms, tuple(closing))


def observation(name: str, decided: Decided, meaning: str, evidence: str, *forms: Form) -> Anomaly:
    """What is recorded and counted, and judges nothing."""
    return Anomaly(name, "classified", decided, meaning, evidence, forms)
