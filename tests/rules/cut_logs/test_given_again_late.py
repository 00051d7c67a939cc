"""Offsets that a log gave again after it was cut, where a host is late: its rows tell who skipped what stands there."""

from __future__ import annotations

import pytest

from rules.vocabulary.slices import Mark
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.histories import number
from tests.rules.settling.test_late_evidence import Hosts
from tests.rules.whole import whole

SKIPS = ("poll-skip", "int-poll-skip")


@pytest.mark.long
@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("sent_first", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("sender", ["one", "two"])
def test_what_a_late_host_tells_of_an_offset_that_was_given_again(
    before: bool, sent_first: bool, placed: bool, sender: str
) -> None:
    """z sent to offset 3 before a reader went over it, which is a skip, or after. The host of the reader that polled it
    there is late, and so is that of its sender, or is not; their rows come in either order, and its acknowledgement
    tells where it went or does not."""
    hosts = {"one": ("w", "v", "r", "observer"), "two": ("q",)}
    hosts[sender] += ("z",)
    h = Hosts(**hosts)
    h.assign("r")
    h.assign("q")
    h.row("z", "start")
    h.row("observer", "offsets", log_start=0, log_end=0, last_stable=0)
    h.second()
    h.silent = {"two"}
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=4)
    early = h.at(h.time)
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("v", 0, 1, 4)])
    late = h.at(h.time + 0.5)
    for i in range(100):
        if i == 4 and sender == "one":
            h.send("z", 0, 1, at=3 if placed else None, invoked=early if before else late, completed=late)
        h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    if sender == "two":
        h.send("z", 0, 1, at=3 if placed else None, invoked=early if before else late, completed=late)
    h.poll("q", [("w", 0, 3, 0), ("z", 0, 1, 3), ("v", 0, 1, 4)], invoked=late, completed=late)
    if not sent_first:
        h.rows[-2:] = h.rows[:-3:-1]
    h.silent = set()
    for _ in range(30):
        h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    for fed in (row_by_row, at_once):
        found = whole(fed(h), SKIPS)
        assert [(one.anomaly, one.evidence["skipped"]) for one in found] == (
            [("poll-skip", [{"offset": 3, "writer": number("z"), "seq": 0}])] if before else []
        )


@pytest.mark.long
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("gone", [True, False])
def test_a_value_whose_sender_is_late_waits_for_it(before: bool, gone: bool) -> None:
    """Everybody but z, who sent what stands at offset 3, is on time. What z did before it was lost with its host
    (`gone`) was no sending after that."""
    h = Hosts(one=("w", "v", "r", "q", "observer"), two=("z",))
    for reader in ("r", "q"):
        h.assign(reader, f="subscribe")
    h.row("z", "start")
    h.second()
    h.silent = {"two"}
    h.send("w", 0, 3, at=0)
    h.send("v", 0, 1, at=4)
    early = h.at(h.time)
    for records in ([("w", 0, 3, 0)], [("v", 0, 1, 4)]):
        h.poll("r", records, mode="subscribe")
    h.second()
    late = h.at(h.time)
    h.second()
    h.poll("q", [("w", 0, 3, 0), ("z", 0, 1, 3), ("v", 0, 1, 4)], mode="subscribe")
    for _ in range(100):
        h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    waits = len(h.rows)
    if not gone:
        h.send("z", 0, 1, at=3, invoked=early if before else late, completed=late)
    h.silent = set()
    if gone:
        h.hosts["two"] = ()
        over = Mark(number("z"), 1, h.at(1.0), h.at(h.time), lost=True)
        h.row("committer two", "mark", marks=[over], invoked=h.at(h.time), completed=h.at(h.time))
    for _ in range(30):
        h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    rows, h.rows = h.rows, h.rows[:waits]
    assert whole(row_by_row(h), SKIPS) == []
    h.rows = rows
    for fed in (row_by_row, at_once):
        found = whole(fed(h), SKIPS)
        assert [(one.anomaly, one.subject, one.at) for one in found] == (
            [("poll-skip", (number("r"), 2), found[0].at)] if before or gone else []
        )


@pytest.mark.parametrize("before", [True, False], ids=["guilty", "innocent"])
@pytest.mark.parametrize(
    ("polled_after", "silent_from"),
    [(1, 1.5), (6, 1.5), (6, 4.5)],
    ids=["soon", "just before it was judged", "and silent when the step had been made"],
)
def test_a_poll_of_a_late_host_that_was_made_before_a_step_was_judged_counts(
    polled_after: int, silent_from: float, before: bool
) -> None:
    """r went over offset 3, where q shows later that z's value stands; z was not told so. q's host is not heard of for
    a minute; then each of its seconds comes by itself."""
    h = Hosts(one=("w", "v", "r", "observer", "z"), two=("q",))
    h.assign("r")
    h.assign("q")
    h.row("z", "start")
    h.row("observer", "offsets", log_start=0, log_end=0, last_stable=0)
    h.second()
    for runs in [("w", 0, 3, 0)], [("v", 0, 1, 4)]:
        h.send(runs[0][0], *runs[0][1:3], at=runs[0][3])
    if before:
        h.send("z", 0, 1, type="info")
    h.poll("r", [("w", 0, 3, 0)])
    h.poll("r", [("v", 0, 1, 4)])
    if not before:
        h.time += 0.5
        h.send("z", 0, 1, type="info")
    for i in range(100):
        if i == polled_after:
            h.poll("q", [("w", 0, 3, 0), ("z", 0, 1, 3), ("v", 0, 1, 4)])
        h.row("observer", "offsets", log_start=0, log_end=5, last_stable=5)
        h.second()
    late = {number("q"), number("committer two")}
    in_time, told = list(h.rows), {}
    until = h.at(60.0)
    held = [
        row for row in h.rows if row.process in late and silent_from < (row.completed - h.at(0.0)).total_seconds() < 60
    ]
    others = [row for row in h.rows if row not in held]
    at = next(i for i, row in enumerate(others) if row.completed >= until)
    for name, rows in {"in time": in_time, "late": [*others[:at], *held, *others[at:]]}.items():
        h.rows = rows
        for fed in (row_by_row, at_once):
            told[name, fed] = [(one.anomaly, one.subject, one.evidence["skipped"]) for one in whole(fed(h), SKIPS)]
    skipped = [{"offset": 3, "writer": number("z"), "seq": 0}]
    expected = [("poll-skip", (number("r"), 2), skipped)] if before else []
    assert told == dict.fromkeys(told, expected)
