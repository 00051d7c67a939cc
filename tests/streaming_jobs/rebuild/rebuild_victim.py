"""A process that rebuilds the state and is killed: `python -m tests.streaming_jobs.rebuild.rebuild_victim ROOT`."""

from __future__ import annotations

import sys
from pathlib import Path

from streaming_jobs.config import JobConfig
from streaming_jobs.rebuild import rebuild

ROWS = 12


def config(root: Path) -> JobConfig:
    return JobConfig.model_validate({"root": root, "upkeep": {"enabled": False}, "history_wait": 0})


def main(root: Path) -> None:
    rebuild.SAVE_EVERY = 0.0  # type: ignore[misc]
    rebuild.Rebuild(config(root)).run("its checkpoint is gone", rows=ROWS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
