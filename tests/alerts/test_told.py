"""From findings to what is told of them, second by second: one outage is one page, and its end is true."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertmanagerConfig, ChatConfig, Secret, WebhookConfig
from alerts.event import FindingEvent
from alerts.incidents.grouping import Incidents
from alerts.incidents.outage import SHORTLY
from alerts.receivers.alertmanager import Alertmanager, Links
from alerts.receivers.chat import Chat
from alerts.receivers.memory import Memory
from alerts.receivers.webhook import SETTLED, WORSE_AFTER, Webhook
from rules.vocabulary.times import micros
from tests.alerts.findings import NOON
from tests.alerts.incidents import S, incident
from tests.alerts.test_incidents import AWAY, told

Message = tuple[float, str, str]
"""When it was told (seconds after noon), its state, and its summary."""


class Hook:
    """A webhook and a chat that keep what they are told."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory(None, NOON - 999 * S)
        self.of_chat = Memory(None, NOON - 999 * S)
        self.told: list[tuple[float, dict[str, Any]]] = []
        self.chat: list[tuple[str, str, str]] = []
        self._now = 0.0

        def post(url: str, body: bytes, headers: Any) -> None:
            self.told.append((self._now, json.loads(body)))

        def notify(address: str, title: str, text: str, kind: str) -> bool:
            self.chat.append((title, text, kind))
            return True

        self._webhook = Webhook("http://hook", WebhookConfig(), Links(), send=post)
        config = ChatConfig(severities=("critical", "warning"))
        self._chat = Chat(Secret(env="CHAT"), config, Links(), notify=notify)

    def hear(self, events: Sequence[FindingEvent], until: int, **options: Any) -> list[Message]:
        """What it is told by `until`, being told each second what there is."""
        incidents, waiting = Incidents(**options), sorted(events, key=lambda one: one.counted)
        for second in range(-60, until + 1):
            now = NOON + second * S
            incidents.take(one for one in waiting if now - S < one.counted <= now)
            self._now = float(second)
            self._webhook.tell(incidents.at(now), self.memory, now)
            self._chat.tell(incidents.at(now), self.of_chat, now)
        return [(at, body["state"], body["incident"]["summary"]) for at, body in self.told]

    def said(self, number: int) -> str:
        description: str = self.told[number][1]["incident"]["description"]
        return description


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    monkeypatch.setenv("CHAT", "json://localhost")
    return Hook()


def away(event_: str, *, at: float, since: float = 0.0) -> FindingEvent:
    """The cluster has answered nobody since then."""
    evidence = {"brokers": [1], "since": micros(NOON + since * S)}
    return told("cluster-unreachable", (), at=at, event_=event_, topic="", partition=-1, evidence=evidence)


def stuck(name: str, number: int, event_: str, *, at: float, implied: bool = False) -> FindingEvent:
    return told(name, number, at=at, event_=event_, partition=number, implied_by=AWAY if implied else None)


def outage(since: float, *, lasts: float = 34.0, before: float = 1.0) -> list[FindingEvent]:
    """One of hardly more than the objective. Some who wait on the cluster are told `before` it is called away, others
    with it, and after it; none of them knows why."""
    called = since + 30
    names = ("stuck-consumer", "stuck-producer")
    opened = [
        stuck(name, n, "opened", at=called + n * before - before, implied=n == 3) for n in range(4) for name in names
    ]
    closed = [
        replace(one, event="closed", at=NOON + (since + lasts + 1) * S, counted=NOON + (since + lasts + 2) * S)
        for one in opened
    ]
    return [away("opened", at=called, since=since), away("closed", at=since + lasts, since=since), *opened, *closed]


UNREACHABLE = "cluster-unreachable in cluster c (critical)"


def test_an_outage_of_hardly_more_than_the_objective_is_one_page(hook: Hook) -> None:
    assert hook.hear(outage(0), until=120) == [(31, "open", UNREACHABLE), (66, "over", UNREACHABLE)]
    assert hook.said(1) == (
        "Cluster-unreachable of (). 9 findings so far. With it came 4 × stuck-consumer, 4 × stuck-producer. It ended at"
        " 2024-10-04 12:00:34 UTC, 34 s after it began, and the last of what came with it at 2024-10-04 12:00:35 UTC."
    )


