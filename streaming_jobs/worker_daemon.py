"""The process that Spark forks its Python workers from: it holds what they need before they are forked.

PySpark's own imports none of it, so that each worker would hold pandas, Arrow and the rules for itself, and go through
all of their objects for garbage after each task. Spark starts one such process for each kind of worker, by its name;
those that only plan, a moment long, need none of that.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from importlib import import_module

if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.argv[1:] == ["pyspark.worker"]:
        with suppress(ImportError):  # the task that misses it says so; what this process says is nobody's
            import_module("streaming_jobs.verdicts.part_checks")  # with all that it imports
    gc.collect()
    gc.freeze()
    manager()
