"""`offsetwatch doctor`: is everything there, and is what is there safe? Each question is one line of a table.

`bad` means that Offsetwatch would not work, or that its verdicts would not mean what they say; then the exit code is 1.
`warning` is what falls short and does not stop it. Asking (`examine`) and judging (the pure functions below it) are
apart: what the cluster says is gathered first, then judged.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from rich.table import Table
from rich.text import Text

from alerts.paging import unusable
from alerts.receivers.chat import AppriseMissing
from monitor.config.config import Config
from monitor.errors import ConfigError
from monitor.process.limits import NEEDED, allowed
from monitor.process.machine import available_memory
from monitor.process.reach import Reached, connection, evidence_topic, reach
from monitor.process.versions import versions
from probes.config import TopicsConfig
from probes.kafka.client import Connection, consumer_settings, producer_settings
from probes.kafka.errors import ClientError, ProbeError
from probes.kafka.wire.errors import CannotConnect
from probes.kafka.wire.messages import Api
from probes.kafka.wire.rights import Resource, refused, taken
from probes.log.evidence.topic import described
from probes.running.needed import is_transactional, lacking
from probes.topics.probe_topics import Alter, ClusterView, Create, Grow, ProbeTopics, TopicView, plan
from streaming_jobs.errors import TableError
from streaming_jobs.history.reachable import require_conditional_puts, require_reachable

State = Literal["ok", "warning", "bad"]
_STYLE: Final = {"ok": "green", "warning": "yellow", "bad": "bold red"}
_OLDEST_PYTHON: Final = (3, 11)
_DISK_GB: Final = 2.0
_NO_DISK_GB: Final = 0.2
"""The monitor would stand still within minutes."""
_TRIED_BYTES: Final = 1 << 20
_MEMORY_GB: Final = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of the table. `cluster`: the name of the one that it is about, where there are several."""

    about: str
    state: State
    detail: str
    cluster: str = ""


SAFE_PRODUCER: Final = {"acks": "all", "enable.idempotence": "true", "allow.auto.create.topics": "false"}
SAFE_CONSUMER: Final = {
    "enable.auto.commit": "false",
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
}


def misconfigured(error: ConfigError) -> Iterator[Answer]:
    """What can be answered without a configuration, and every complaint about it."""
    yield from _machine()
    for complaint in error.complaints:
        yield Answer("configuration", "bad", complaint)


def _machine() -> Iterator[Answer]:
    yield from software(versions(), sys.version_info[:2])
    yield java()
    yield jars()
    yield open_files()


def examine(config: Config) -> Iterator[Answer]:
    """Every question's answer, in turn: the last ones wait for the cluster, at most `cluster.reachable_within` each."""
    yield from _machine()
    for key in config.plain_secrets():
        yield Answer(
            "secrets", "warning", f'{key} stands there as it is: give {{ env = "NAME" }} or {{ file = "path" }}'
        )
    yield folder(config.data)
    yield from history(config)
    yield memory()
    yield page(config)
    yield from receivers(config)
    names: dict[str, str] = {}
    if config.evidence.used:
        yield from evidence(config, names)
    for one in config.each():
        for answer in _examine_cluster(one, names):
            yield replace(answer, cluster=one.name)


def history(config: Config) -> Iterator[Answer]:
    """May we read and write the probe log and the tables, where they are in an object store, and has the store
    conditional puts?"""
    places = (("probe log", "history", config.job.history_path), ("tables", "tables", config.job.tables_path))
    for about, key, location in places:
        if isinstance(location, Path):
            continue
        try:
            require_reachable(location, f"The {about}")
            require_conditional_puts(location)
        except TableError as error:
            yield Answer(about, "bad", f"{config.named(f'job.{key}')}: {error}")
        else:
            yield Answer(about, "ok", str(location))


