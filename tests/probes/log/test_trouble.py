"""What a committer says that cannot append."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from probes.log.commits.trouble import Trouble
from probes.log.errors import HistoryUnavailable


def test_a_time_in_which_nothing_can_be_appended_is_told_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    trouble, away = Trouble(Path("/data/journals"), clock=lambda: seconds[0]), HistoryUnavailable("no broker answers")

    def failing(first: int, last: int) -> list[str]:
        caplog.clear()
        for second in range(first, last + 1):
            seconds[0] = second
            trouble.tell(away)
        seconds[0] += 1
        trouble.over()
        trouble.over()
        return caplog.messages

    caplog.set_level(logging.WARNING)
    assert failing(100, 104) == [], "a try or two that fail are nothing"
    assert failing(200, 260) == [
        "what probes log stays in /data/journals until it can be appended: no broker answers",
        "what probes log is appended again, after 61 s",
    ]
    assert len(failing(300, 310)) == 2, "another time"
