"""The versions of the program and of what it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGES: Final = ("pyspark", "delta-spark", "deltalake", "confluent-kafka", "pyarrow", "pandas", "numpy")


def installed(package: str) -> str:
    """The installed version of a distribution, "absent" where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def versions() -> dict[str, str]:
    """Program, Python and the packages that decide about behaviour, names fit for metric labels."""
    found = {"version": installed("offsetwatch"), "python": platform.python_version()}
    return found | {package.replace("-", "_"): installed(package) for package in PACKAGES}