def test_what_is_told_alone_long_before_its_cause_is_said_to_be_a_part_of_it(hook: Hook) -> None:
    """The checks of one partition were late."""
    events = outage(0, lasts=60)
    late = [replace(one, counted=one.counted + 9 * S) for one in events if one.anomaly == "cluster-unreachable"]
    events = [one for one in events if one.anomaly != "cluster-unreachable" and one.implied_by is None] + late
    heard = hook.hear([one for one in events if one.anomaly != "stuck-producer"], until=140)
    assert [state for _, state, _ in heard] == ["open", "open", "over", "over"]
    alone, cluster, part, over = (body["incident"] for _, body in hook.told)
    assert [one["anomaly"] for one in (alone, cluster, part, over)] == [
        "stuck-consumer",
        "cluster-unreachable",
        "stuck-consumer",
        "cluster-unreachable",
    ]
    assert part["became"] == {"anomaly": "cluster-unreachable", "id": AWAY}
    assert f"It is part of cluster-unreachable, incident {AWAY}." in part["description"]
    assert "It ended" not in part["description"], "it had not"
    assert hook.chat[2][0].startswith("Part of cluster-unreachable: stuck-consumer in ")
    assert hook.chat[2][2] == "info"


@pytest.mark.parametrize("lasts", [11.0, 300.0])
def test_who_is_stuck_by_himself_is_told_within_seconds(hook: Hook, lasts: float) -> None:
    heard = hook.hear(stuck_once(0, lasts), until=400)
    assert [state for _, state, _ in heard] == ["open", "over"]
    assert heard[0][0] == 1 + SHORTLY.total_seconds() + 1, "as late as it was found, besides"
    assert heard[1][0] == lasts + 1 + SETTLED.total_seconds()


def stuck_once(at: float, lasts: float, *, counted: float | None = None) -> list[FindingEvent]:
    both = [stuck("stuck-consumer", 1, name, at=one) for name, one in (("opened", at), ("closed", at + lasts))]
    return [replace(one, counted=NOON + counted * S) if counted is not None else one for one in both]


def test_nobody_is_woken_by_what_was_over_in_a_moment_before_he_could_be(hook: Hook) -> None:
    assert hook.hear(stuck_once(0, 2), until=400) == []


def test_but_where_it_comes_back_he_is(hook: Hook) -> None:
    heard = hook.hear([*stuck_once(0, 2), *stuck_once(120, 2)], until=400)
    assert [state for _, state, _ in heard] == ["open", "over"]


def test_and_where_it_lasted_long_and_is_found_when_it_was_over(hook: Hook) -> None:
    """The monitor was away meanwhile."""
    heard = hook.hear(stuck_once(0, 90, counted=200), until=400)
    assert [state for _, state, _ in heard] == ["open", "over"]


def test_who_was_stuck_before_the_cluster_went_is_told_alone(hook: Hook) -> None:
    stands = stuck("stuck-consumer", 9, "opened", at=12)
    heard = hook.hear([stands, *outage(0)], until=40)
    assert [(state, said.partition(" ")[0]) for _, state, said in heard] == [
        ("open", "stuck-consumer"),
        ("open", "cluster-unreachable"),
    ]


def test_alertmanager_is_told_of_one_alert_too() -> None:
    incidents, memory, sent = Incidents(), Memory(None, NOON), []
    receiver = Alertmanager(
        "http://am", AlertmanagerConfig(), Links(), send=lambda url, body, headers: sent.append(json.loads(body))
    )
    events = outage(0)
    for second in range(120):
        now = NOON + second * S
        incidents.take(one for one in events if now - S < one.counted <= now)
        receiver.tell(incidents.at(now), memory, now)
    assert {alert["labels"]["alertname"] for body in sent for alert in body} == {"cluster-unreachable"}


