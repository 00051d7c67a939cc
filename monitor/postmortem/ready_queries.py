"""The questions that are asked after every incident, ready to be run: the files of `sql/queries`.

A query begins with comments: what it answers, then a line for each parameter, `-- $name = default: what it is`; one
without a default has to be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Final

from monitor.errors import UserError

_PARAMETER: Final = re.compile(r"-- \$(?P<name>\w+)(?: = (?P<default>[^:]*))?: (?P<about>.*)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default`: None where it has to be given."""

    name: str
    default: str | None
    about: str


@dataclass(frozen=True, slots=True)
class ReadyQuery:
    """`about`: what it answers, in a sentence."""

    name: str
    about: str
    parameters: Sequence[Parameter]
    text: str

    @property
    def usage(self) -> str:
        """How it is called, parameters that may be left out in brackets."""
        given = [f"{one.name}=..." if one.default is None else f"[{one.name}={one.default}]" for one in self.parameters]
        return " ".join([self.name, *given])

    def values(self, given: Mapping[str, str]) -> dict[str, str]:
        """The value of each parameter. Raises UserError for one that is unknown or missing."""
        known = {one.name: one for one in self.parameters}
        for name in given:
            if name not in known:
                raise UserError(f"the query {self.name} has no parameter {name}: it is called {self.usage}")
        missing = [one for one in self.parameters if one.default is None and one.name not in given]
        if missing:
            raise UserError(f"the query {self.name} needs {missing[0].name}, {missing[0].about}: {self.usage}")
        return {name: given.get(name, one.default or "") for name, one in known.items()}


def ready_queries() -> dict[str, ReadyQuery]:
    """All of them by name."""
    folder = files("monitor.postmortem").joinpath("sql", "queries")
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".sql")), key=lambda one: one.name)
    return {
        one.name.removesuffix(".sql"): parsed(one.name.removesuffix(".sql"), one.read_text("utf-8")) for one in found
    }


def ready_query(name: str) -> ReadyQuery:
    """One of them. Raises UserError where there is none of this name."""
    known = ready_queries()
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise UserError(
            f"there is no query {name}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")
        )
    return known[name]


def parsed(name: str, text: str) -> ReadyQuery:
    """The query that a file holds."""
    about: list[str] = []
    parameters: list[Parameter] = []
    for line in text.splitlines():
        if not line.startswith("-- "):
            break
        told = _PARAMETER.fullmatch(line)
        if told:
            parameters.append(Parameter(told["name"], told["default"], told["about"]))
        else:
            about.append(line.removeprefix("-- "))
    return ReadyQuery(name, " ".join(about), parameters, text)
