"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitor.commands.times import between, coming, moment
from monitor.errors import UserError

NOW = datetime(2026, 11, 22, 3, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("03:12", "2026-11-22T03:12:00+00:00"),
        ("3:12:07", "2026-11-22T03:12:07+00:00"),
        ("03:31", "2026-11-21T03:31:00+00:00"),
        ("yesterday 03:12", "2026-11-21T03:12:00+00:00"),
        ("today 23:00", "2026-11-22T23:00:00+00:00"),
        ("2h", "2026-11-22T01:30:15+00:00"),
        ("1h30m", "2026-11-22T02:00:15+00:00"),
        ("90 min ago", "2026-11-22T02:00:15+00:00"),
        ("2d", "2026-11-20T03:30:15+00:00"),
        ("2026-11-21", "2026-11-21T00:00:00+00:00"),
        ("2026-11-21T22:00", "2026-11-21T22:00:00+00:00"),
        ("2026-11-21T22:00+02:00", "2026-11-21T20:00:00+00:00"),
    ],
)
def test_moments(text: str, means: str) -> None:
    assert moment(text, NOW, "--since") == datetime.fromisoformat(means)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2 hours or so", "2026-13-01", "99999999999h", "9" * 400 + "h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"--since: .* is no time: give 03:12, 2h"):
        moment(text, NOW, "--since")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("03:31", "2026-11-22T03:31:00+00:00"),
        ("03:30", "2026-11-23T03:30:00+00:00"),
        ("today 23:00", "2026-11-22T23:00:00+00:00"),
        ("1h30m", "2026-11-22T05:00:15+00:00"),
        ("2026-11-24T06:00", "2026-11-24T06:00:00+00:00"),
        ("2026-11-21T06:00", "2026-11-21T06:00:00+00:00"),
    ],
)
def test_moments_to_come(text: str, means: str) -> None:
    assert coming(text, NOW, "--until") == datetime.fromisoformat(means)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2h ago", "yesterday 23:00"])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^--until: .* is (no time|over): give "):
        coming(text, NOW, "--until")


def test_an_end_that_is_still_to_come_is_that_of_today() -> None:
    since, until = between("1h", f"{(NOW + timedelta(minutes=2)):%H:%M}", NOW)
    assert since is not None and until is not None and since < NOW < until <= NOW + timedelta(minutes=2)
    with pytest.raises(UserError, match="is not after"):
        between("30min", f"{(NOW - timedelta(minutes=45)):%H:%M}", NOW)


def test_what_is_wrong_is_called_as_the_command_calls_it() -> None:
    with pytest.raises(UserError, match=r"^--from: '99' is no time"):
        between("99", None, NOW, ("--from", "--to"))
    with pytest.raises(UserError, match=r"^--to 1h is not after --from 30min$"):
        between("30min", "1h", NOW, ("--from", "--to"))
    with pytest.raises(UserError, match=r"^--since: '99' is no time"):
        between("99", None, NOW)
