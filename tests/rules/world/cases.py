"""Situations of operation, one by one: each a world with faults before, during and after it, and its innocent twin.

Everything is in seconds of true time. A situation's innocent twin has the same hosts and the same trouble, and the
cluster does nothing wrong; where a reader's log is lost or late, a second twin has a record that only that reader saw,
which nobody may call lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.rules.world import faults
from tests.rules.world.clocks import Jump
from tests.rules.world.faults import Event
from tests.rules.world.host import Away, Reboot
from tests.rules.world.judge import Verdict, judge
from tests.rules.world.kernel import SECOND
from tests.rules.world.probes import Habits, Hang, Silence
from tests.rules.world.rejects import reject_row
from tests.rules.world.world import HostPlan, Plan, World


@dataclass(frozen=True, slots=True)
class Opens:
    """A condition that has to be open (opened by `by`, in arrival time), counted from no earlier than `since`."""

    anomaly: str
    since: float
    by: float


@dataclass(frozen=True, slots=True)
class Case:
    """`plan` makes a fresh world with these events. `faults` are those of the guilty world; `only` is the time of a
    record that only `witness` sees. `patience` is how many seconds later than the definition asks is still in time."""

    name: str
    plan: Callable[[Sequence[Event]], Plan]
    faults: Sequence[Event]
    only: tuple[float, str] | None = None
    opens: Sequence[Opens] = ()
    every: int = 5
    patience: float = 0.0
    tempting: bool = False
    """Its innocent twin was called guilty once."""

    def twins(self) -> dict[str, list[Event]]:
        worlds: dict[str, list[Event]] = {"guilty": list(self.faults), "innocent": []}
        if self.only is not None:
            worlds["witness"] = [faults.only_for(s(self.only[0]), self.only[1])]
        return worlds


def s(seconds: float) -> int:
    return round(seconds * SECOND)


def lose(*times: float, of: str = "w1", partition: int = 0) -> list[Event]:
    return [faults.lose(s(t), partition, of=of) for t in times]


def usual(pace: float = 2.0) -> dict[str, Habits]:
    period = s(pace)
    return {
        "w1": Habits("writer", period=period),
        "r1": Habits("reader", period=period),
        "observer": Habits("observer"),
    }


def others(pace: float = 2.0) -> dict[str, Habits]:
    period = s(pace)
    return {"w2": Habits("writer", period=period), "r2": Habits("reader", period=period)}


def _plan(
    events: Sequence[Event], length: float, first: HostPlan, second: HostPlan | None = None, partitions: int = 1
) -> Plan:
    hosts = [first] if second is None else [first, second]
    return Plan(7, s(length), hosts, partitions, events=list(events))


def two_hosts_one_away(events: Sequence[Event], lasts: float) -> Plan:
    away = [Away(s(120), s(120 + lasts))]
    return _plan(events, lasts + 400, HostPlan("h0", usual(5)), HostPlan("h1", others(5), away=away))


def one_host_away(events: Sequence[Event]) -> Plan:
    away = [Away(s(120), s(120 + 2400), pieces=2, apart=s(25))]
    return _plan(events, 2900, HostPlan("h0", {**usual(5), **others(5)}, away=away))


AHEAD = (Jump(s(120), s(124), s(1500)),)


def clock_ahead(events: Sequence[Event], second: bool) -> Plan:
    if second:
        return _plan(events, 400, HostPlan("h0", usual()), HostPlan("h1", others(), jumps=AHEAD))
    return _plan(events, 400, HostPlan("h0", {**usual(), **others()}, jumps=AHEAD))


def observer_clock_ahead(events: Sequence[Event]) -> Plan:
    probes = {**usual(), **others()}
    observer = probes.pop("observer")
    return _plan(
        events,
        400,
        HostPlan("h0", probes),
        HostPlan("h1", {"observer": observer}, jumps=AHEAD),
    )


def hung_reader(events: Sequence[Event]) -> Plan:
    probes = {**usual(5), **others(5)}
    probes["r2"].hangs.append(Hang(s(120), s(1300), before=True))
    return _plan(events, 1600, HostPlan("h0", probes))


def missing_row(events: Sequence[Event]) -> Plan:
    plan = _plan(events, 300, HostPlan("h0", {**usual(1), **others(1)}))
    plan.rejects = reject_row("r2", s(120))
    return plan


def observer_out(events: Sequence[Event], lasts: float) -> Plan:
    probes = {**usual(1), **others(1)}
    probes["observer"].silences.append(Silence(s(100), s(100 + lasts)))
    return _plan(events, 250, HostPlan("h0", probes))


def reboot(events: Sequence[Event], *, disk_lost: bool, alone: bool) -> Plan:
    boot = [Reboot(s(120), s(20), disk_lost)]
    down = [Away(s(112), s(125), killed=True)]
    if alone:
        return _plan(events, 420, HostPlan("h0", {**usual(1), **others(1)}, reboots=boot, away=down))
    return _plan(events, 420, HostPlan("h0", usual(1)), HostPlan("h1", others(1), reboots=boot, away=down))


def unverifiable(events: Sequence[Event]) -> Plan:
    """A writer's host loses its disk and is gone for the rest; readers, a group and transactions are elsewhere."""
    probes = {
        **usual(1),
        "t1": Habits("transactions", period=s(2)),
        "g1": Habits("group", group="g"),
    }
    second = HostPlan("h1", {"w2": Habits("writer")}, reboots=[Reboot(s(60), s(900), disk_lost=True)])
    return _plan(events, 400, HostPlan("h0", probes), second, partitions=2)


