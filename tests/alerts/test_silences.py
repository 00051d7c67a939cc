"""Silences: whom they cover, for how long, and that nothing else is silenced by them."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertmanagerConfig, WebhookConfig
from alerts.event import FindingEvent
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import Incident
from alerts.incidents.silence import Silence
from alerts.receivers.alertmanager import Alertmanager, Links
from alerts.receivers.alertmanager_silences import SilencingAlertmanager
from alerts.receivers.http import SendFailed
from alerts.receivers.memory import Memory
from alerts.receivers.webhook import Webhook
from alerts.silences import KEPT, LONGEST, MOST, FolderSilences, SilenceRefused, silenced
from tests.alerts.findings import NOON, event, finding
from tests.alerts.incidents import S, condition, incident

HOUR = timedelta(hours=1)


def silence(topic: str = "", *, cluster: str = "c", since: float = 0, until: float = 600) -> Silence:
    """A silence from and to so many seconds after noon."""
    return Silence(
        id="ab12cd",
        cluster=cluster,
        topic=topic,
        since=NOON + since * S,
        until=NOON + until * S,
        because="new disks",
        by="ops",
    )


def under(one: Incident, *silences: Silence, at: float = 60) -> Silence | None:
    (made,) = silenced([one], silences, NOON + at * S)
    return made.silence


# Whom a silence covers


@pytest.mark.parametrize(
    ("one", "topic", "cluster", "covered"),
    [
        (incident(), "", "c", True),
        (incident(), "orders", "c", True),
        (incident(), "", "d", False),
        (incident(), "orders", "d", False),
        (incident(), "order", "c", False),
        (incident(topics=frozenset({"orders", "payments"})), "orders", "c", False),
        (incident(topics=frozenset({"orders", "payments"})), "", "c", True),
        (incident(topic="", topics=frozenset({""})), "orders", "c", False),
        (incident(cluster="", topic="", topics=frozenset({""})), "", "c", False),
    ],
)
def test_a_silence_covers_what_it_names_and_nothing_else(
    one: Incident, topic: str, cluster: str, covered: bool
) -> None:
    assert (under(one, silence(topic, cluster=cluster)) is not None) == covered


def test_what_has_records_of_another_topic_in_it_is_not_covered() -> None:
    """Findings of one transaction are one incident, in whatever topics they are."""

    def told(topic: str, anomaly: str, subject: int) -> FindingEvent:
        return event(finding(anomaly, subject), topic=topic, evidence={"txn": 5}, counted=NOON)

    incidents = Incidents()
    incidents.take([told("orders", "G1a", 1)])
    assert under(incidents.at(NOON)[0], silence("orders"))
    incidents.take([told("payments", "torn-transaction", 2)])
    (one,) = incidents.at(NOON)
    assert one.topics == {"orders", "payments"}
    assert under(one, silence("orders")) is None


@pytest.mark.parametrize(("at", "covered"), [(-1, False), (0, True), (599, True), (600, False)])
def test_a_silence_has_a_beginning_and_an_end(at: float, covered: bool) -> None:
    assert (under(incident(), silence(), at=at) is not None) == covered


def test_what_ended_under_a_silence_stays_silenced_and_what_ended_later_does_not() -> None:
    assert under(incident(ended=500), silence(), at=9_000)
    assert under(incident(ended=700), silence(), at=9_000) is None


# The file


def test_silences_outlive_the_process_and_are_seen_by_others_at_once(tmp_path: Path) -> None:
    path = tmp_path / "alerts" / "silences.json"
    monitor = FolderSilences(path)
    assert monitor.all() == ()
    made = FolderSilences(path).add(
        cluster="c", topic="orders", until=NOON + HOUR, because=" new\n disks ", by="ops", now=NOON
    )
    assert made.because == "new disks"
    assert monitor.active(NOON + S) == [made] == list(FolderSilences(path).all())
    ended = FolderSilences(path).end(made.id[:3], NOON + 60 * S)
    assert ended.until == NOON + 60 * S
    assert monitor.active(NOON + 60 * S) == []
    assert monitor.all() == (ended,)
    FolderSilences(path).add(
        cluster="c", topic="", until=NOON + KEPT + HOUR, because="x", by="", now=NOON + KEPT + 60 * S
    )
    assert [one.topic for one in monitor.all()] == [""], "what was over for long is forgotten"


def test_a_reason_in_another_encoding_can_be_shown(tmp_path: Path) -> None:
    """As a terminal gives it that says für in Latin-1; and as it stood in the file once."""
    path = tmp_path / "silences.json"
    held = FolderSilences(path)
    made = held.add(cluster="c", topic="", until=NOON + HOUR, because="f\udcfcr\udcff", by="\udcfc", now=NOON)
    assert (made.because, made.by) == ("f\ufffdr\ufffd", "\ufffd")
    path.write_text(path.read_text().replace("\\ufffd", "\\udcff"))
    assert FolderSilences(path).all()[0].because.encode() == "f\ufffdr\ufffd".encode()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cluster": ""}, "nothing silences everything"),
        ({"because": "  "}, "a silence needs a reason"),
        ({"until": NOON}, "is over already"),
        ({"until": datetime.fromisoformat("2024-10-04T13:30+05:00")}, "until 2024-10-04 08:30 UTC is over already"),
        ({"because": "x" * 301}, "a reason has 300 characters at most, this one 301"),
        ({"until": NOON + LONGEST + S}, "a silence lasts 7 days at most"),
    ],
)
def test_what_would_be_no_bounded_silence_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"cluster": "c", "topic": "", "until": NOON + HOUR, "because": "x", "by": "me", "now": NOON}
    with pytest.raises(SilenceRefused, match=said):
        FolderSilences(tmp_path / "silences.json").add(**(given | changed))
    assert not (tmp_path / "silences.json").exists()


def test_there_are_not_more_than_a_person_can_overlook(tmp_path: Path) -> None:
    held = FolderSilences(tmp_path / "silences.json")
    for _ in range(MOST):
        held.add(cluster="c", topic="", until=NOON + HOUR, because="x", by="", now=NOON)
    with pytest.raises(SilenceRefused, match=f"there are {MOST} silences already"):
        held.add(cluster="c", topic="", until=NOON + HOUR, because="x", by="", now=NOON)


def test_an_end_that_means_none_or_several_is_refused(tmp_path: Path) -> None:
    held = FolderSilences(tmp_path / "silences.json")
    made = held.add(cluster="c", topic="", until=NOON + HOUR, because="x", by="", now=NOON)
    for id_ in ("", "zz"):
        with pytest.raises(SilenceRefused, match="no active silence begins with"):
            held.end(id_, NOON)
    with pytest.raises(SilenceRefused, match="no active silence"):
        held.end(made.id, NOON + HOUR)


@pytest.mark.parametrize("text", ["", "[]", '{"silences": [{"id": 1}]}', '{"silences": 5}', "\x00"])
def test_a_file_that_cannot_be_understood_silences_nothing_and_is_named(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "silences.json"
    path.write_text(text)
    held = FolderSilences(path)
    with caplog.at_level(logging.WARNING):
        assert held.all() == held.all() == ()
    assert caplog.text.count("silences.json cannot be understood, so nothing is silenced") == 1
    with pytest.raises(SilenceRefused, match=r"silences\.json cannot be understood"):
        held.add(cluster="c", topic="", until=NOON + HOUR, because="x", by="", now=NOON)
    assert path.read_text() == text


# Webhooks


def told(*seen: tuple[float, Incident], silences: Silence, memory: Memory | None = None) -> list[tuple[float, str]]:
    """What a webhook is told, and when, seconds after noon, of an incident as it is seen at these times."""
    said: list[tuple[float, str]] = []
    now = 0.0
    memory = memory or Memory(None, NOON - HOUR)
    hook = Webhook(
        "http://hook",
        WebhookConfig(),
        Links(),
        send=lambda url, body, headers: said.append((now, json.loads(body)["state"])),
    )
    for now, one in seen:
        hook.tell(silenced([one], [silences], NOON + now * S), memory, NOON + now * S)
    return said


def test_what_is_still_open_when_the_silence_ends_is_told_then() -> None:
    assert told((10, incident()), (590, incident()), (601, incident()), silences=silence()) == [(601, "open")]


def test_what_is_over_by_then_is_never_told() -> None:
    over = incident(ended=300)
    assert told((10, incident()), (301, over), (601, over), silences=silence()) == []


def test_the_end_of_what_was_told_before_is_told_while_it_is_silenced() -> None:
    asked = told((10, incident()), (30, incident()), (300, incident(ended=299)), silences=silence(since=20))
    assert asked == [(10, "open"), (300, "over")]


def test_what_is_not_covered_is_told() -> None:
    assert told((10, incident()), silences=silence("payments")) == [(10, "open")]


# Alertmanagers


class Api:
    """An Alertmanager's silences, as its API has them."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.alerts = 0
        self.failing = False

    def __call__(self, method: str, path: str, body: bytes | None) -> bytes:
        if self.failing:
            raise SendFailed("refused")
        self.asked.append(method)
        if method == "POST":
            assert body is not None
            self.held[f"n{len(self.held)}"] = json.loads(body) | {"status": {"state": "active"}}
        if method == "DELETE":
            self.held[path.rpartition("/")[2]]["status"]["state"] = "expired"
        return json.dumps([{"id": id_, **one} for id_, one in self.held.items()]).encode()

    def post(self, url: str, body: bytes, headers: object) -> None:
        self.alerts += 1

    @property
    def active(self) -> list[dict[str, str]]:
        """The matchers of those that are active."""
        return [
            {one["name"]: one["value"] for one in held["matchers"]}
            for held in self.held.values()
            if held["status"]["state"] == "active"
        ]


