"""What receivers are told of incidents, and when: each state once, whatever fails between."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.config import AlertmanagerConfig, AlertsConfig, ChatConfig, Secret, WebhookConfig
from alerts.incidents.incident import Incident
from alerts.incidents.silence import Silence
from alerts.receivers.alertmanager import AHEAD, DESCRIBED, NOTICED, RESOLVED_FOR, Alertmanager, Links, description
from alerts.receivers.chat import Chat
from alerts.receivers.courier import LONGEST_PAUSE, TICK, Courier
from alerts.receivers.http import Refused, SendFailed
from alerts.receivers.memory import Memory, ToldTimes
from alerts.receivers.webhook import FRESH, SETTLED, SIGNATURE, TIMESTAMP, Webhook, verified
from tests.alerts.findings import NOON
from tests.alerts.incidents import Clock, S, condition, incident


class Posted:
    """Takes what is posted, or fails as it is told to."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.raw: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.failing: Exception | None = None

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        if self.failing is not None:
            raise self.failing
        self.raw.append((url, body, headers))
        self.bodies.append(json.loads(body))


def alertmanager(posted: Posted, **config: Any) -> Alertmanager:
    return Alertmanager(
        "http://am:9093/", AlertmanagerConfig(**config), Links("https://docs/run", "https://p/"), send=posted
    )


def webhook(posted: Posted, **config: Any) -> Webhook:
    return Webhook("http://hook/x", WebhookConfig(**config), Links(), send=posted)


def ends(body: list[dict[str, Any]]) -> dict[str, str]:
    return {alert["labels"]["incident"]: alert["endsAt"] for alert in body}


# Alertmanager


def test_an_alert_says_everything_that_wakes_and_helps() -> None:
    posted = Posted()
    alertmanager(posted).tell([incident(subjects=("orders/3", "orders/4"), places=2)], Memory(None, NOON), NOON + 9 * S)
    assert [url for url, _, _ in posted.raw] == ["http://am:9093/api/v2/alerts"]
    assert posted.bodies == [
        [
            {
                "labels": {
                    "alertname": "lost-write",
                    "severity": "critical",
                    "kind": "violation",
                    "cluster": "c",
                    "topic": "orders",
                    "incident": "00000000000000ab",
                    "source": "offsetwatch",
                },
                "annotations": {
                    "summary": "lost-write in orders, 2 places (orders/3, orders/4) (critical)",
                    "description": "A record is lost.\nEvidence: writer=1152921504606846976  offset=5",
                    "explain": "offsetwatch explain 00000000000000ab",
                    "runbook": "docs/runbook.md#lost-write",
                    "runbook_url": "https://docs/run#lost-write",
                    "dashboard": "https://p/incidents/00000000000000ab",
                },
                "startsAt": "2024-10-04T12:00:00.000Z",
                "endsAt": "2024-10-04T12:04:09.000Z",
                "generatorURL": "https://p/incidents/00000000000000ab",
            }
        ]
    ]


def test_an_open_incident_is_sent_again_and_its_end_at_once() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = alertmanager(posted, resend=60)
    for second in range(0, 130, 10):
        receiver.tell([condition()], memory, NOON + second * S)
    assert len(posted.bodies) == 3, "at once, and each minute"
    receiver.tell([condition(ended=131)], memory, NOON + 132 * S)
    assert ends(posted.bodies[-1]) == {"00000000000000ab": "2024-10-04T12:02:11.000Z"}
    late = 132 + RESOLVED_FOR.total_seconds()
    for second in range(140, int(late) + 300, 10):
        receiver.tell([condition(ended=131)], memory, NOON + second * S)
    assert len(posted.bodies) == 4 + 14, "the end is repeated for a while, and then no more"


def test_an_end_under_a_silence_is_sent_again_until_alertmanager_may_tell_it() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = alertmanager(posted, resend=60)
    receiver.tell([condition()], memory, NOON + 1 * S)
    until = NOON + 2 * RESOLVED_FOR
    under = Silence(id="5", cluster="c", topic="", since=NOON + 10 * S, until=until, because="at work", by="ops")
    over = condition(ended=20, silence=under)
    for minute in range(1, 60):
        receiver.tell([over], memory, NOON + 60 * minute * S)
    told_last = NOON + 60 * (len(posted.bodies) - 1) * S
    assert told_last == until + RESOLVED_FOR