def evidence(config: Config, names: dict[str, str]) -> Iterator[Answer]:
    """The cluster by way of which the probe log goes, and its topic. `names`: of the clusters that were asked before,
    by id; its own is added."""
    about = "evidence"
    try:
        reached = reach(config, "evidence")
        names[reached.cluster] = _EVIDENCE
        found = described(reached.admin, config.evidence.topic)
    except (ConfigError, ClientError) as error:
        yield Answer(about, "bad", str(error))
        return
    if found is None:
        yield Answer(about, "ok", f"{evidence_topic(config)} is not there yet; it is made at the first start")
        return
    replicas = min(len(partition.replicas) for partition in found.partitions)
    state: State = "ok" if replicas > 1 else "warning"
    yield Answer(about, state, f"{evidence_topic(config)}, {replicas} replica{'s' * (replicas != 1)}")


_EVIDENCE: Final = "the cluster of evidence"


def page(config: Config) -> Answer:
    """Can the status page and the metrics be served as they are asked for?"""
    from monitor.process.page import tls_of  # and the server with it

    alerts, status = config.alerts, config.status
    try:
        status.read_token()
        tls_of(status)
    except ConfigError as error:
        return Answer("status page", "bad", str(error))
    if alerts.metrics_port and alerts.metrics_port == alerts.probes_port:
        return Answer(
            "status page",
            "bad",
            f"alerts.metrics_port and alerts.probes_port are both {alerts.metrics_port}: each has one of its own",
        )
    return Answer("status page", "ok", f"at port {alerts.metrics_port}" + (", by HTTPS" if status.certificate else ""))


def receivers(config: Config) -> Iterator[Answer]:
    """Is what those need who are told of incidents there, and of use?"""
    try:
        complaints = unusable(config.alerts)
    except AppriseMissing as error:
        complaints = [str(error)]
    yield from (Answer("receivers", "bad", complaint) for complaint in complaints)
    told = {
        "Alertmanager": len(config.alerts.alertmanager.urls),
        "webhook": len(config.alerts.webhook.urls),
        "chat": len(config.alerts.chat.targets),
    }
    named = ", ".join(f"{count} {name}" for name, count in told.items() if count)
    if not complaints:
        yield Answer("receivers", "ok", named or "none: incidents are told to nobody but the log and the status page")


def _examine_cluster(config: Config, names: dict[str, str]) -> Iterator[Answer]:
    """What is asked of one cluster. `names`: of those that were asked before, by id; its own is added."""
    try:
        reached = reach(config)
    except ConfigError as error:
        yield Answer("cluster", "bad", str(error))
        return
    yield cluster(reached)
    wanted, same = config.cluster.expected_id, names.setdefault(reached.cluster, config.name)
    if wanted not in (None, reached.cluster):
        yield Answer("cluster", "bad", f"{config.named('cluster.id')}: its id is {reached.cluster}, not {wanted}")
    if same == _EVIDENCE:
        yield Answer("cluster", "bad", f"{config.named('evidence.bootstrap')}: it is the cluster that is watched")
    elif same != config.name:
        yield Answer("cluster", "bad", f"it is the same cluster as {same}: only one of them can be watched")
    yield from clients(connection(config))
    yield from requests(config)
    topics = ProbeTopics(reached.admin, config.probes.topics, lambda line: None, config.probes.topic_names)
    try:
        view = topics.view(with_config=True)
    except ProbeError as error:
        yield Answer("probe topics", "bad", str(error))
        return
    yield from probe_topics(view, topics.names, config.probes.topics)


def software(found: Mapping[str, str], python: Sequence[int]) -> Iterator[Answer]:
    """Versions; a package that is absent or a Python that is too old is bad."""
    named = ".".join(map(str, python))
    fits = tuple(python) >= _OLDEST_PYTHON
    yield Answer("python", "ok" if fits else "bad", found["python"] if fits else f"{named} is older than 3.11")
    for package, version in found.items():
        if package != "python":
            name = "offsetwatch" if package == "version" else package.replace("_", "-")
            yield Answer(name, "bad" if version == "absent" else "ok", version)


