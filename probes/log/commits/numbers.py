"""How the probe log tells the appends of a committer apart: by their number, and by which start of it made them.

Numbers go on through all starts of a committer. A journal folder and a copy of it go on alike, so that a number alone
does not tell whose append it is: what one has appended would be taken for what the other is about to. So each start
draws a number of its own, and the table records both in one integer. Of an earlier version's appends the start is 0.
"""

from __future__ import annotations

import secrets
from typing import Final

NUMBER_BITS: Final = 32
"""One append a second for 136 years."""
START_BITS: Final = 30


def drawn() -> int:
    """The number of a start: that two are the same is as good as impossible."""
    return 1 + secrets.randbelow((1 << START_BITS) - 1)


def recorded(start: int, number: int) -> int:
    """Both, as the table has them."""
    return start << NUMBER_BITS | number


def start_of(version: int) -> int:
    """Of an append as it was `recorded`."""
    return version >> NUMBER_BITS


def number_of(version: int) -> int:
    """Of an append as it was `recorded`."""
    return version & (1 << NUMBER_BITS) - 1
