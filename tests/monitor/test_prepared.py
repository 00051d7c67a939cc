"""Commands that are forked show what a command of its own shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.monitor.commands import COMMAND, environment, offsetwatch, offsetwatch_given


@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["--version", "status", "check missing.edn", "findings --kind x", "drill run", "--debug findings"]
)
def test_a_forked_command_ends_as_one_that_is_started_does(words: str, tmp_path: Path) -> None:
    own = subprocess.run(
        [*COMMAND, *words.split()], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    forked = offsetwatch(*words.split(), cwd=tmp_path)
    assert (forked.returncode, forked.stdout) == (own.returncode, own.stdout)
    assert forked.stderr.splitlines()[-1:] == own.stderr.splitlines()[-1:]


def test_one_command_leaves_the_next_nothing(tmp_path: Path) -> None:
    """Neither its environment nor its folder, its input or its --debug."""
    history = b'{"type": "ok"\n'
    (tmp_path / "elsewhere").mkdir()
    told = offsetwatch("status", "--debug", cwd=tmp_path / "elsewhere", OFFSETWATCH_DATA="theirs").stderr
    assert "theirs" in told and "Traceback" in told
    assert b"line 1" in offsetwatch_given(history, "check", "-", cwd=tmp_path).stderr
    (told,) = offsetwatch("status", cwd=tmp_path).stderr.splitlines()
    assert "theirs" not in told and "OFFSETWATCH_DATA" not in told
    assert "nothing that could be checked" in offsetwatch("check", "-", cwd=tmp_path).stderr, "there is no input"