def java() -> Answer:
    from deploy.java import OLDEST, find, version

    program = find()
    if program is None:
        return Answer(
            "java", "bad", f"none of version {OLDEST} or newer in JAVA_HOME, on PATH or among what was fetched"
        )
    return Answer("java", "ok", f"{version(program)} ({program})")


def jars() -> Answer:
    from deploy.errors import DeployError
    from deploy.jars import spark_jars

    try:
        found = spark_jars(lambda line: None)
    except DeployError as error:
        return Answer("jars", "bad", str(error))
    return Answer("jars", "ok", f"{len(found)} of Delta Lake in {found[0].parent}")


def folder(data: Path) -> Answer:
    """Whether the data folder can be made and written, which is tried, and has room; what was made is removed."""
    made: list[Path] = []
    trying = "made"
    try:
        for one in reversed([data.absolute(), *data.absolute().parents]):
            if not one.is_dir():
                one.mkdir()
                made.append(one)
        trying = "written"
        with tempfile.TemporaryFile(dir=data) as tried:
            tried.write(bytes(_TRIED_BYTES))
            tried.flush()
            os.fsync(tried.fileno())
        free = shutil.disk_usage(data).free / 1e9
    except FileExistsError as error:
        return Answer("data folder", "bad", f"{data}: {error.filename} is there, and is no folder")
    except OSError as error:
        return Answer("data folder", "bad", f"{data} cannot be {trying}: {error.strerror}")
    finally:
        for one in reversed(made):
            with suppress(OSError):
                one.rmdir()
    room = f"{data}, {free:.1f} GB free"
    state: State = "ok" if free >= _DISK_GB else "warning" if free >= _NO_DISK_GB else "bad"
    return Answer("data folder", state, room if state == "ok" else f"{room}: {_DISK_GB:g} GB or more are needed")


def open_files() -> Answer:
    most = allowed()
    if most >= NEEDED:
        return Answer("open files", "ok", f"{most} may be open at once")
    return Answer("open files", "bad", f"{most} may be open at once, {NEEDED} are needed at least: raise ulimit -n")


def memory() -> Answer:
    available = available_memory() / 1e9
    enough = available >= _MEMORY_GB
    return Answer("memory", "ok" if enough else "warning", f"{available:.1f} GB available")


def cluster(reached: Reached) -> Answer:
    brokers = ", ".join(f"{node} at {address}" for node, address in sorted(reached.brokers.items()))
    return Answer("cluster", "ok", f"{reached.cluster}: broker{'s' * (len(reached.brokers) != 1)} {brokers}")


def clients(to: Connection) -> Iterator[Answer]:
    """What the probes' clients are given, against what the verdicts assume."""
    producer = producer_settings(to, client="offsetwatch-doctor")
    consumer = consumer_settings(to, client="offsetwatch-doctor", group="offsetwatch-doctor")
    yield _settings("producer settings", producer, SAFE_PRODUCER)
    yield _settings("consumer settings", consumer, SAFE_CONSUMER)
    protocol = to.security.get("security.protocol", "plaintext").lower()
    yield Answer("connection", "ok", f"security.protocol {protocol}")


def requests(config: Config) -> Iterator[Answer]:
    """Do the brokers take what the probes ask of them, and may the probes use their groups and transactional ids?
    Without that they wait, and nothing is read."""
    name = f"{config.probes.topics.prefix}-doctor"
    try:
        known = taken(connection(config), name)
        lacks = lacking(config.probes, known)
        yield from (Answer("requests", "bad", one) for one in lacks)
        if not lacks:
            yield Answer("requests", "ok", "brokers take all that the probes ask of them")
        yield from _rights(config, name, known)
    except CannotConnect:  # a login that only librdkafka knows
        return
    except ClientError as error:
        yield Answer("rights", "warning", f"which groups may be used could not be asked: {error}")