def unverifiable_back(events: Sequence[Event]) -> Plan:
    plan = unverifiable(events)
    plan.hosts[1].reboots[0].down = s(20)
    return plan


def lost_lives(events: Sequence[Event]) -> Plan:
    """Seventy lives whose journals are lost, one after the other, and then a loss of their last."""
    boots = [Reboot(s(20 + 15 * i), s(3), disk_lost=True) for i in range(71)]
    return _plan(
        events, 1300, HostPlan("h0", usual(5)), HostPlan("h1", {"w2": Habits("writer", period=s(2))}, reboots=boots)
    )


def skewed_pause(events: Sequence[Event], skew: float) -> Plan:
    away = [Away(s(120), s(133))]
    return _plan(events, 300, HostPlan("h0", usual(1)), HostPlan("h1", others(1), skew=s(skew), away=away))


def overtaken(events: Sequence[Event], observer_skew: float) -> Plan:
    """Deletions overtake a reader that was silent; the observer is on the other host, or its listings are slow."""
    times = (100, 130, 160)
    first, second = usual(1), others(1)
    second["r2"].silences += [Silence(s(t - 6), s(t + 0.2)) for t in times]
    events = [*events, *(faults.delete_records(s(t), keep=2) for t in times)]
    if observer_skew:
        second["observer"] = first.pop("observer")
        second["r3"] = Habits("reader")
        first["r2"] = second.pop("r2")
        return _plan(events, 250, HostPlan("h0", first), HostPlan("h1", second, skew=s(observer_skew)))
    first["observer"].hangs += [Hang(s(t - 1.5), s(3)) for t in times]
    return _plan(events, 250, HostPlan("h0", {**first, **second}))


def lone_observer(events: Sequence[Event], skew: float) -> Plan:
    """A host that only observes: its listings alone tell how its clock differs."""
    probes = {**usual(1), **others(1)}
    observer = probes.pop("observer")
    return _plan(events, 250, HostPlan("h0", probes), HostPlan("h1", {"observer": observer}, skew=s(skew)))


def hung_writer(events: Sequence[Event], *, stuck: bool = False) -> Plan:
    probes = {**usual(1), **others(1)}
    probes["w2"].hangs.append(Hang(s(100), s(900)))
    if stuck:
        probes["r2"].stuck.append(Silence(s(110), s(400)))
    return _plan(events, 450, HostPlan("h0", probes))


def skewed_restart(events: Sequence[Event], skew: float) -> Plan:
    second = HostPlan("h1", others(1), skew=s(skew))
    second.probes["r2"].kills = (s(120),)
    second.probes["w2"].kills = (s(125),)
    return _plan(events, 400, HostPlan("h0", usual(1)), second)


def slow_writer(events: Sequence[Event], fast: int) -> Plan:
    """A fast writer fills audit buckets between a slow writer's values while the log start passes the first."""
    probes = {
        "w1": Habits("writer", batch=fast),
        "w2": Habits("writer", period=s(40), batch=1),
        "r1": Habits("reader", most=100_000),
        "audit": Habits("audit", most=100_000, start=s(60), period=s(45)),
        "observer": Habits("observer"),
    }
    return _plan([*events, faults.delete_records(s(55), keep=12 * fast)], 170, HostPlan("h0", probes))


def healthy_group(events: Sequence[Event]) -> Plan:
    probes = {**usual(1), "g1": Habits("group", group="g"), "g2": Habits("group", group="g", kills=(s(150),))}
    return _plan(events, 300, HostPlan("h0", probes), partitions=2)


LATE = [Opens("evidence-late", 120, 300)]


def healthy_transactions(events: Sequence[Event]) -> Plan:
    probes = {**usual(3), "t1": Habits("transactions", period=s(3))}
    return _plan(events, 540, HostPlan("h0", probes), partitions=2)


