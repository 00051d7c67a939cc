"""What each Python process of a local Spark does first: it finds PySpark where that is installed.

Spark puts an archive of PySpark before everything else on their path. Python keeps no compiled code of what is in an
archive, so that each of them would compile it anew, 0.6 s of processor time, and seven begin before the first batch,
most of them one after the other. `session` has this folder on the path where both are of one installation.

Python imports the first module of this name, so the next one is run from here.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import PurePath


def _is_sparks(entry: str) -> bool:
    name = PurePath(entry).name
    return name == "pyspark.zip" or name.startswith("py4j-") or name.startswith("spark-core_")


_here = __file__.rpartition("/")[0]
sys.path[:] = [entry for entry in sys.path if entry != _here and not _is_sparks(entry)]
_next = PathFinder.find_spec("sitecustomize", sys.path)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(module_from_spec(_next))