def test_a_second_outage_has_its_own_times(hook: Hook) -> None:
    heard = hook.hear([*outage(0), *outage(95)], until=240)
    assert heard == [
        (31, "open", UNREACHABLE),
        (66, "over", UNREACHABLE),
        (126, "open", UNREACHABLE),
        (161, "over", UNREACHABLE),
    ]
    first, _, again, over = (body["incident"] for _, body in hook.told)
    assert [(one["spells"], one["since"][11:19], one["over_before_s"]) for one in (first, again, over)] == [
        (1, "12:00:29", None),
        (2, "12:02:04", 60.0),
        (2, "12:02:04", 60.0),
    ]
    assert again["first_since"] == over["first_since"] == first["since"]
    assert again["evidence"] != first["evidence"], "of the second outage"
    assert (
        "It began again at 2024-10-04 12:01:35 UTC, after it had been over for 1 min: the 2nd time, first found at"
        " 2024-10-04 12:00:29 UTC."
    ) in hook.said(2)
    assert "34 s after it began" in hook.said(1)
    assert "34 s after it began" in hook.said(3)
    assert [title for title, _, _ in hook.chat][2:] == [f"Again: {UNREACHABLE}", f"Over: {UNREACHABLE}"]
    assert len({body["id"] for _, body in hook.told}) == 4, "who knows documents by their ids takes none for another"


def test_a_second_outage_is_told_also_where_somebody_is_stuck_since_the_first(hook: Hook) -> None:
    slow = [stuck("stuck-producer", 9, "opened", at=30, implied=True), stuck("stuck-producer", 9, "closed", at=135)]
    heard = hook.hear([*outage(0), *slow, *outage(95)], until=240)
    assert [(at, state) for at, state, _ in heard] == [(31, "open"), (126, "open"), (166, "over")]
    assert "2nd time" in hook.said(1)
    assert "It ended at 2024-10-04 12:02:09 UTC, 34 s after it began, and the last of what came" in hook.said(2)


@pytest.mark.parametrize("rested", [0.5, 45.0])
def test_an_outage_in_which_somebody_is_answered_for_a_moment_goes_on(hook: Hook, rested: float) -> None:
    """It takes half a minute without an answer to find it again: while what waits on it goes on, nobody was told that
    it was over."""
    slow = [stuck("stuck-producer", 9, "opened", at=31, implied=True), stuck("stuck-producer", 9, "closed", at=160)]
    again = [away("opened", at=60 + rested + 30, since=60 + rested), away("closed", at=150)]
    heard = hook.hear([away("opened", at=30, since=0), away("closed", at=60), *slow, *again], until=240)
    states = [state for _, state, _ in heard]
    assert states == (["open", "over"] if rested < 30 else ["open", "open", "over"])
    assert hook.told[-1][1]["incident"]["spells"] == len(states) - 1


@pytest.mark.parametrize("lasts", [15, 59, 90])
def test_what_waited_on_an_outage_and_is_found_when_it_is_over_does_not_begin_it_again(
    hook: Hook, lasts: float
) -> None:
    """Checks were behind: a hundred readers that had been stuck were found in one batch, and in another that they were
    not. People were told that brokers answer nobody, a minute after these were back."""
    found = [stuck("stuck-consumer", n, "opened", at=31, implied=True) for n in range(100)]
    ended = [stuck("stuck-consumer", n, "closed", at=62) for n in range(100)]
    late = [replace(one, counted=NOON + 120 * S) for one in found]
    gone = [replace(one, counted=NOON + (120 + lasts) * S) for one in ended]
    heard = hook.hear([away("opened", at=30, since=0), away("closed", at=60), *late, *gone], until=400)
    assert [state for _, state, _ in heard] == (["open", "over"] if lasts < 60 else ["open", "over", "open", "over"])
    incidents = Incidents()
    incidents.take([away("opened", at=30, since=0), away("closed", at=60), *late, *gone])
    (one,) = incidents.at(NOON + 400 * S)
    assert one.folded == {"stuck-consumer": 100} and one.until == NOON + (60 if lasts < 60 else 62) * S


def test_what_is_found_when_an_outage_is_over_and_outlasts_it_stands_for_itself() -> None:
    """The rules open it again, and say that nothing explains it any more."""
    late = replace(stuck("stuck-consumer", 1, "opened", at=31, implied=True), counted=NOON + 120 * S)
    again = replace(stuck("stuck-consumer", 1, "opened", at=62), counted=NOON + 130 * S)
    incidents = Incidents()
    incidents.take([away("opened", at=30, since=0), away("closed", at=60), late, again])
    found = {one.anomaly: one.open for one in incidents.at(NOON + 400 * S)}
    assert found == {"stuck-consumer": True, "cluster-unreachable": False}


