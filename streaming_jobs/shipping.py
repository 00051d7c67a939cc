"""What the workers of a Spark elsewhere need of ours: an archive of the packages that a task imports.

A task imports `streaming_jobs` and `rules` and nothing else of ours; `WORKERS_NEED` is what these import in turn, and
has to be installed where the workers are (PySpark and py4j come with their Spark)."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHIPPED: Final = ("rules", "streaming_jobs")
WORKERS_NEED: Final = ("numpy", "orjson", "pandas", "pyarrow", "pyroaring")
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The same for every entry, so that the same code gives the same archive; the earliest that the format knows."""


def archive(folder: Path) -> Path:
    """Write the archive into this folder, named by its contents, so that no executor mistakes one version's for
    another's."""
    sources = dict(_sources())
    digest = hashlib.sha256()
    for name, text in sources.items():
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    path = folder / f"offsetwatch-{digest.hexdigest()[:16]}.zip"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".part")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, text in sources.items():
                packed.writestr(zipfile.ZipInfo(name, _TIME), text, zipfile.ZIP_DEFLATED)
        fresh.replace(path)
    return path


def _sources() -> Iterator[tuple[str, bytes]]:
    for package in SHIPPED:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        root = Path(spec.submodule_search_locations[0])
        for file in sorted(root.rglob("*.py")):
            yield f"{package}/{file.relative_to(root).as_posix()}", file.read_bytes()
