"""Files that have to stand in two places, since packages and charts take only what is inside them.

`python -m deploy.copies` writes the copies anew; a test compares them. They are no links, as archives and some file
systems lose those.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent
_FILES: Final = {
    "docs/runbook.md": "monitor/status/runbook.md",
    "deploy/prometheus/rules.yml": "deploy/helm/offsetwatch/files/rules.yml",
}
_FOLDERS: Final = {"deploy/grafana/dashboards": "deploy/helm/offsetwatch/files/dashboards"}


def copies(project: Path = PROJECT) -> Iterator[tuple[Path, Path]]:
    """(the file, its copy), for each of them."""
    yield from ((project / file, project / copy) for file, copy in _FILES.items())
    for folder, copy in _FOLDERS.items():
        yield from ((file, project / copy / file.name) for file in sorted((project / folder).iterdir()))


def write(project: Path = PROJECT) -> None:
    """Write all copies, and nothing else into folders of copies."""
    for copy in _FOLDERS.values():
        shutil.rmtree(project / copy, ignore_errors=True)
    for file, copied in copies(project):
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copied)


if __name__ == "__main__":
    write()
