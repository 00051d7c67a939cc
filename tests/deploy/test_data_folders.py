"""Data folders are made anew from what Kafka's tool made for a broker of the same kind, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.data_folders import DataFolders
from deploy.kafka_settings import Program

PROGRAM = Program(Path("/java"), "4.1.0", [Path("/kafka.jar")], [])


def settings(node: int, folder: Path, **more: str) -> dict[str, str]:
    return {"node.id": str(node), "log.dirs": str(folder), "listeners": f"at {node}", "process.roles": "broker"} | more


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "meta.properties").write_text("#\nnode.id=1\ndirectory.id=first==\nversion=1\ncluster.id=one\n")
    (folder / "bootstrap.checkpoint").write_bytes(b"\x00features\xff")
    return folder


def test_all_but_the_names_is_as_the_tool_made_it(made: Path, tmp_path: Path) -> None:
    folders, other = DataFolders(), tmp_path / "other" / "data"
    folders.keep(PROGRAM, settings(1, made), made)
    assert folders.write(PROGRAM, settings(2, other), other, "another")
    assert sorted(file.name for file in other.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert (other / "bootstrap.checkpoint").read_bytes() == b"\x00features\xff"
    told = dict(line.split("=", 1) for line in (other / "meta.properties").read_text().splitlines())
    own = told.pop("directory.id")
    assert told == {"node.id": "2", "version": "1", "cluster.id": "another"}
    assert len(own) == 22 and own != "first=="


@pytest.mark.parametrize(
    ("program", "more"),
    [
        (Program(Path("/java"), "3.8.1", [Path("/kafka.jar")], []), {}),
        (PROGRAM, {"process.roles": "broker,controller"}),
        (PROGRAM, {"log.dirs": "/elsewhere"}),
    ],
)
def test_a_broker_of_another_kind_is_left_to_the_tool(
    made: Path, tmp_path: Path, program: Program, more: dict[str, str]
) -> None:
    folders, other = DataFolders(), tmp_path / "other"
    folders.keep(PROGRAM, settings(1, made), made)
    assert not folders.write(program, settings(2, other, **more), other, "another")
    assert not other.exists()


def test_a_folder_that_is_not_empty_is_left_to_the_tool(made: Path, tmp_path: Path) -> None:
    folders, other = DataFolders(), tmp_path / "other"
    folders.keep(PROGRAM, settings(1, made), made)
    other.mkdir()
    (other / "bootstrap.checkpoint").write_bytes(b"")
    assert not folders.write(PROGRAM, settings(2, other), other, "another")


@pytest.mark.parametrize("lines", ["node.id=1\nversion=0\ncluster.id=one\n", ""])
def test_what_is_not_known_of_the_tool_is_not_made_again(made: Path, tmp_path: Path, lines: str) -> None:
    folders, other = DataFolders(), tmp_path / "other"
    (made / "meta.properties").write_text(lines)
    folders.keep(PROGRAM, settings(1, made), made)
    assert not folders.write(PROGRAM, settings(2, other), other, "another")
