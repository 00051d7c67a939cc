"""Who is told of incidents while the monitor runs: the incidents as they stand, and a courier for each receiver.

`Paging` is a channel: it is given the events of findings like the metrics and the log. On a start it is given what the
findings table holds, and so it knows what is open; what each receiver was told before is in a file of its own, where
`Keeping` says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

from alerts.config import AlertsConfig, Secret
from alerts.event import FindingEvent
from alerts.incidents.grouping import Incidents
from alerts.incidents.incident import Incident, Names, nameless
from alerts.incidents.silence import Silence
from alerts.incidents.told_before import told_before
from alerts.receivers.alertmanager import Alertmanager, Links
from alerts.receivers.alertmanager_silences import EndedSilence, SilencingAlertmanager
from alerts.receivers.chat import Chat, is_known
from alerts.receivers.courier import Courier, Receiver, all_of
from alerts.receivers.http import SendFailed, reveal, tls
from alerts.receivers.memory import Kept, Memory, OnDisk
from alerts.receivers.webhook import Webhook
from alerts.silences import FolderSilences, Silences, path_of, silenced


def machine_time() -> datetime:
    return datetime.now(UTC)


class Keeping(Protocol):
    """Where what receivers were told is kept, and silences; and what of the incidents this process may tell now: of
    several monitors that take turns one is at work."""

    def silences(self) -> Silences: ...

    def kept(self, receiver: str) -> Kept: ...

    def ours(self, incidents: Sequence[Incident]) -> Sequence[Incident] | None: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """The only monitor of what is below this folder."""

    folder: Path

    def ours(self, incidents: Sequence[Incident]) -> Sequence[Incident]:
        return incidents

    def silences(self) -> Silences:
        return FolderSilences(path_of(self.folder))

    def kept(self, receiver: str) -> Kept:
        return OnDisk(self.folder / f"{receiver}.json")


class Paging:
    """`failed` is called with a receiver's name at each attempt that did not work. `also` are receivers that belong to
    this process alone: what they were told is not remembered."""

    name = "incidents"

    def __init__(
        self,
        config: AlertsConfig,
        keeping: Keeping | Path | None,
        failed: Callable[[str], None],
        clock: Callable[[], datetime] = machine_time,
        also: Sequence[Receiver] = (),
        names: Names = nameless,
    ) -> None:
        self._hold, self._names = timedelta(seconds=config.quiet), names
        self._incidents = Incidents(hold=self._hold, names=names)
        self._told_before: list[Incident] = []
        self._lock = threading.Lock()
        keeping = Alone(keeping) if isinstance(keeping, Path) else keeping
        self._silences = keeping.silences() if keeping is not None else None
        now = clock()
        self._couriers = [
            Courier(
                receiver,
                self.standing,
                Memory(keeping.kept(receiver.name) if keeping is not None else None, now),
                clock=clock,
                failed=failed,
                select=keeping.ours if keeping is not None else all_of,
            )
            for receiver in receivers(config, self.silences)
        ]
        self._couriers += [
            Courier(receiver, self.standing, Memory(None, now), clock=clock, failed=failed) for receiver in also
        ]

    @property
    def receivers(self) -> dict[str, Callable[[], int]]:
        """The names of those that are told, with how many attempts have failed since the last that did not."""
        return {one.receiver.name: one.failures for one in self._couriers}

    def begin(self, recorded: Iterable[FindingEvent]) -> None:
        """Take over what the findings table held before, in the order of its record."""
        recorded = list(recorded)
        told = {occurrence for courier in self._couriers for occurrence in courier.told_open}
        with self._lock:
            self._incidents.take(recorded)
            self._told_before = told_before(told, recorded, hold=self._hold, names=self._names)

    def start(self) -> None:
        for courier in self._couriers:
            courier.start()

    def deliver(self, events: Sequence[FindingEvent]) -> None:
        """Take new events in; those that `begin` has had already are passed over."""
        with self._lock:
            self._incidents.take(event for event in events if not event.replayed)
        for courier in self._couriers:
            courier.wake()

    def standing(self, now: datetime) -> list[Incident]:
        """The incidents as they are, each with its silence."""
        with self._lock:
            incidents = self._incidents.at(now) + self._told_before
        return silenced(incidents, self.silences(), now)

    def silences(self) -> Sequence[Silence]:
        """Those that are kept, active or not."""
        return self._silences.all() if self._silences is not None else ()

    def places(self, occurrence: str) -> list[str]:
        """All places of one of them."""
        with self._lock:
            return self._incidents.places(occurrence)

    def stop(self) -> None:
        """Tell what is due once more, to all at the same time, and end."""
        stopping = [threading.Thread(target=courier.stop, daemon=True) for courier in self._couriers]
        for one in stopping:
            one.start()
        for one in stopping:
            one.join()


def receivers(config: AlertsConfig, silences: Callable[[], Sequence[Silence]] = tuple) -> list[Receiver]:
    """All receivers that are configured, each with a name of its own. `silences`: those of which Alertmanagers are
    told. Raises AppriseMissing, and SendFailed where one could never be told: nobody would notice before the first
    incident."""
    for complaint in unusable(config):
        raise SendFailed(complaint)
    links = Links(config.runbook_url, config.page_url)
    made: list[Receiver] = []
    for number, url in enumerate(config.alertmanager.urls, 1):
        one = Alertmanager(url, config.alertmanager, links, name=_named("alertmanager", number))
        made.append(SilencingAlertmanager(one, url, config.alertmanager, silences))
    for number, url in enumerate(config.webhook.urls, 1):
        made.append(Webhook(url, config.webhook, links, name=_named("webhook", number)))
    for number, target in enumerate(config.chat.targets, 1):
        made.append(Chat(target, config.chat, links, name=_named("chat", number)))
    return made


def _named(kind: str, number: int) -> str:
    return kind if number == 1 else f"{kind}-{number}"


def ended_silence(config: AlertsConfig, silence: str) -> list[EndedSilence]:
    """A silence that was ended here, in each Alertmanager that is configured."""
    urls = enumerate(config.alertmanager.urls, 1)
    return [EndedSilence(silence, _named("alertmanager", number), url, config.alertmanager) for number, url in urls]


def unusable(config: AlertsConfig) -> list[str]:
    """What of the receivers that are configured is of no use now, each as a sentence: secrets that cannot be read,
    certificates, addresses that Apprise does not know. Raises AppriseMissing."""
    asked: list[tuple[str, Secret | None]] = []
    if config.alertmanager.urls:
        asked += [
            ("alerts.alertmanager.token", config.alertmanager.token),
            ("alerts.alertmanager.password", config.alertmanager.password),
        ]
    if config.webhook.urls:
        asked.append(("alerts.webhook.secret", config.webhook.secret))
    complaints = []
    for name, secret in asked:
        try:
            if secret is not None:
                reveal(name, secret)
        except SendFailed as error:
            complaints.append(str(error))
    for target in config.chat.targets:
        try:
            if not is_known(reveal("alerts.chat.targets", target)):
                where = target.env or target.file
                complaints.append(f"alerts.chat.targets: what {where} holds is no address that Apprise knows")
        except SendFailed as error:
            complaints.append(str(error))
    for name, asks in _by_tls(config):
        try:
            asks()
        except SendFailed as error:
            complaints.append(f"{name}: {error}")
    return complaints


def _by_tls(config: AlertsConfig) -> Iterator[tuple[str, Callable[[], object]]]:
    """By the section's name, what reads the certificates of receivers that are asked by HTTPS."""
    manager, hook = config.alertmanager, config.webhook
    if any(url.startswith("https:") for url in manager.urls):
        yield "alerts.alertmanager", partial(tls, manager.ca, manager.certificate, manager.key)
    if any(url.startswith("https:") for url in hook.urls):
        yield "alerts.webhook", partial(tls, hook.ca)