def audited(events: Sequence[Event]) -> Plan:
    probes = {**usual(1), "audit": Habits("audit", period=s(20), start=s(30))}
    probes["w1"].batch = 60
    return _plan(events, 250, HostPlan("h0", probes))


def writer_away(events: Sequence[Event]) -> Plan:
    """A writer's host tells nothing for longer than log time waits: its acknowledgements come when all around them is
    settled."""
    second = HostPlan("h1", others(1), away=[Away(s(100), s(170))])
    return _plan(events, 300, HostPlan("h0", {**usual(1), "g1": Habits("group", group="g")}), second)


def member_lost(events: Sequence[Event]) -> Plan:
    """A member of the group goes down with its disk; another one, and who writes and reads there, come back."""
    first = {**usual(1), "g1": Habits("group", group="g")}
    second = {**others(1), "g2": Habits("group", group="g")}
    boot = [Reboot(s(60), s(20), disk_lost=True)]
    return _plan(events, 300, HostPlan("h0", first), HostPlan("h1", second, reboots=boot))


def writer_down(events: Sequence[Event]) -> Plan:
    """A writer's host goes down soon after its value was polled, while another host is away."""
    first = HostPlan("h0", usual(1), reboots=[Reboot(s(120), s(12))])
    second = HostPlan("h1", others(1), away=[Away(s(98), s(138))])
    return _plan(events, 250, first, second)


def observer_row_missing(events: Sequence[Event]) -> Plan:
    """Whatever rests on the order of what was told waits ten minutes for the row, and no longer."""
    probes = {**usual(5), "g1": Habits("group", period=s(5), group="g")}
    probes["observer"].period = s(5)
    plan = _plan(events, 900, HostPlan("h0", probes))
    plan.rejects = reject_row("observer", s(60))
    return plan