def receiver(api: Api, silences: list[Silence]) -> SilencingAlertmanager:
    config = AlertmanagerConfig()
    return SilencingAlertmanager(
        Alertmanager("http://am", config, Links(), send=api.post), "http://am", config, lambda: silences, api
    )


def test_where_nothing_is_silenced_alertmanager_is_asked_nothing() -> None:
    api = Api()
    receiver(api, []).tell([incident()], Memory(None, NOON), NOON)
    assert (api.asked, api.alerts) == ([], 1)


def test_a_silence_of_a_cluster_is_one_there_until_it_ends() -> None:
    api, held = Api(), [silence(cluster="a-b.c")]
    made = receiver(api, held)
    for second in (1, 2, 3):
        made.tell([], Memory(None, NOON), NOON + second * S)
    assert api.active == [{"source": "offsetwatch|offsetwatch-rules", "cluster": r"a\-b\.c"}]
    (one,) = api.held.values()
    assert (one["endsAt"], one["createdBy"]) == ("2024-10-04T12:10:00.000Z", "ops")
    assert one["comment"] == "offsetwatch silence ab12cd: new disks"
    assert api.asked == ["GET", "POST"]
    receiver(api, held).tell([], Memory(None, NOON), NOON + 4 * S)
    assert len(api.active) == 1, "a restart finds it there"
    held[:] = [silence(cluster="a-b.c", until=5)]
    made.tell([], Memory(None, NOON), NOON + 5 * S)
    assert api.active == []


