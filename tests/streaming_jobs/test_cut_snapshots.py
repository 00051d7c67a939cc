"""A state's snapshot that was being written when the process ended, beside one that the host lost."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from streaming_jobs.history.layout import reason_against, write_layout

WHOLE = {"000008-a.sst": 100, "000009-b.sst": 20}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of two partitions, each with a snapshot, which names two files."""
    write_layout(tmp_path)
    for partition in "01":
        state = tmp_path / "state" / "0" / partition
        (state / "SSTs").mkdir(parents=True)
        (state / "2.changelog").write_bytes(b"changes")
        snapshot(state / "1.zip", WHOLE)
        for name, size in WHOLE.items():
            write(state / "SSTs", name, size)
    assert reason_against(tmp_path) is None
    return tmp_path


def write(folder: Path, name: str, size: int) -> None:
    (folder / name).write_bytes(bytes(size))
    (folder / f".{name}.crc").write_bytes(b"crc")


def snapshot(path: Path, named: dict[str, int]) -> None:
    told = {"sstFiles": [{"localFileName": "", "dfsSstFileName": name, "sizeBytes": n} for name, n in named.items()]}
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("metadata", f"v1\n{json.dumps(told)}")


@pytest.mark.parametrize("size", [0, 7])
def test_what_was_being_copied_for_a_snapshot_that_is_not_there_yet_is_no_damage(checkpoint: Path, size: int) -> None:
    """A process was killed. The next one begins with the snapshots that are there."""
    folder = checkpoint / "state" / "0" / "1" / "SSTs"
    write(folder, "000012-c.sst", size)
    (folder / ".000013-d.sst.crc").write_bytes(b"")
    assert reason_against(checkpoint) is None


@pytest.mark.parametrize(("size", "said"), [(0, "is empty"), (19, "has 19 bytes of 20")])
def test_a_file_that_a_snapshot_names_has_to_be_whole(checkpoint: Path, size: int, said: str) -> None:
    write(checkpoint / "state" / "0" / "1" / "SSTs", "000009-b.sst", size)
    file = checkpoint / "state" / "0" / "1" / "SSTs" / "000009-b.sst"
    assert reason_against(checkpoint) == f"its checkpoint is damaged, as by the loss of the host: {file} {said}"


@pytest.mark.parametrize("name", ["1.zip", "2.changelog"])
def test_no_other_file_is_ever_empty(checkpoint: Path, name: str) -> None:
    file = checkpoint / "state" / "0" / "0" / name
    file.write_bytes(b"")
    assert reason_against(checkpoint) == f"its checkpoint is damaged, as by the loss of the host: {file} is empty"


@pytest.mark.parametrize("content", [b"no archive", None, {"sstFiles": [{}]}, []], ids=str)
def test_a_snapshot_that_says_nothing_is_damage(checkpoint: Path, content: object) -> None:
    state = checkpoint / "state" / "0" / "0"
    if isinstance(content, bytes):
        (state / "1.zip").write_bytes(content)
    else:
        with zipfile.ZipFile(state / "1.zip", "w") as parts:
            if content is not None:
                parts.writestr("metadata", f"v1\n{json.dumps(content)}")
    reason = reason_against(checkpoint)
    assert reason is not None and f"a snapshot in {state} cannot be read" in reason
