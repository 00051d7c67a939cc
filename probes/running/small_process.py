"""A process of probes is small: what libraries take unasked, and nobody needs there, they do not take.

- pyarrow imports pandas, where it is installed, with the first array that it makes, to ask whether that is one of
  pandas': 40 MiB. PySpark needs pandas; probes never see one of its objects.
- kio imports hypothesis, where it is installed, to tell it how Kafka's types are made up: 8 MiB.
- The C library gives threads memory of arenas of their own, eight for each core, and keeps in each what was freed
  there: with some two hundred threads, of which nearly all wait, 100 MiB.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8  # of glibc's malloc.h


UNASKED: Final = frozenset({"pandas", "hypothesis"})


class _Without(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in UNASKED:
            raise ModuleNotFoundError(f"{fullname} is not imported in a process of probes", name=fullname)
        return None


def stay_small() -> None:
    """Keep this process small from now on; called before its threads begin, and before what makes arrays as it is
    imported. Elsewhere than with glibc the arenas stay as they are."""
    if not any(isinstance(finder, _Without) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Without())
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