def test_a_new_incident_is_sent_with_all_others_at_once() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = alertmanager(posted)
    receiver.tell([incident()], memory, NOON)
    receiver.tell([condition(id_="cd"), incident()], memory, NOON + 1 * S)
    assert [sorted(ends(body)) for body in posted.bodies] == [["00000000000000ab"], ["00000000000000ab", "cd"]]


def test_a_violation_that_was_over_before_anybody_could_be_told_is_told() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = alertmanager(posted)
    posted.failing = SendFailed("away")
    with pytest.raises(SendFailed):
        receiver.tell([incident(ended=60)], memory, NOON + 70 * S)
    posted.failing = None
    over = [incident(ended=60), condition(id_="cd", ended=60)]
    receiver.tell(over, memory, NOON + 100 * S)
    assert ends(posted.bodies[-1]) == {"00000000000000ab": "2024-10-04T12:03:40.000Z"}, "and a condition is not"
    receiver.tell(over, memory, NOON + 100 * S + NOTICED)
    assert ends(posted.bodies[-1]) == {"00000000000000ab": "2024-10-04T12:03:40.000Z"}
    sent = len(posted.bodies)
    receiver.tell(over, memory, NOON + 101 * S + NOTICED)
    assert len(posted.bodies) == sent


def test_what_was_over_before_alertmanager_was_ever_told_anything_is_left() -> None:
    posted = Posted()
    alertmanager(posted).tell([incident(ended=-10)], Memory(None, NOON), NOON + 5 * S)
    assert posted.bodies == []


def test_of_two_occurrences_with_the_same_labels_the_newest_is_sent() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = alertmanager(posted)
    receiver.tell([condition()], memory, NOON)
    again = condition(occurrence="ab@2", since=NOON + 400 * S)
    receiver.tell([again, condition(ended=50)], memory, NOON + 410 * S)
    (alert,) = posted.bodies[-1]
    assert (alert["startsAt"], alert["endsAt"]) == ("2024-10-04T12:06:40.000Z", "2024-10-04T12:10:50.000Z")


def test_an_alert_never_begins_after_its_end_or_in_the_future() -> None:
    posted = Posted()
    alertmanager(posted, resend=1).tell([incident(since=NOON + 90 * S)], Memory(None, NOON), NOON)
    (alert,) = posted.bodies[0]
    assert alert["startsAt"] < alert["endsAt"] == f"2024-10-04T12:00:0{AHEAD}.000Z"
    assert alert["startsAt"] == "2024-10-04T11:59:59.000Z"


def test_a_description_is_bounded() -> None:
    assert len(description(incident(evidence={"offsets": list(range(9_999))}))) == DESCRIBED


@pytest.mark.parametrize(
    ("config", "header"),
    [
        ({"token": Secret(env="TOKEN")}, "Bearer s3cret"),
        ({"username": "me", "password": Secret(env="TOKEN")}, "Basic bWU6czNjcmV0"),
        ({}, None),
    ],
)
def test_how_it_says_who_it_is(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], header: str | None) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    posted = Posted()
    alertmanager(posted, **config).tell([incident()], Memory(None, NOON), NOON)
    assert posted.raw[0][2].get("Authorization") == header


def test_a_secret_is_read_anew_and_its_absence_is_said_without_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    posted = Posted()
    receiver = alertmanager(posted, token=Secret(file=file), resend=1)
    memory = Memory(None, NOON)
    with pytest.raises(SendFailed, match=r"alerts.alertmanager.token: .*token cannot be read: No such file"):
        receiver.tell([incident()], memory, NOON)
    for second, value in ((1, "one"), (3, "two")):
        file.write_text(value + "\n")
        receiver.tell([incident()], memory, NOON + second * S)
        assert posted.raw[-1][2]["Authorization"] == f"Bearer {value}"


