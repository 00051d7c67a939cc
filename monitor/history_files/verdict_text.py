"""The verdict on a history as text: whether it is valid, each anomaly by itself, and at the end, which a terminal still
shows, the verdict once more and how much of everything there is.

On a terminal, lines are broken at its width and go on a little further in. Where the output goes elsewhere each finding
is one line, to be searched, and without color.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.text import Text

from monitor.history_files.names import as_text
from monitor.history_files.verdict import MEANINGS, Evidence, Verdict
from monitor.screen import Screen
from rules.vocabulary.catalogue import CATALOGUE

SHOWN: Final = 5
"""How many findings of an anomaly are shown one by one."""

SHOWN_IF_ALLOWED: Final = 1
"""The same, of what makes no history invalid."""

_GROUPS: Final = (
    ("anomalies", "wrong", "bold red", SHOWN),
    ("allowed", "allowed", "cyan", SHOWN_IF_ALLOWED),
    ("conditions", "noted, not judged", "yellow", SHOWN_IF_ALLOWED),
)
_ORDER: Final = {name: place for place, name in enumerate(CATALOGUE)}
_NARROWEST: Final = 40
_TOLD_ELSEWHERE: Final = frozenset({"key", "where", "message", "mode"})


class VerdictText:
    """Prints verdicts, one after the other, on standard output or the console given."""

    def __init__(self, console: Screen | None = None) -> None:
        self._console = console or Screen()
        self._last: bool | None = None  # was the last verdict of many lines? None before the first

    def show(self, called: str, verdict: Verdict, number: int, of: str = "operations") -> None:
        """Print the verdict on one history of so many operations, or of what else is counted."""
        valid = Text("valid", "bold green") if verdict.valid else Text("NOT VALID", "bold red")
        headline = Text.assemble(
            (called, "bold"), ": ", valid, (f" ({number:,} {of if number != 1 else of[:-1]})", "dim")
        )
        groups = [(*group, _sorted(getattr(verdict, group[0]))) for group in _GROUPS]
        long = any(found for *_, found in groups)
        if self._last or (long and self._last is not None):
            self._console.print()
        self._last = long
        self._print(headline)
        if not long:
            return
        for _, title, style, shown, found in groups:
            for name, listed in found.items():
                self._anomaly(name, listed, verdict, title, style, shown)
        self._console.print()
        self._print(headline)
        self._summary(verdict, [(title, style, found) for _, title, style, _, found in groups if found])

    def count(self, valid: int, invalid: int, unknown: int) -> None:
        """Print how many histories there were of each kind."""
        said = ((valid, "valid", "green"), (invalid, "not valid", "red"), (unknown, "could not be checked", "red"))
        parts = [Text(f"{number:,} {word}", style) for number, word, style in said if number]
        self._console.print()
        self._print(Text.assemble(f"{valid + invalid + unknown:,} histories: ", Text(", ").join(parts)))

    def _summary(self, verdict: Verdict, groups: list[tuple[str, str, dict[str, list[Evidence]]]]) -> None:
        """How much of everything there is."""
        width = max(len(name) for _, _, found in groups for name in found)
        for title, style, found in groups:
            heading = f"  {title}: "
            for name, listed in found.items():
                number = _number(name, listed, verdict)
                line = Text.assemble(f"{heading:<22}", (f"{name:<{width}}", style), f" {number:>9}")
                if name in verdict.unsearched:
                    line.append(" or more")
                self._print(line)
                heading = ""

    def _anomaly(self, name: str, listed: list[Evidence], verdict: Verdict, title: str, style: str, shown: int) -> None:
        self._console.print()
        note = "" if title == "wrong" else f", {title}"
        number = _number(name, listed, verdict)
        what = ("value" if number == "1" else "values") if name == "unseen" else "found"
        self._print(Text.assemble("  ", (name, style), f": {number} {what}{note}"))
        if name in CATALOGUE:
            self._say(MEANINGS.get(name) or CATALOGUE[name].meaning, 2, "dim")
        for evidence in listed[:shown]:
            self._finding(evidence)
        rest = len(listed) - shown
        left_out = verdict.left_out.get(name, 0)
        if rest > 0 or left_out:
            unlisted = f", but for {left_out:,} that are only counted" if left_out else ""
            more = max(rest, 0) + left_out
            kind = "keys" if name == "unseen" else "of them"
            self._say(f"and {more:,} more {kind} (--json lists them{unlisted})", 4, "dim")
        if name in verdict.unsearched:
            self._say("and there may be more: the search ended here", 4, "dim")

    def _finding(self, evidence: Evidence) -> None:
        where = evidence.get("where", "")
        if "key" in evidence:
            where = f"key {as_text(evidence['key'])}" if evidence["key"] is not None else "several keys"
        if "why" in evidence:
            self._cycle(where, evidence)
            return
        self._say(f"{where}: {evidence['message']}", 4)
        details = ", ".join(
            f"{name.replace('_', ' ')} {_plain(value)}"
            for name, value in evidence.items()
            if name not in _TOLD_ELSEWHERE and value is not None
        )
        if details:
            self._say(details, 6, "dim")

    def _cycle(self, where: str, evidence: Evidence) -> None:
        self._say(f"{where}: {evidence['length']} operations, each before the next:", 4)
        for i, sentence in enumerate(evidence["why"]):
            self._say(sentence, 6)
            if evidence["left_out"] and i + 1 == len(evidence["why"]) // 2:
                self._say(f"{evidence['left_out']:,} operations more", 6, "dim")

    def _say(self, sentence: str, indent: int, style: str = "") -> None:
        """Print a sentence, broken at the width of a terminal, and two columns further in from its second line on."""
        lines = [" " * indent + sentence]
        if self._console.is_terminal:
            lines = textwrap.wrap(
                sentence,
                max(self._console.width, _NARROWEST),
                initial_indent=" " * indent,
                subsequent_indent=" " * (indent + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
        for line in lines:
            self._print(Text(line, style))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def _sorted(found: Mapping[str, list[Evidence]]) -> dict[str, list[Evidence]]:
    """In the order of the catalogue, so that two reports are easily compared."""
    return {name: found[name] for name in sorted(found, key=lambda name: _ORDER.get(name, len(_ORDER)))}


def _number(name: str, listed: Iterable[Evidence], verdict: Verdict) -> str:
    """How many there are: findings, but of `unseen`, which is one finding a key, values."""
    if name == "unseen":
        return f"{sum(evidence['values'] for evidence in listed):,}"
    return f"{len(list(listed)) + verdict.left_out.get(name, 0):,}"


def _plain(value: Any) -> str:
    """A piece of evidence in words, without the brackets and quotes of data."""
    if isinstance(value, Mapping):
        return " ".join(f"{name.replace('_', ' ')} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        if all(isinstance(one, Mapping) and set(one) == {"value"} for one in value):
            return ", ".join(_plain(one["value"]) for one in value)
        if any(isinstance(one, Mapping) for one in value):
            return "; ".join(map(_plain, value))
        return ", ".join(map(as_text, value))
    return as_text(value)