CASES: Sequence[Case] = (
    Case(
        "one of two hosts away for 25 min",
        lambda e: two_hosts_one_away(e, 1500),
        lose(60, 110, 700, 1610, 1750),
        only=(700, "r2"),
        every=20,
    ),
    Case("one host away for 40 min, back in two pieces", one_host_away, lose(60, 700, 2000, 2650), every=20),
    Case(
        "one of two hosts away for 15 min",
        lambda e: two_hosts_one_away(e, 900),
        lose(60, 110, 600, 1010, 1150),
        only=(600, "r2"),
        every=20,
    ),
    Case("a clock 25 min ahead for 4 s", lambda e: clock_ahead(e, False), lose(60, 121, 140, 300), patience=60),
    Case("a clock of two 25 min ahead for 4 s", lambda e: clock_ahead(e, True), lose(60, 121, 140, 300), patience=60),
    Case("the observer's clock 25 min ahead for 4 s", observer_clock_ahead, lose(60, 121, 140, 300), patience=60),
    Case(
        "a reader's operation open for 1,300 s",
        hung_reader,
        lose(60, 119, 500, 1440, 1500),
        only=(119.5, "r2"),
        every=20,
        opens=LATE,
    ),
    Case("one missing row of a living reader", missing_row, lose(60, 150, 200), only=(119.5, "r2")),
    Case("the observer out for 15 s", lambda e: observer_out(e, 15), lose(50, 105, 112, 180)),
    Case("the observer out for 25 s", lambda e: observer_out(e, 25), lose(50, 105, 120, 180)),
    Case("the observer out for 35 s", lambda e: observer_out(e, 35), lose(50, 105, 130, 180)),
    Case(
        "reboot of one probe host of two",
        lambda e: reboot(e, disk_lost=False, alone=False),
        lose(60, 150, 200, 300),
        only=(115, "r2"),
    ),
    Case(
        "lost disk of one probe host of two",
        lambda e: reboot(e, disk_lost=True, alone=False),
        lose(60, 150, 200, 300),
        only=(115, "r2"),
    ),
    Case("reboot of the only host", lambda e: reboot(e, disk_lost=False, alone=True), lose(60, 150, 200, 300)),
    Case("lost disk of the only host", lambda e: reboot(e, disk_lost=True, alone=True), lose(60, 150, 200, 300)),
    Case(
        "torn, regressed and lost while a life is unverifiable",
        unverifiable,
        [*lose(100, 200), faults.tear(s(120), 1), faults.tell_commits(s(160), "g", s(15), -3)],
    ),
    Case(
        "torn, regressed and lost after a life was unverifiable",
        unverifiable_back,
        [*lose(100, 200), faults.tear(s(120), 1), faults.tell_commits(s(160), "g", s(15), -3)],
    ),
    Case("seventy lost lives", lost_lives, [*lose(30, 600, 1200), faults.duplicate(s(1250))], every=20),
    Case("clocks 11 s apart and a pause of 13 s", lambda e: skewed_pause(e, 11), lose(60, 125, 200), tempting=True),
    Case("clocks -11 s apart and a pause of 13 s", lambda e: skewed_pause(e, -11), lose(60, 125, 200), tempting=True),
    Case(
        "deletions overtake a reader, observer 0.7 s ahead",
        lambda e: overtaken(e, 0.7),
        lose(50, 140.5, 200),
        tempting=True,
    ),
    Case("deletions overtake a reader, observer 15 s ahead", lambda e: overtaken(e, 15), lose(50, 200), tempting=True),
    Case(
        "deletions overtake a reader, observer 15 s behind", lambda e: overtaken(e, -15), lose(50, 200), tempting=True
    ),
    Case(
        "deletions overtake a reader, a listing in flight",
        lambda e: overtaken(e, 0),
        lose(50, 140.5, 200),
        tempting=True,
    ),
    Case("an observer alone on its host", lambda e: lone_observer(e, 0), lose(60, 150)),
    Case("an observer alone on its host, 15 s ahead", lambda e: lone_observer(e, 15), lose(60, 150)),
    Case("another writer's call open for 900 s", hung_writer, lose(60, 145, 300), opens=LATE),
    Case(
        "a stuck reader while a writer's call is open",
        lambda e: hung_writer(e, stuck=True),
        lose(60, 300),
        opens=[Opens("stuck-consumer", 110, 150)],
    ),
    Case("clocks 70 s apart and a restart", lambda e: skewed_restart(e, 70), lose(60, 200, 300)),
    Case("clocks -70 s apart and a restart", lambda e: skewed_restart(e, -70), lose(60, 200, 300)),
    Case(
        "a slow writer while the log start passes",
        lambda e: slow_writer(e, 1_000),
        [*lose(60), faults.duplicate(s(75), of="w2")],
        every=2,
    ),
    Case(
        "a slower writer while the log start passes",
        lambda e: slow_writer(e, 7_000),
        [*lose(60), faults.duplicate(s(75), of="w2")],
        every=2,
    ),
    Case("a record vanishes, and an audit reads again", audited, [faults.vanish(s(60))]),
    Case("a record appears late, and an audit reads again", audited, [faults.appear(s(60), s(40))]),
    Case(
        "a listed end stays behind for 60 s",
        healthy_group,
        [faults.stale_listing(s(100), s(60))],
        opens=[Opens("stale-log-end", 125, 140)],
    ),
    Case("a transaction visible 30 s after a crash", healthy_transactions, [faults.zombie(s(60), s(30))]),
    Case("a transaction visible 400 s after a crash", healthy_transactions, [faults.zombie(s(60), s(400))], every=20),
    Case("the topic recreated", healthy_group, [*lose(60), faults.recreate(s(120)), *lose(180)]),
    Case("a record is lost while its writer's host is away", writer_away, [*lose(60), *lose(120, of="w2")]),
    Case(
        "commits dropped after a member was lost with its disk",
        member_lost,
        [faults.drop_commits(s(150), "g", s(30)), *lose(220)],
    ),
    Case(
        "a phantom before its writer's host goes down", writer_down, [faults.phantom(s(100)), *lose(200)], tempting=True
    ),
    Case(
        "committed offsets told too high while a row of the observer is missing",
        observer_row_missing,
        [faults.tell_commits(s(120), "g", s(60), 15), *lose(300)],
        every=20,
    ),
    Case("commits dropped", healthy_group, [faults.drop_commits(s(100), "g", s(20))]),
    Case("committed offsets told too low", healthy_group, [faults.tell_commits(s(100), "g", s(20), -3)]),
    Case("committed offsets told too high", healthy_group, [faults.tell_commits(s(100), "g", s(20), 15)]),
)


def judge_case(case: Case, twin: str) -> Verdict:
    """The verdict of one of a situation's worlds. A condition is looked for in the guilty world alone."""
    world = World(case.plan(case.twins()[twin])).run()
    ways = ("rebuilt",) if twin == "guilty" else ()
    verdict = judge(world, every=case.every * SECOND, deliveries=ways, patience=s(case.patience))
    if twin == "guilty":
        heard = verdict.heard["live"].conditions
        when = verdict.given["live"]
        for o in case.opens:
            times = [when[c.step] for c in heard if c.finding.anomaly == o.anomaly and c.finding.event == "opened"]
            if not any(s(o.since) <= t <= s(o.by) + case.every * SECOND for t in times):
                verdict.differences.append(f"live: not open: {o}, but at {[t // SECOND for t in times]}")
    return verdict
