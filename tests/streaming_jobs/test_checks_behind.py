"""`checks-behind`, told the time and what was checked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rules.vocabulary.finding import Finding
from streaming_jobs.checks_behind import BehindWatch

START = datetime(2026, 1, 1, tzinfo=UTC)


class Job:
    """A probe log that gets a commit a second, whatever the checks do, and a look each half second."""

    def __init__(self, watch: BehindWatch) -> None:
        self.watch, self.seconds, self.version = watch, 0.0, 100

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def runs(self, seconds: float, *, checked_every: float = 0.0, commits: bool = True) -> list[Finding]:
        told = []
        for _ in range(round(2 * seconds)):
            self.seconds += 0.5
            came = None
            if commits and self.seconds % 1 == 0:
                self.version += 1
                came = self.version
            if checked_every and self.seconds % checked_every == 0:
                self.watch.checked(self.version - 1)
            told += self.watch.tick(self.now(), self.seconds, came)
        return told


def events(findings: list[Finding]) -> list[tuple[str, object]]:
    return [(f.event, *f.evidence.values()) for f in findings]


def job(open_since: datetime | None = None) -> Job:
    made = Job(BehindWatch(120.0, open_since))
    made.watch.tick(START, 0.0)
    return made


def test_checks_that_keep_up_say_nothing_however_long() -> None:
    one = job()
    assert one.runs(3600, checked_every=3) == []
    assert one.runs(3600, checked_every=110) == [], "slow, and in time"


def test_rows_that_wait_for_two_minutes_are_told_and_that_they_are_checked_too() -> None:
    one = job()
    one.runs(30, checked_every=3)
    opened, *more = one.runs(150)
    assert (opened.event, opened.anomaly, opened.cluster, opened.partition, more) == (
        "opened",
        "checks-behind",
        "",
        -1,
        [],
    )
    assert opened.evidence == {"behind_s": 120.0}
    (closed,) = one.runs(20, checked_every=15)
    assert (closed.id, closed.event, closed.evidence) == (opened.id, "closed", {"lasted_s": 45.0})
    assert one.runs(100, checked_every=3) == []


def test_it_goes_on_until_the_oldest_has_waited_for_a_quarter_of_that() -> None:
    one = job()
    one.watch.checked(100)
    assert [e for e, _ in events(one.runs(130))] == ["opened"]
    for behind in range(130, 31, -1):  # a catch-up: it has begun to read what came since
        one.watch.checked(one.version - behind)
        assert one.runs(1) == []
    one.watch.checked(one.version - 20)
    assert [e for e, _ in events(one.runs(1))] == ["closed"]


def test_a_silent_log_is_nobodys_delay() -> None:
    one = job()
    assert one.runs(600, commits=False) == []
    one.runs(10, checked_every=2)
    one.watch.checked(one.version)
    assert one.runs(600, commits=False) == []


def test_what_was_there_at_the_start_counts_once_the_first_batch_has_left_some() -> None:
    one = job()
    assert one.runs(200, commits=False) == [], "whether it has been checked nobody knows yet"
    one.watch.checked(20, left=100)
    assert events(one.runs(1, commits=False)) == [("opened", 200.5)]
    one.watch.checked(100)
    assert [e for e, _ in events(one.runs(1, commits=False))] == ["closed"]


def test_the_newest_of_the_first_batch_stands_for_all_that_came_before_it() -> None:
    one = job()
    one.runs(60)
    one.watch.checked(20, left=one.version)
    one.runs(50, checked_every=0)
    one.watch.checked(140)
    assert events(one.runs(12)) == [("opened", 120.0)], "160 is unchecked, and has waited since the start"
    one.watch.checked(160)
    assert one.runs(1) == [], "and what came after it for a minute"


def test_a_machine_that_stood_still_is_no_delay_of_the_checks() -> None:
    one = job()
    one.runs(10, checked_every=2)
    one.seconds += 3600
    assert one.runs(60, checked_every=2) == []


def test_one_that_an_earlier_run_left_open_is_closed_by_the_first_batch_that_is_in_time() -> None:
    one = job(open_since=START - timedelta(seconds=100))
    assert one.runs(10) == [], "nothing is checked yet"
    one.watch.checked(one.version)
    (closed,) = one.runs(1)
    assert (closed.event, closed.evidence["lasted_s"]) == ("closed", 110.5)


def test_a_commit_that_came_while_it_was_checked_is_not_waited_for() -> None:
    one = job()
    one.watch.checked(500)
    assert one.runs(300) == [], "all up to 400 are checked, before they were seen"