@pytest.mark.parametrize("lasts", [10, 90])
def test_one_that_began_before_the_others_had_ended_and_is_found_later_is_no_second_page(
    hook: Hook, lasts: int
) -> None:
    """It is of a host whose rows, or whose clock, are behind."""
    events = [
        stuck("stuck-producer", 1, "opened", at=10),
        stuck("stuck-producer", 1, "closed", at=70),
        replace(stuck("stuck-producer", 2, "opened", at=60), counted=NOON + 130 * S),
        replace(stuck("stuck-producer", 2, "closed", at=60 + lasts), counted=NOON + (130 + lasts) * S),
    ]
    states = [state for _, state, _ in hook.hear(events, until=400)]
    assert states == (["open", "over"] if lasts < 60 else ["open", "over", "open", "over"])


def test_what_outlasts_an_outage_of_which_a_part_goes_on_is_told(hook: Hook) -> None:
    """Its own broker answers again: so say the rules, which open it once more."""
    explained = stuck("stuck-consumer", 1, "opened", at=31, implied=True)
    hook.hear([away("opened", at=30), explained, stuck("stuck-consumer", 1, "opened", at=90)], until=120)
    assert [body["incident"]["anomaly"] for _, body in hook.told] == ["cluster-unreachable", "stuck-consumer"]


@pytest.mark.parametrize("counted", [40.2, 40.9, 41.0, 41.5])
def test_a_reader_that_moves_once_and_is_stuck_again_is_told_to_have_moved(hook: Hook, counted: float) -> None:
    """It is stuck again just half a minute after it moved, and that may be counted a little sooner than half a minute
    after the other was: its end is told in any case, before it begins again."""
    spells = [told("stuck-consumer", 1, at=at, event_=event_) for at, event_ in ((0, "opened"), (10, "closed"))]
    hook.hear([*spells, told("stuck-consumer", 1, at=40, event_="opened", counted=counted)], until=100)
    told_of = [(body["state"], body["incident"]["spells"]) for _, body in hook.told]
    assert told_of == [("open", 1), ("over", 1), ("open", 2)]
    over = hook.told[1][1]["incident"]
    assert (over["since"], over["until"]) == ("2024-10-04T12:00:00.000Z", "2024-10-04T12:00:10.000Z")
    assert "10 s after it began" in hook.said(1)
    assert [title.split(":")[0] for title, _, _ in hook.chat] == [
        "stuck-consumer in orders/3 (critical)",
        "Over",
        "Again",
    ]


def test_what_was_part_of_an_outage_and_outlasts_it_is_over_before_it_begins_again(hook: Hook) -> None:
    """All that came with the outage is checked at once, as after a restart of the monitor."""
    alone = stuck("stuck-consumer", 1, "opened", at=25)
    late = [away("opened", at=30, since=0), away("closed", at=50), stuck("stuck-consumer", 1, "opened", at=85)]
    hook.hear([alone, *(replace(one, counted=NOON + 90 * S) for one in late)], until=200)
    mine = [body["state"] for _, body in hook.told if body["incident"]["anomaly"] == "stuck-consumer"]
    assert mine == ["open", "over", "open"]


def test_what_comes_back_within_half_a_minute_is_told_to_go_on(hook: Hook) -> None:
    spells = [
        told("unseen", (), at=at, event_=event_)
        for at, event_ in ((0, "opened"), (40, "closed"), (60, "opened"), (90, "closed"))
    ]
    hook.hear(spells, until=200)
    assert [body["state"] for _, body in hook.told] == ["open", "over"]
    assert hook.told[1][1]["incident"]["spells"] == 1
    assert "1 min 30 s after it began" in hook.said(1)


def test_two_outages_that_are_checked_at_once_have_their_own_times() -> None:
    """As after a restart of the monitor."""
    incidents = Incidents()
    incidents.take(replace(one, counted=NOON + 300 * S) for one in (*outage(0), *outage(95)))
    (one,) = incidents.at(NOON + 300 * S)
    assert (one.spells, one.since, one.first_since) == (2, NOON + 124 * S, NOON + 29 * S)
    assert one.earlier == ((NOON + 29 * S, NOON + 35 * S),)


def losses(*at: float, each: int = 1) -> list[FindingEvent]:
    """A loss in another partition each, of so many records."""
    return [told("lost-write", (n, i), at=second, partition=n) for n, second in enumerate(at) for i in range(each)]