def test_a_silence_of_a_topic_is_one_there_for_each_incident_that_it_covers() -> None:
    api, held = Api(), [silence("orders")]
    made, memory = receiver(api, held), Memory(None, NOON)
    other = condition(id_="cd", topic="payments", topics=frozenset({"payments"}))
    made.tell(silenced([incident(), other], held, NOON + S), memory, NOON + S)
    assert api.active == [{"source": "offsetwatch|offsetwatch-rules", "incident": "00000000000000ab"}]
    assert api.alerts == 1, "it is sent, and silenced there"
    wider = incident(topics=frozenset({"orders", "payments"}))
    made.tell(silenced([wider, other], held, NOON + 2 * S), memory, NOON + 2 * S)
    assert api.active == [], "it concerns more by now"


def test_what_is_over_under_a_silence_is_over_there_before_the_silence_is() -> None:
    """An incident that comes and goes within two minutes, and a silence that is ended right after it."""
    api, held = Api(), [silence()]
    said: list[tuple[str, str, str]] = []

    def post(url: str, body: bytes, headers: object) -> None:
        said.extend(("alert", one["startsAt"], one["endsAt"]) for one in json.loads(body))

    def ask(method: str, path: str, body: bytes | None) -> bytes:
        said.append((method, "", ""))
        return api(method, path, body)

    config, memory = AlertmanagerConfig(), Memory(None, NOON)
    made = SilencingAlertmanager(
        Alertmanager("http://am", config, Links(), send=post), "http://am", config, lambda: held, ask
    )
    made.tell(silenced([incident()], held, NOON + 10 * S), memory, NOON + 10 * S)
    over = incident(ended=70)
    held[:] = [silence(until=71)]
    said.clear()
    made.tell(silenced([over], held, NOON + 71 * S), memory, NOON + 71 * S)
    assert [one[0] for one in said] == ["GET", "alert", "DELETE"]
    assert said[1][2] == "2024-10-04T12:01:10.000Z", "and not two minutes after it was told of, for somebody to notice"
    made.tell(silenced([over], held, NOON + 72 * S), memory, NOON + 72 * S)
    assert api.active == [] and len(said) == 3


def test_what_others_silence_there_is_left_alone() -> None:
    api, held = Api(), [silence()]
    mine = "offsetwatch silence ffffff: of another monitor"
    for comment in ("lunch", mine):
        api("POST", "", json.dumps({"matchers": [], "comment": comment}).encode())
    made = receiver(api, held)
    made.tell([], Memory(None, NOON), NOON + S)
    made.tell([], Memory(None, NOON), NOON + 700 * S)
    assert [one["comment"] for one in api.held.values() if one["status"]["state"] == "active"] == ["lunch", mine]


def test_an_alertmanager_that_takes_no_silences_is_told_of_incidents_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api()
    api.failing = True
    with caplog.at_level(logging.WARNING):
        receiver(api, [silence()]).tell([incident()], Memory(None, NOON), NOON + S)
    assert api.alerts == 1
    assert "alertmanager was not told of a silence, and may tell of what is silenced: refused" in caplog.text