def _rights(config: Config, name: str, known: Mapping[int, int]) -> Iterator[Answer]:
    asked: list[tuple[Resource, str]] = [("group", name)]
    if is_transactional(config.probes) and Api.END_TXN in known:
        asked.append(("transactional id", name))
    errors = refused(connection(config), name, asked)
    kinds = " and ".join(f"{kind}s" for kind, _ in asked)
    denied = [
        f"{kind}s {config.probes.topics.prefix}-*: {error}"
        for (kind, _), error in zip(asked, errors, strict=True)
        if error
    ]
    yield from (Answer("rights", "bad", one) for one in denied)
    if not denied:
        yield Answer("rights", "ok", f"{kinds} {config.probes.topics.prefix}-*")


def _settings(about: str, given: Mapping[str, str], safe: Mapping[str, str]) -> Answer:
    unsafe = [
        f"{key} is {given.get(key, 'not set')}, not {value}" for key, value in safe.items() if given.get(key) != value
    ]
    return Answer(about, "bad" if unsafe else "ok", "; ".join(unsafe or (f"{k}={v}" for k, v in safe.items())))


def probe_topics(view: ClusterView, names: Sequence[str], config: TopicsConfig) -> Iterator[Answer]:
    """Each probe topic as it is, and what the probes would change at their start."""
    wanted = plan(view, names, config)
    for name in names:
        topic = view.topics.get(name)
        mine = [change for change in wanted.changes if change.topic == name]
        if topic is None:
            state: State = "ok" if config.manage else "bad"
            yield Answer(
                f"topic {name}", state, "will be created" if config.manage else "is not there, and manage is off"
            )
            continue
        problems = list(unsafe(topic))
        leaderless = sum(leader is None for leader in topic.leaders)
        if leaderless:
            problems.append(f"{leaderless} partitions have no leader")
        replicas = min(len(replicas) for replicas in topic.replicas)
        detail = f"{len(topic.replicas)} partitions, {replicas} replicas"
        pending = "; ".join(_change(change) for change in mine)
        if problems:
            yield Answer(f"topic {name}", "bad", f"{detail}; {'; '.join(problems)}")
        elif pending:
            what = "will be changed at the next start" if config.manage else "differs from what was asked"
            yield Answer(f"topic {name}", "warning", f"{detail}; {what}: {pending}")
        else:
            yield Answer(f"topic {name}", "ok", detail)
    for remark in wanted.remarks:
        yield Answer("probe topics", "warning", remark)


def unsafe(topic: TopicView) -> Iterator[str]:
    """What makes a topic's own settings break the promise that verdicts rest on."""
    settings = topic.config
    if settings is None:
        return
    if settings.get("unclean.leader.election.enable") == "true":
        yield "unclean.leader.election.enable is true: acknowledged records may be lost by design"
    if "compact" in settings.get("cleanup.policy", "delete"):
        yield "cleanup.policy holds compact: records disappear by design"
    replicas = min(len(one) for one in topic.replicas)
    least = int(settings.get("min.insync.replicas", "1"))
    if replicas >= 3 and least < 2:
        yield f"min.insync.replicas is {least} with {replicas} replicas: an acknowledged record may have one copy"


def _change(change: Create | Grow | Alter) -> str:
    if isinstance(change, Grow):
        return f"{change.total} partitions"
    return ", ".join(f"{key}={value}" for key, value in sorted(change.config.items()))


def table(answers: Sequence[Answer]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "question", "answer"):
        shown.add_column(name, no_wrap=name != "answer", overflow="fold")
    told = ""
    for answer in answers:
        if answer.cluster != told:
            told = answer.cluster
            shown.add_row("", Text(told, style="bold"), "")
        shown.add_row(Text(answer.state, style=_STYLE[answer.state]), answer.about, answer.detail)
    return shown


def print_json(answer: Answer) -> None:
    """One answer as a JSON object on a line; with the cluster's name where it has one."""
    told = {name: value for name, value in asdict(answer).items() if name != "cluster" or value}
    print(json.dumps(told, ensure_ascii=False), flush=True)
