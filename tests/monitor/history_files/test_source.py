"""Histories from standard input and compressed with gzip."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from monitor.history_files.errors import UnreadableHistory
from monitor.history_files.history_file import read
from tests.monitor.commands import offsetwatch, offsetwatch_given
from tests.monitor.history_files.shorthand import edn, events

READ = "0 ok send >x 1@0 2@1\n1 ok poll <x 1@0 2@1"
LOST = "0 ok send >x 1@0 2@1\n1 ok poll <x 2@1"
SPOILT = b'{:type :ok :process 0 :f :send :value [[:send 1 1]] :error "%s"}\n'


def lines(history: str, form: str = "json") -> bytes:
    return "".join((edn(e) if form == "edn" else json.dumps(e)) + "\n" for e in events(history)).encode()


def check(given: bytes, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return offsetwatch_given(given, "check", *arguments, cwd=cwd)


@pytest.mark.parametrize("form", ["json", "edn"])
@pytest.mark.parametrize("name", ["history.gz", "history"])
def test_gzip_is_known_by_its_bytes(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(lines(READ, form))
    plain = read(path)
    path.write_bytes(gzip.compress(lines(READ, form)))
    assert read(path).slices.equals(plain.slices)
    # Several members one after the other are one file.
    path.write_bytes(b"".join(gzip.compress(line + b"\n") for line in lines(READ, form).splitlines()))
    assert read(path).slices.equals(plain.slices)


@pytest.mark.parametrize("form", ["json", "edn"])
@pytest.mark.parametrize("harm", ["cut", "changed", "checksum"])
def test_what_cannot_be_decompressed_is_named(tmp_path: Path, form: str, harm: str) -> None:
    path = tmp_path / "history.gz"
    whole = gzip.compress(lines("\n".join(f"0 ok send >x {v}@{v}" for v in range(1000)), form))
    middle = len(whole) // 2
    path.write_bytes(
        {
            "cut": whole[:middle],
            "changed": whole[:middle] + b"\xff" * 50 + whole[middle + 50 :],
            "checksum": whole[:-8] + b"\0\0\0\0" + whole[-4:],
        }[harm]
    )
    with pytest.raises(UnreadableHistory) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: cannot be decompressed: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("form", ["json", "edn"])
def test_standard_input(tmp_path: Path, form: str, compressed: bool) -> None:
    def given(history: str) -> bytes:
        return gzip.compress(lines(history, form)) if compressed else lines(history, form)

    good, bad = check(given(READ), "-", cwd=tmp_path), check(given(LOST), "--json", "-", cwd=tmp_path)
    assert (good.returncode, good.stdout, good.stderr) == (0, b"standard input: valid (2 operations)\n", b"")
    assert bad.returncode == 1
    verdict = json.loads(bad.stdout)
    assert (verdict["file"], verdict["valid"], list(verdict["anomalies"])) == ("-", False, ["unseen", "lost-write"])
    broken = check(given(READ)[:-8] if compressed else given(READ) + b"{", "-", cwd=tmp_path)
    assert (broken.returncode, broken.stdout) == (2, b"")
    assert broken.stderr.startswith(b"offsetwatch: standard input")
    assert broken.stderr.count(b"\n") == 1


def test_standard_input_beside_files_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(lines(LOST))
    both = check(lines(READ), "--json", "h", "-", cwd=tmp_path)
    told = [json.loads(line) for line in both.stdout.splitlines()]
    assert [(one["file"], one["valid"]) for one in told] == [("h", False), ("-", True)]
    twice = offsetwatch("check", "-", "h", "-", cwd=tmp_path)
    assert (twice.returncode, twice.stdout) == (2, "")
    assert twice.stderr == "offsetwatch: - stands for standard input, which can be read only once\n"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("before", [0, 1, 7, 200, 5_000])
def test_the_line_of_what_is_not_utf_8(tmp_path: Path, before: int, compressed: bool) -> None:
    path = tmp_path / "h.edn"
    text = SPOILT % "ä".encode() * before + SPOILT % b"\xe4" + SPOILT % "ä".encode() * 3_000
    path.write_bytes(gzip.compress(text) if compressed else text)
    with pytest.raises(UnreadableHistory, match="this is not text in UTF-8") as error:
        read(path)
    assert error.value.line == before + 1
