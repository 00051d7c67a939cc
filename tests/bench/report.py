"""The machine and the figures, as lines."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

import psutil


def machine() -> str:
    gib = psutil.virtual_memory().total / 2**30
    return (
        f"{psutil.cpu_count()} cores, {gib:.0f} GiB, Python {platform.python_version()}, pyspark {version('pyspark')}, "
        f"load {psutil.getloadavg()[0]:.1f} at the start"
    )


def show(title: str, figures: Mapping[str, object]) -> None:
    print(f"\n{title}")
    for name, value in figures.items():
        print(f"  {name:<44} {value}", flush=True)


def rate(records: float, seconds: float) -> str:
    return f"{records / seconds / 1e6:.2f} M/s" if seconds else "-"


def mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
