"""How much is done, beside how much was: a cluster that hangs gives nobody anything to log."""

from __future__ import annotations

from typing import Final

import numpy as np

from rules.arrays.columns import OK, POLL, SEND, TXN
from rules.triage.rows import Rows

LOOKS: Final = 10
"""So many are needed, and the mean is about as many's."""
LEAST: Final = 8.0
"""Operations a second: of fewer, nothing stands out."""
FEWER: Final = 0.25
"""Of the mean."""
_SECOND: Final = 1_000_000


class Pace:
    """Operations that took place, a second."""

    def __init__(self) -> None:
        self._mean = 0.0
        self._looks = 0
        self._newest = -1

    def fell(self, rows: Rows | None) -> bool:
        """Has it fallen to a small part of what it was? None stands for a second without rows."""
        done, seconds = 0, 1.0
        if rows is not None:
            done = int(np.count_nonzero(rows.does(SEND, POLL, TXN) & (rows.type == OK)))
            newest = int(rows.completed.max())
            if self._newest >= 0:
                seconds = max((newest - self._newest) / _SECOND, 1.0)
            self._newest = max(self._newest, newest)
        rate = done / seconds
        fell = self._looks >= LOOKS and self._mean >= LEAST and rate < FEWER * self._mean
        self._looks += 1
        self._mean += (rate - self._mean) / min(self._looks, LOOKS)
        return fell
