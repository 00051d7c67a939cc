"""What Kafka's own tool makes of an empty data folder, to be written again for other brokers of the same kind.

The tool is a Java process of its own, which costs a third of what a broker's start does. What it writes is the same for
all brokers of one release that are told the same, but for three names: the cluster's, the node's and the folder's.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.kafka_settings import Program

META: Final = "meta.properties"
OWN: Final = frozenset({"node.id", "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"})
"""The settings in which brokers of one kind differ: none of them is in what the tool writes, but for the node's id."""


class DataFolders:
    """Folders that the tool made, by the kind of broker that they are for."""

    def __init__(self) -> None:
        self._made: dict[str, dict[str, bytes]] = {}

    def keep(self, program: Program, settings: Mapping[str, str], folder: Path) -> None:
        """Remember what the tool has made of this folder; nothing where it is of another make than is known here."""
        files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
        plain = len(files) == len(list(folder.iterdir())) and settings["log.dirs"] == str(folder)
        if plain and _told(files.get(META, b"")).keys() == {"version", "cluster.id", "node.id", "directory.id"}:
            self._made[_kind(program, settings)] = files

    def write(self, program: Program, settings: Mapping[str, str], folder: Path, cluster_id: str) -> bool:
        """Make the folder as the tool would; False where it has not made one of this kind, or this one is not empty."""
        files = self._made.get(_kind(program, settings))
        if files is None or settings["log.dirs"] != str(folder) or (folder.is_dir() and any(folder.iterdir())):
            return False
        folder.mkdir(parents=True, exist_ok=True)
        own = {"cluster.id": cluster_id, "node.id": settings["node.id"], "directory.id": new_id()}
        for name, data in files.items():
            if name != META:
                (folder / name).write_bytes(data)
        told = _told(files[META]) | own
        written = folder / f"{META}.new"
        written.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        written.replace(folder / META)  # last: by it a folder counts as made
        return True


def new_id() -> str:
    """An id in Kafka's form. One that begins with a dash would be taken for an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _kind(program: Program, settings: Mapping[str, str]) -> str:
    return repr((program.version, program.jars, sorted(pair for pair in settings.items() if pair[0] not in OWN)))


def _told(properties: bytes) -> dict[str, str]:
    lines = [line for line in properties.decode().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)
