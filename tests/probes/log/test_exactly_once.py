"""Whatever a committer dies of, and wherever: each row is in the table once, and no mark promised too much."""

import contextlib
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from probes.log.commits.committer import CommitPace, Committer, committer
from probes.log.errors import ProbeLogError
from probes.log.journals.segments import segments
from tests.probes.log.faults import MODES, Killed, Mode, fault
from tests.probes.log.lives import (
    Prober,
    StillClock,
    always_waits,
    check_marks,
    check_slices,
    closes,
    logged,
    table_rows,
)


def check(history: Path, probers: list[Prober]) -> None:
    rows = table_rows(history)
    check_slices(rows)
    for prober in probers:
        process = prober.journal.life.process
        assert logged(rows, process) == {p: r for p, r in prober.must_be_logged().items() if r}
        assert {p: len(types) for p, types in closes(rows, process).items()} == dict.fromkeys(prober.told, 1)
    assert "fail" not in {r["type"] for r in rows}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_a_turn_that_fails_at_any_step_is_made_good_by_the_next(tmp_path: Path, mode: Mode) -> None:
    """The turn under test finishes a dead life with a torn end, appends, and deletes a segment and an old journal."""
    names: list[str] = []
    step = 0
    while True:
        base = tmp_path / str(step)
        folder, history, clock = base / "journal", base / "history", StillClock()
        pace = CommitPace(keep=timedelta(0))
        living = Prober.start(folder, 1, clock, segment_bytes=900)
        dying, over = Prober.start(folder, 2, clock), Prober.start(folder, 3, clock)
        over.close()
        with committer(folder, history, clock, pace) as one:
            one.commit()
        living.send(0)
        for _ in range(30):
            living.send(0, 1)
        living.invoke(1)
        dying.invoke(0, 1)
        dying.kill()
        path = segments(dying.journal.folder)[-1][1]
        path.write_bytes(path.read_bytes() + b"\xffJtorn")
        clock.tick(61)
        living.alive()
        with committer(folder, history, clock, pace) as one:
            with fault(step, mode) as countdown, contextlib.suppress(Killed, ProbeLogError):
                one.commit()
            names.append(countdown.name)
            if mode.startswith("refused"):
                try_until_it_succeeds(one)
        living.send(0)
        with committer(folder, history, clock, pace) as one:
            try_until_it_succeeds(one)
            living.kill()
            one.drain()
        check(history, [living, dying, over])
        check_marks(history)
        if not countdown.hit:
            break
        shutil.rmtree(base)
        step += 1
    # All of what a turn does was met: recovery, plan, append and deletion.
    assert {"ftruncate", "pwrite", "touch", "fdatasync", "write", "fsync", "replace", "write_table", "_commit"} <= set(
        names
    )
    assert {"unlink", "rename", "rmtree"} <= set(names)


def try_until_it_succeeds(one: Committer) -> None:
    for _ in range(3):
        with contextlib.suppress(ProbeLogError):
            return one.drain()
    return one.drain()


class AnyHistory(RuleBasedStateMachine):
    """Lives that come and go, and a committer that works, dies and is refused, in any order."""

    @initialize()
    def begin(self) -> None:
        self.base = Path(tempfile.mkdtemp())
        self.clock = StillClock()
        self.probers: list[Prober] = []
        self.living: list[Prober] = []
        self.one: Committer | None = None
        self.birth()

    def prober(self, pick: int) -> Prober:
        return self.living[pick % len(self.living)]

    @rule()
    @precondition(lambda self: len(self.living) < 4)
    def birth(self) -> None:
        process = len(self.probers) + 1
        prober = Prober.start(self.base / "journal", process, self.clock, 1 + process % 2, segment_bytes=900)
        self.probers.append(prober)
        self.living.append(prober)

    @rule(pick=st.integers(0, 3), both=st.booleans())
    @precondition(lambda self: self.living)
    def invoke(self, pick: int, both: bool) -> None:
        prober = self.prober(pick)
        prober.invoke(*([0, 1] if both and len(prober.told) == 2 else [0]))

    @rule(pick=st.integers(0, 3), which=st.integers(0, 5), outcome=st.sampled_from(["ok", "info"]))
    @precondition(lambda self: self.living)
    def complete(self, pick: int, which: int, outcome: str) -> None:
        prober = self.prober(pick)
        if prober.in_flight:
            prober.complete(sorted(prober.in_flight)[which % len(prober.in_flight)], outcome)

    @rule(pick=st.integers(0, 3))
    @precondition(lambda self: self.living)
    def poll(self, pick: int) -> None:
        self.prober(pick).poll()

    @rule(pick=st.integers(0, 3))
    @precondition(lambda self: self.living)
    def alive(self, pick: int) -> None:
        self.prober(pick).alive()

    @rule(seconds=st.sampled_from([0.01, 1, 40]))
    def wait(self, seconds: float) -> None:
        self.clock.tick(seconds)

    @rule(pick=st.integers(0, 3), torn=st.integers(0, 30))
    @precondition(lambda self: self.living)
    def kill(self, pick: int, torn: int) -> None:
        prober = self.prober(pick)
        self.living.remove(prober)
        prober.kill()
        with segments(prober.journal.folder)[-1][1].open("ab") as file:
            file.write(b"\xffJ" + bytes(torn))

    @rule(pick=st.integers(0, 3))
    @precondition(lambda self: self.living)
    def close(self, pick: int) -> None:
        prober = self.prober(pick)
        if not prober.in_flight:
            self.living.remove(prober)
            prober.close()

    @rule()
    def commit(self) -> None:
        self.committing().commit()

    @rule()
    def hold(self) -> None:
        self.committing().commit(may_wait=True)

    @rule(step=st.integers(0, 25), mode=st.sampled_from(MODES))
    def fail_to_commit(self, step: int, mode: Mode) -> None:
        one = self.committing()
        with fault(step, mode):
            try:
                one.commit()
            except Killed:
                one.__exit__(None, None, None)
                self.one = None
            except ProbeLogError:
                pass

    def committing(self) -> Committer:
        if self.one is None:
            pace = CommitPace(keep=timedelta(seconds=30), batch_bytes=1)
            folder, history = self.base / "journal", self.base / "history"
            self.one = committer(folder, history, self.clock, pace, holding=always_waits()).__enter__()
        return self.one

    def teardown(self) -> None:
        for prober in self.living:
            prober.kill()
        one = self.committing()
        one.drain()
        one.drain()
        one.__exit__(None, None, None)
        check(self.base / "history", self.probers)
        check_marks(self.base / "history")
        shutil.rmtree(self.base)


AnyHistory.TestCase.settings = settings(
    max_examples=15,  # other ones each time
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAnyHistory = pytest.mark.slow(AnyHistory.TestCase)