def test_a_secret_has_one_source_and_no_value() -> None:
    for wrong in ({}, {"env": "A", "file": "b"}, {"value": "s3cret"}):
        with pytest.raises(ValidationError):
            AlertsConfig.model_validate({"webhook": {"secret": wrong}})


@pytest.mark.parametrize("url", ["am:9093", "ftp://am", "", "http://"])
def test_an_address_that_cannot_be_posted_to_is_refused_at_the_start(url: str) -> None:
    for section in ("alertmanager", "webhook"):
        with pytest.raises(ValidationError):
            AlertsConfig.model_validate({section: {"urls": [url]}})


# Webhooks and chat


def test_a_webhook_is_told_of_each_state_once_and_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "s3cret")
    posted, memory = Posted(), Memory(None, NOON)
    receiver = webhook(posted, secret=Secret(env="HOOK"))
    for ended, at in ((None, 0), (None, 5), (60, 61), (60, 99)):
        receiver.tell([incident(ended=ended)], memory, NOON + at * S)
    assert [body["state"] for body in posted.bodies] == ["open", "over"]
    assert [body["id"] for body in posted.bodies] == ["00000000000000ab@1:open", "00000000000000ab@1:over"]
    assert posted.bodies[0] == {
        "version": 1,
        "id": "00000000000000ab@1:open",
        "state": "open",
        "incident": {
            "id": "00000000000000ab",
            "anomaly": "lost-write",
            "kind": "violation",
            "severity": "critical",
            "cluster": "c",
            "cluster_name": None,
            "topic": "orders",
            "since": "2024-10-04T12:00:00.000Z",
            "until": None,
            "spells": 1,
            "first_since": "2024-10-04T12:00:00.000Z",
            "over_before_s": None,
            "became": None,
            "subjects": ["orders/3"],
            "places": 1,
            "findings": 1,
            "folded": {},
            "summary": "lost-write in orders/3 (critical)",
            "description": "A record is lost.",
            "evidence": {"writer": str(2**60), "offset": 5},
            "runbook": "docs/runbook.md#lost-write",
        },
    }
    _, body, headers = posted.raw[0]
    assert verified("s3cret", headers, body, NOON)
    assert not verified("another", headers, body, NOON)
    assert not verified("s3cret", headers, body + b" ", NOON)
    assert not verified("s3cret", headers, body, NOON + FRESH + 1 * S), "replayed"
    assert not verified("s3cret", {**headers, TIMESTAMP: "1728043201"}, body, NOON)
    assert not verified("s3cret", {SIGNATURE: headers[SIGNATURE]}, body, NOON)
    assert not verified("s3cret", {**headers, SIGNATURE: "v1=é"}, body, NOON)


def test_a_restart_tells_nothing_twice_and_leaves_nothing_out(tmp_path: Path) -> None:
    posted, file = Posted(), tmp_path / "webhook.json"
    webhook(posted).tell([incident()], Memory(file, NOON), NOON)
    after = NOON + 600 * S
    missed = incident("cd", ended=300, since=NOON + 200 * S)
    webhook(posted).tell([incident(), missed, incident("ef")], Memory(file, after), after)
    webhook(posted).tell([incident(ended=700), missed, incident("ef")], Memory(file, after), NOON + 701 * S)
    assert [body["id"] for body in posted.bodies] == [
        "00000000000000ab@1:open",
        "ef@1:open",
        "cd@1:open",
        "cd@1:over",
        "00000000000000ab@1:over",
    ]
    assert Memory(file, after).began == NOON