def test_a_loss_that_spreads_is_told_again_and_not_for_each_partition(hook: Hook) -> None:
    heard = hook.hear(losses(0, 10), until=100)
    assert [(at, state) for at, state, _ in heard] == [(1, "open"), (61, "worse")]
    assert heard[1][2] == "lost-write in orders, 2 places (orders/0, orders/1) (critical)"
    assert hook.chat[1][0] == "Worse: lost-write in orders, 2 places (orders/0, orders/1) (critical)"
    assert hook.chat[1][2] == "failure"


def test_thirty_partitions_that_lose_one_after_the_other_are_a_few_messages(hook: Hook) -> None:
    heard = hook.hear(losses(*range(0, 600, 20)), until=700)
    assert [state for _, state, _ in heard] == ["open", "worse", "worse", "worse"]
    times = [at for at, _, _ in heard]
    assert all(two - one >= WORSE_AFTER.total_seconds() for one, two in pairwise(times))
    assert len({body["id"] for _, body in hook.told}) == 4


def test_ten_times_the_records_are_worse_and_twice_as_many_are_not(hook: Hook) -> None:
    first, more, many = losses(0), losses(100, each=3)[1:], losses(200, each=30)
    assert [at for at, _, _ in hook.hear([*first, *more], until=300)] == [1]
    again = Hook()
    assert [(at, state) for at, state, _ in again.hear([*first, *more, *many], until=300)] == [
        (1, "open"),
        (201, "worse"),
    ]


def test_a_silenced_loss_and_one_that_is_no_loss_are_not_told_to_be_worse(hook: Hook) -> None:
    spread = [told("unseen", (), at=n * 20, event_="opened", partition=n) for n in range(8)]
    assert [state for _, state, _ in hook.hear(spread, until=300)] == ["open"], (
        "one of conditions lasts; its end is told"
    )


@pytest.mark.parametrize("sign", ["suspected", "unseen"])
def test_what_was_missing_and_is_lost_did_not_go_away(hook: Hook, sign: str) -> None:
    loss = told("lost-write", 1, at=25, evidence={"writer": 7, "seq": 1, "offset": 44})
    hook.hear([told(sign, (), at=0, event_="opened"), loss, told(sign, (), at=25, event_="closed")], until=100)
    over = next(body["incident"] for _, body in hook.told if body["state"] == "over")
    assert over["became"] == {"anomaly": "lost-write", "id": loss.id}
    assert over["description"].endswith(f"What was missing is lost: lost-write, incident {loss.id}.")
    (chat,) = [(title, kind) for title, _, kind in hook.chat if title.startswith("Lost")]
    assert chat[0].startswith(f"Lost, lost-write: {sign} in orders/3 (")
    assert chat[1] in ("failure", "warning")


@pytest.mark.parametrize("sign", ["suspected", "unseen"])
@pytest.mark.parametrize(("lost", "over"), [(3, 4), (4, 3)])
def test_what_was_missing_and_is_told_as_lost_before_anybody_knew_of_it_is_told_once(
    hook: Hook, sign: str, lost: int, over: int
) -> None:
    loss = told("lost-write", 1, at=lost, evidence={"writer": 7, "seq": 1, "offset": 44})
    elsewhere = replace(loss, partition=4)
    gone = [told(sign, (), at=0, event_="opened"), told(sign, (), at=over, event_="closed")]
    assert [(state, what.split()[0]) for _, state, what in hook.hear([*gone, loss], until=100)] == [
        ("open", "lost-write")
    ]
    heard = Hook().hear([*gone, elsewhere], until=100)
    assert [what.split()[0] for _, _, what in heard if what.startswith(sign)] == []


def test_what_was_missing_and_was_found_is_over_whatever_is_lost_elsewhere(hook: Hook) -> None:
    elsewhere = told("lost-write", 1, at=25, partition=4)
    later = told("lost-write", 2, at=60)
    opened, closed = (told("suspected", (), at=at, event_=e) for at, e in ((0, "opened"), (25, "closed")))
    hook.hear([opened, elsewhere, closed, later], until=120)
    (over,) = [body["incident"] for _, body in hook.told if body["state"] == "over"]
    assert (over["anomaly"], over["became"]) == ("suspected", None)


