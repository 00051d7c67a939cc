"""Settings, which are told as text."""

from __future__ import annotations

import re
from typing import Final

ASKED: Final = "settings_asked"
"""Among a topic's settings, when they were asked for, in microseconds by the clock of whoever asked: they were so at
some time from then on until they were told. Absent in logs of before it was told."""

HOSTNAME: Final = "hostname"
"""Among what a process says of itself as it starts: what the machine that it runs on is called, for people. Absent in
logs of before it was told."""

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


def whole(told: str | None) -> int | None:
    """The whole number that a setting is, None where it is none, or one of more than 18 digits."""
    return int(told) if told is not None and _WHOLE.fullmatch(told) else None


def natural(told: str | None) -> int:
    """The same, -1 for whatever is no number from 0 on."""
    number = whole(told)
    return -1 if number is None else max(number, -1)
