"""A process of probes is small: what libraries take unasked, and nobody needs there, they do not take.

- pyarrow imports pandas, where it is installed, with the first array that it makes, to ask whether that is one of
  pandas': 40 MiB. PySpark needs pandas; probes never see one of its objects.
- kio imports hypothesis, where it is installed, to tell it how Kafka's types are made up: 8 MiB.
- The C library gives threads memory of arenas of their own, eight for each core, and keeps in each what was freed
  there: with some two hundred threads, of which nearly all wait, 100 MiB.
- deltalake's allocator has four arenas for each core, and threads that tidy them up; its runtime has a thread for each
  core. An append a second needs none of that: 4 MiB and four threads on two cores, and on large hosts more of both.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8  # of glibc's malloc.h
ENVIRONMENT: Final = {
    "_RJEM_MALLOC_CONF": "background_thread:false,narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0",
    "TOKIO_WORKER_THREADS": "2",
}
"""What deltalake reads when it is loaded. What a site sets itself stands."""
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
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


@contextmanager
def small_from_the_start() -> Iterator[None]:
    """Python processes that are spawned in the block are small in what is settled before they can say so: they import
    what they are to do first."""
    lacking = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(lacking)
    try:
        yield
    finally:
        for name in lacking:
            os.environ.pop(name, None)
