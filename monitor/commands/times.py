"""Times as people write them on a command line: `03:12`, `2h`, `yesterday 14:00`, `2026-11-22T03:12:07`.

They are UTC, like every time that the program shows, unless they say otherwise.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from monitor.errors import UserError

_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)(?:\s*ago)?\s*")
_CLOCK: Final = re.compile(r"(?:(today|yesterday)\s+)?(\d{1,2}):(\d{2})(?::(\d{2}))?")


def moment(text: str, now: datetime, option: str) -> datetime:
    """The time that `text` means at `now`. Raises UserError, naming the option.

    A time of day is the last one: `23:50`, asked at ten past midnight, was yesterday."""
    given = text.strip()
    spans = list(_SPAN.finditer(given))
    clock = _CLOCK.fullmatch(given)
    try:
        if spans and "".join(one.group() for one in spans) == given:
            return now - timedelta(seconds=sum(float(one[1]) * _UNITS[one[2]] for one in spans))
        if clock:
            of_day = now.replace(hour=int(clock[2]), minute=int(clock[3]), second=int(clock[4] or 0), microsecond=0)
            if clock[1] == "yesterday" or (clock[1] is None and of_day > now):
                of_day -= timedelta(days=1)
            return of_day
        at = datetime.fromisoformat(given)
    except (ValueError, OverflowError):
        raise UserError(
            f"{option}: {text!r} is no time: give 03:12, 2h, 90min, yesterday 14:00 or 2026-11-22T03:12 (UTC)"
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def coming(text: str, now: datetime, option: str) -> datetime:
    """The time that `text` means after `now`: `14:30` is the next one, `2h` is in two hours. Raises UserError, naming
    the option."""
    given = text.strip()
    at = moment(text, now, option)
    if given.endswith("ago") or given.startswith("yesterday"):
        raise UserError(f"{option}: {text!r} is over: give 14:30, 2h, 90min or 2026-11-22T14:30 (UTC)")
    if _CLOCK.fullmatch(given):
        return at if at > now else at + timedelta(days=1)
    return now + (now - at) if _SPAN.match(given) else at


def between(
    since: str | None, until: str | None, now: datetime, options: tuple[str, str] = ("--since", "--until")
) -> tuple[datetime | None, datetime | None]:
    """The times that --since and --until mean, or how else these `options` are called; None where they are not given.
    Raises UserError where they are turned round."""
    begin, end = options
    first = moment(since, now, begin) if since is not None else None
    last = moment(until, now, end) if until is not None else None
    if first is not None and last is not None and until is not None and last <= first:
        clock, later = _CLOCK.fullmatch(until.strip()), last + timedelta(days=1)
        if clock is not None and clock[1] is None and later.date() == now.date():
            last = later  # a time of day that is still to come: nobody means yesterday's
    if first is not None and last is not None and last <= first:
        raise UserError(f"{end} {until} is not after {begin} {since}")
    return first, last
