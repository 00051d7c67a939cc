"""The answer to a question, for people, for programs and for spreadsheets."""

from __future__ import annotations

import csv
import json
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from alerts.evidence import exact
from monitor.postmortem.database import Rows
from rules.vocabulary.times import rfc3339

LIMIT: Final = 100
"""Rows that a person is shown."""
_GAP: Final = "  "
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def lines(rows: Rows, width: int, limit: int = LIMIT) -> Iterator[str]:
    """A table where it fits into the width, else each row as a block of its columns. A column in which nothing is known
    is left out; where all times are of one day, and room is short, the day is told once."""
    shown = rows.fetch(limit + 1)
    more, shown = len(shown) > limit, shown[:limit]
    if not shown:
        yield "no rows"
        return
    kept = [i for i in range(len(rows.columns)) if any(row[i] is not None for row in shown)]
    columns, shown = [rows.columns[i] for i in kept], [tuple(row[i] for i in kept) for row in shown]
    cells = [[_cell(one) for one in row] for row in shown]
    days = {one.astimezone(UTC).date() for row in shown for one in row if isinstance(one, datetime)}
    if len(days) == 1 and _needed(columns, cells) > width:
        cells = [[_cell(one)[11:] if isinstance(one, datetime) else _cell(one) for one in row] for row in shown]
        yield f"times of {min(days)}, UTC"
    if _needed(columns, cells) <= width:
        yield from _table(columns, shown, cells)
    else:
        yield from _blocks(columns, cells, width)
    if more:
        yield f"the first {limit} rows; --limit shows more, --csv and --json all"


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]


def _needed(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(columns, cells)) + len(_GAP) * (len(columns) - 1)


def _table(columns: Sequence[str], values: Sequence[Sequence[Any]], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = _widths(columns, cells)
    right = [all(isinstance(row[i], int | float) or row[i] is None for row in values) for i in range(len(columns))]
    yield _laid(columns, widths, right)
    yield _GAP.join("─" * one for one in widths)
    for row in cells:
        yield _laid(row, widths, right)


def _laid(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    laid = [one.rjust(n) if r else one.ljust(n) for one, n, r in zip(row, widths, right, strict=True)]
    return _GAP.join(laid).rstrip()


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    named = max(map(len, columns))
    for number, row in enumerate(cells, 1):
        yield f"─ {number} {'─' * max(width - len(str(number)) - 3, 0)}"
        for name, cell in zip(columns, row, strict=True):
            if cell:
                head = f"{name.ljust(named)}  "
                yield from textwrap.wrap(
                    cell, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
                ) or [head]


def _cell(value: Any) -> str:
    """A value for a person: times in UTC to the millisecond, lists with commas."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].removesuffix(".000")
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={_cell(one)}" for name, one in value.items() if one is not None)
    return " ".join(str(value).split())


def write_json(rows: Rows) -> None:
    """One object a line; times as RFC 3339 in UTC; whole numbers beyond 2^53 and NaN and infinity as text."""
    for row in rows:
        told = exact(_finite(dict(zip(rows.columns, map(_plain, row), strict=True))))
        sys.stdout.write(json.dumps(told, ensure_ascii=False, default=str) + "\n")


def write_csv(rows: Rows) -> None:
    """The columns' names, then a line for each row; lists and structures as JSON. It is for spreadsheets: text that
    they would take for a formula begins with an apostrophe, which shows them that it is none."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(rows.columns)
    for row in rows:
        plain = map(_plain, row)
        writer.writerow([json.dumps(one, default=str) if isinstance(one, list | dict) else _text(one) for one in plain])


def _text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date | timedelta):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