def test_what_is_told_while_the_disk_is_full_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has room for it. It has none for all: then the last of it that was written stands."""
    posted, file = Posted(), tmp_path / "webhook.json"
    memory = Memory(file, NOON)
    size = file.stat().st_size

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", full)
        webhook(posted).tell([incident()], memory, NOON)
        assert (file.stat().st_size, [one.name for one in tmp_path.iterdir()]) == (size, [file.name])
        again = Memory(file, NOON + 60 * S)
        webhook(posted).tell([incident()], again, NOON + 60 * S)
        assert len(posted.bodies) == 1
        webhook(posted).tell([incident(f"{n:x}") for n in range(200)], again, NOON + 60 * S)
        assert file.stat().st_size == size and Memory(file, NOON).of("00000000000000ab@1").last == "open"
    again.keep([*(f"{n:x}@1" for n in range(200)), "00000000000000ab@1"])
    assert file.stat().st_size > size
    webhook(posted).tell([incident(ended=70)], Memory(file, NOON + 80 * S), NOON + 80 * S)
    assert posted.bodies[-1]["id"] == "00000000000000ab@1:over"


@pytest.mark.parametrize("held", ["", "{", "[]", '{"began": 3, "told": {}}', '{"began": null, "told": {"a": []}}'])
def test_a_memory_that_cannot_be_read_is_none(tmp_path: Path, held: str) -> None:
    (tmp_path / "m.json").write_text(held)
    memory = Memory(tmp_path / "m.json", NOON)
    assert (memory.began, memory.of("x").last) == (NOON, None)


def test_memory_is_bounded_by_what_there_is(tmp_path: Path) -> None:
    posted, memory = Posted(), Memory(tmp_path / "m.json", NOON)
    webhook(posted).tell([incident("a"), incident("b")], memory, NOON)
    memory.keep(["b@1"])
    kept = Memory(tmp_path / "m.json", NOON)
    assert (kept.of("a@1").last, kept.of("b@1").last) == (None, "open")


def test_a_condition_that_comes_and_goes_is_told_when_it_stays_away() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = webhook(posted)
    settled = 10 + SETTLED.total_seconds()
    for one, at in (
        (condition(), 0),
        (condition(ended=10), 12),
        (condition(), 20),
        (condition(ended=10), settled - 1),
        (condition(ended=10), settled),
        (condition(), 100),
        (condition(), 101),
    ):
        receiver.tell([one], memory, NOON + at * S)
    assert [body["state"] for body in posted.bodies] == ["open", "over", "open"]


def test_only_the_severities_that_were_asked_for() -> None:
    posted = Posted()
    both = [incident("a"), incident("b", severity="warning")]
    webhook(posted, severities=("critical",)).tell(both, Memory(None, NOON), NOON)
    assert [body["incident"]["id"] for body in posted.bodies] == ["a"]


def test_what_a_webhook_refuses_holds_nothing_up() -> None:
    posted, memory = Posted(), Memory(None, NOON)
    receiver = webhook(posted)
    posted.failing = Refused("http://hook answered 400")
    receiver.tell([incident("a")], memory, NOON)
    posted.failing = None
    receiver.tell([incident("a"), incident("b")], memory, NOON)
    assert [body["incident"]["id"] for body in posted.bodies] == ["b"]


def test_chat_is_short_and_a_failure_is_tried_again() -> None:
    sent: list[tuple[str, ...]] = []
    works = [False, True, True]

    def notify(*message: str) -> bool:
        sent.append(message)
        return works.pop(0)

    import os

    os.environ["CHAT"] = "json://localhost"
    chat = Chat(Secret(env="CHAT"), ChatConfig(), Links("https://docs/run"), notify=notify)
    memory = Memory(None, NOON)
    with pytest.raises(SendFailed):
        chat.tell([incident()], memory, NOON)
    chat.tell([incident(), incident("w", severity="warning")], memory, NOON)
    chat.tell([incident(ended=60)], memory, NOON + 61 * S)
    assert (
        sent[0]
        == sent[1]
        == (
            "json://localhost",
            "lost-write in orders/3 (critical)",
            "A record is lost.\noffsetwatch explain 00000000000000ab\nhttps://docs/run#lost-write",
            "failure",
        )
    )
    assert (sent[2][1], sent[2][3]) == ("Over: lost-write in orders/3 (critical)", "success")


# Couriers


class Recorder:
    name = "recorder"

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.failing: Exception | None = None

    def tell(self, incidents: Any, memory: Memory, now: Any) -> None:
        if self.failing is not None:
            raise self.failing
        self.told.append([one.id for one in incidents])


def test_a_dead_receiver_is_asked_less_and_less_often_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[str] = []
    standing: list[Incident] = [incident()]
    recorder, clock = Recorder(), Clock()
    courier = Courier(recorder, lambda now: standing, Memory(None, NOON), clock=clock, failed=failed.append)
    recorder.failing = SendFailed("http://am: connection refused")
    pauses = [courier.attempt() for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE, LONGEST_PAUSE]
    assert failed == ["recorder"] * 8
    assert courier.failures() == 8
    assert "recorder could not be told: http://am: connection refused" in caplog.text
    recorder.failing = None
    assert (courier.attempt(), courier.attempt()) == (TICK, TICK)
    assert courier.failures() == 0, "since the last that did not fail"
    recorder.failing = ValueError("token s3cret")
    assert courier.attempt() == 1, "it begins anew"
    assert "s3cret" not in caplog.text, "what was not foreseen may hold anything"


def test_what_is_due_comes_from_the_state_when_a_receiver_is_back() -> None:
    recorder, clock = Recorder(), Clock()
    standing = [incident("a")]
    courier = Courier(recorder, lambda now: standing, Memory(None, NOON), clock=clock, failed=lambda name: None)
    recorder.failing = SendFailed("away")
    courier.attempt()
    standing.append(incident("b"))
    recorder.failing = None
    courier.attempt()
    assert recorder.told == [["a", "b"]]


def test_what_was_told_by_a_clock_that_was_set_back_since_is_told_once() -> None:
    """As after a restart: what was told last is known by when it was told."""
    posted: list[str] = []
    hook = Webhook(
        "http://hook", WebhookConfig(), Links(), send=lambda url, body, headers: posted.append(body.decode())
    )
    standing, clock = [incident("a")], Clock()
    kept = Elsewhere()
    for at, shown in ((90.0, incident("a")), (1.0, incident("a", ended=0.5)), (2.0, incident("a", ended=0.5))):
        clock.at(at)
        standing[:] = [shown]
        memory = Memory(kept, NOON - timedelta(hours=1))
        courier = Courier(hook, lambda now: standing, memory, clock=clock, failed=lambda name: None)
        for _ in range(20):
            courier.attempt()
    assert [json.loads(body)["state"] for body in posted] == ["open", "over"]


def test_a_stop_tells_what_is_due_and_does_not_wait_for_the_dead() -> None:
    recorder = Recorder()
    courier = Courier(recorder, lambda now: [incident("a")], Memory(None, NOON), clock=Clock(), failed=lambda n: None)
    courier.start()
    courier.stop()
    assert recorder.told[-1] == ["a"]
    assert timedelta(seconds=LONGEST_PAUSE) > timedelta(seconds=TICK)


class Elsewhere:
    """A place that refuses what it is to keep while it is `away`."""

    def __init__(self) -> None:
        self.text, self.away = "", False

    def read(self) -> str:
        if not self.text:
            raise FileNotFoundError
        return self.text

    def write(self, text: str) -> None:
        if self.away:
            raise OSError("away")
        self.text = text


def test_what_could_not_be_kept_is_kept_later() -> None:
    kept = Elsewhere()
    memory = Memory(kept, NOON)
    kept.away = True
    memory.note("a", ToldTimes(open=NOON))
    assert Memory(kept, NOON).of("a").last is None and memory.of("a").last == "open"
    kept.away = False
    memory.keep(["a"])
    assert Memory(kept, NOON + S).of("a").last == "open" and Memory(kept, NOON + S).began == NOON


def test_who_may_tell_nothing_neither_tells_nor_forgets() -> None:
    memory, recorder = Memory(None, NOON), Recorder()
    memory.note("a", ToldTimes(open=NOON))
    select: list[Any] = [None]
    courier = Courier(
        recorder,
        lambda now: [incident("b")],
        memory,
        clock=Clock(),
        failed=lambda n: None,
        select=lambda incidents: select[0],
    )
    assert courier.attempt() == TICK and recorder.told == [] and memory.of("a").last == "open"
    select[0] = []
    courier.attempt()
    assert recorder.told == [[]]