def test_a_memory_of_an_earlier_version_is_read_and_its_incidents_are_not_told_again(tmp_path: Path) -> None:
    (tmp_path / "webhook.json").write_text(
        '{"began": "2024-10-04T11:00:00+00:00", "told": {"00000000000000ab@1": ["2024-10-04T11:59:00+00:00", null]}}'
    )
    known = Hook(Memory(tmp_path / "webhook.json", NOON))
    for places in (1, 30):
        known._webhook.tell([incident(places=places, findings=places)], known.memory, NOON + 200 * S)
    assert known.told == [], "how large it was when it was told nobody knows"
    known._webhook.tell([incident(ended=300)], known.memory, NOON + 300 * S)
    assert [body["state"] for _, body in known.told] == ["over"]


def test_how_large_it_was_is_known_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "webhook.json"
    first = Hook(Memory(file, NOON))
    first._webhook.tell([incident()], first.memory, NOON)
    second = Hook(Memory(file, NOON + 90 * S))
    for seconds in (90, 91, 200):
        second._webhook.tell([incident(places=2, findings=2)], second.memory, NOON + seconds * S)
    assert [body["state"] for _, body in second.told] == ["worse"]


def suspicion(event_: str, *, at: float, counted: float | None = None) -> FindingEvent:
    return told("suspected", (), at=at, event_=event_, counted=counted)


@pytest.mark.parametrize("lasts", [3.0, 30.0])
def test_a_suspicion_that_passes_within_seconds_is_nobodys(hook: Hook, lasts: float) -> None:
    events = [suspicion("opened", at=0), suspicion("closed", at=lasts)]
    hook.hear(events, until=120)
    assert [title.partition(":")[0] for title, _, _ in hook.chat] == (
        [] if lasts < 5 else ["suspected in orders/3 (warning)", "Over"]
    )
    incidents = Incidents(kept=None)
    incidents.take(events)
    assert (incidents.of(events[0].id) is None) == (not incidents.at(NOON + 60 * S)) == (lasts < 5)


def test_a_suspicion_that_turns_out_true_is_the_loss(hook: Hook) -> None:
    hook.hear(
        [suspicion("opened", at=0), told("lost-write", 1, at=2.0), suspicion("closed", at=2.0, counted=3.0)], until=20
    )
    assert [title for title, _, _ in hook.chat] == ["lost-write in orders/3 (critical)"]


@pytest.mark.parametrize("found", [9.0, 90.0])
def test_what_is_still_missing_when_the_rest_is_lost_is_not_told_beside_it(hook: Hook, found: float) -> None:
    """The loss of one value was told, and two seconds later that another one was suspected, which was lost, too."""
    other = partial(told, "suspected", (), partition=4)
    events = [
        suspicion("opened", at=0),
        other(at=0, event_="opened"),
        told("lost-write", 1, at=4.0),
        suspicion("closed", at=4.0),
        told("lost-write", 2, at=found - 1, partition=4),
        other(at=found, event_="closed"),
    ]
    hook.hear(events, until=30)
    assert [title for title, _, _ in hook.chat] == [
        "lost-write in orders/3 (critical)",
        *(["suspected in orders, 2 places (orders/3, orders/4) (warning)"] if found > 30 else []),
    ]


def test_a_suspicion_that_was_told_and_comes_back_for_a_moment_goes_on_being_known(hook: Hook) -> None:
    events = [
        suspicion("opened", at=0),
        suspicion("closed", at=60),
        suspicion("opened", at=120),
        suspicion("closed", at=122),
    ]
    hook.hear(events, until=200)
    assert [title.partition(":")[0] for title, _, _ in hook.chat] == ["suspected in orders/3 (warning)", "Over"]
    incidents = Incidents()
    incidents.take(events)
    (one,) = incidents.at(NOON + 200 * S)
    assert one.spells == 2


def test_a_cause_that_is_found_as_late_as_what_it_explains_is_the_only_page(hook: Hook) -> None:
    """The checks are eight seconds behind, and find the outage seven seconds after who was stuck."""
    behind = [
        replace(one, counted=one.counted + (14 if one.anomaly == "cluster-unreachable" else 7) * S)
        for one in outage(0, lasts=60)
        if one.event == "opened"
    ]
    assert [said for _, _, said in hook.hear(behind, until=58)] == [UNREACHABLE]
    incidents = Incidents()
    incidents.take(behind)
    assert [one.anomaly for one in incidents.at(NOON + 58 * S)] == ["cluster-unreachable"]
