"""From a file's keys, values and processes to the numbers that the rules work on, and back.

The rules know a record as (partition, writer, seq). A file knows it as (key, value), where values are unique per key:

- a key that is a non-negative integer is its own partition number; others are numbered after the highest of those,
- a value that is a non-negative integer below 2^40 is its own seq, of writer 0; any other is interned, and its place in
  that table is its seq, of writer 1.

A value polled from another key than it was sent to cannot be told from a value of that key: no file gives relocations.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from monitor.history_files.edn import Literal, Tagged, freeze
from monitor.history_files.errors import Malformed

PLAIN_VALUES: Final = 2**40
"""Integers from 0 up to here stand for themselves."""

_EXACT: Final = 2.0**63
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")


def canonical(name: Any) -> Any:
    """A key or process as something hashable. Text of an integer is that integer, as JSON's map keys are text;
    keywords lose their colon. Raises `Malformed` for what cannot be a name."""
    if type(name) is str:
        bare = name[1:] if name[:1] == ":" else name
        return int(bare) if _INTEGER.fullmatch(bare) else bare
    if name is None or type(name) in (bool, float, dict):
        raise Malformed(f"{shown(name)} cannot name a key or a process")
    return freeze(name)


@dataclass(slots=True)
class Numbering:
    """Codes 0, 1, 2, ... for names in the order they come, and final numbers once all are known."""

    limit: int
    names: list[Any] = field(default_factory=list)
    codes: dict[Any, int] = field(default_factory=dict)

    def code(self, name: Any) -> int:
        """The code of a name as the file has it. Callers look into `codes` first."""
        own = canonical(name)
        if own not in self.codes:
            self.codes[own] = len(self.names)
            self.names.append(own if type(own) is int else name)
        if name.__hash__ is not None and type(name) is not tuple:
            self.codes[name] = self.codes[own]
        return self.codes[own]

    def numbers(self) -> NDArray[np.int64]:
        """The number of each code: the name itself where it is an integer in [0, limit), else one above those."""
        own = [name if type(name) is int and 0 <= name < self.limit else -1 for name in self.names]
        following = max(own, default=-1) + 1
        numbers = np.array(own, np.int64)
        others = np.flatnonzero(numbers < 0)
        numbers[others] = following + np.arange(len(others))
        return numbers


@dataclass(slots=True)
class Interned:
    """Values that are not small non-negative integers."""

    values: list[Any] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)

    def place(self, value: Any) -> int:
        """Where the value stands in the table; takes it in where it is new. Raises `Malformed` for a float that may be
        one of several integers: JSON lines give those beyond 64 bits so."""
        if type(value) is float and not -_EXACT < value < _EXACT and math.isfinite(value):
            raise Malformed(f"{value} is too large to be told from the numbers beside it: write it as text")
        place = self.places.setdefault(freeze(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


@dataclass(slots=True)
class Names:
    """The way back, for evidence."""

    keys: dict[int, Any]
    processes: dict[int, Any]
    interned: list[Any]
    indices: NDArray[np.int64] | None
    """`:index` by event ordinal, where that differs from the ordinal."""
    topic: str = ""
    """What the rules take for the name of a topic: the history's. Its keys are the partitions."""

    def value(self, writer: int, seq: int) -> Any:
        """The file's value of (writer, seq)."""
        return seq if writer == 0 else self.interned[seq]

    def index(self, op: int) -> int:
        """The `:index` of the event that completed operation `op`; its place in the file, from 0, if it has none."""
        if self.indices is None or not 0 <= op < len(self.indices) or self.indices[op] < 0:
            return op
        return int(self.indices[op])


def shown(form: Any) -> str:
    """A form in a sentence, cut where it is long."""
    text = as_text(form)
    return text if len(text) <= 60 else text[:57] + "..."


def as_text(form: Any) -> str:
    """A form in words: a name as it is, and what has parts as JSON writes it."""
    form = jsonable(form)
    if form is None:
        return "nil"
    return form if isinstance(form, str) else json.dumps(form, ensure_ascii=False, default=str)


def jsonable(form: Any) -> Any:
    """A value of the file as JSON can hold it."""
    if isinstance(form, Literal):
        return form.text
    if isinstance(form, Tagged):
        return f"{form.tag} {shown(form.form)}"
    if isinstance(form, dict):
        return {str(jsonable(key)): jsonable(value) for key, value in form.items()}
    if isinstance(form, list | tuple):
        return [jsonable(item) for item in form]
    if isinstance(form, frozenset):
        return sorted((jsonable(item) for item in form), key=str)
    return form
