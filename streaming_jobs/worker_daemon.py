"""The process that Spark forks its Python workers from: it holds what they need before they are forked.

PySpark's own imports none of it, so that each worker would hold pandas, Arrow and the rules for itself, and go through
all of their objects for garbage after each task.
"""

from __future__ import annotations

import gc

import streaming_jobs.verdicts.operator  # noqa: F401 - with all that it imports

if __name__ == "__main__":
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()
