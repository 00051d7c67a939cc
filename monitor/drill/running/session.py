"""Drills, run: a cluster, the proxy if there are lies, the probes, the checker; then a verdict.

    session = Session(folder, say=..., stop=...)
    result = session.run(drill)      # one after the other; the cluster is used again where that is possible
    session.close()

A run: the probes start, and work as if nothing were wrong; the drill acts; the must findings are waited for; the drill
undoes what it did; some seconds of ordinary work follow; writing ends, readers and checks catch up, everything ends.
Whatever comes until then counts. The folder of a run that passed is removed, that of another is kept, with its history
and what the brokers logged meanwhile.

Everything that was started is ended, however a run ends.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.broker import Broker
from deploy.local_kafka import LocalKafka
from monitor.drill.definition.drill import QUIET, SHORT, Drill, merged
from monitor.drill.definition.graded import Graded
from monitor.drill.definition.play import Play
from monitor.drill.definition.stage import Stage
from monitor.drill.definition.verdict import Verdict, complete, judge, still_open
from monitor.drill.errors import DrillFailed, DrillSkipped, DrillStopped
from monitor.drill.running.checker import Checker
from monitor.drill.running.clusters import Clusters
from monitor.errors import known_errors
from probes.config import ProbesConfig
from probes.kafka.client import Connection, admin_settings, open_admin
from probes.log.commits.folder_clock import folder_clock
from probes.running.fleet import Fleet
from rules.vocabulary.objectives import SECOND

log = logging.getLogger(__name__)

READY_WITHIN: Final = 40.0
CATCH_UP_WITHIN: Final = 25.0
GIVEN_UP_WITHIN: Final = 75.0
"""So long a client may hang until its probe gives it up, and the next one has shown that it works."""
MARGIN: Final = 2 * SECOND
"""Log time that checks are given beyond the objectives, once nothing is written any more."""
SETTLE_S: Final = 3.0
"""Ordinary work after a drill was undone."""
_LOOK: Final = 0.2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one run. `history`: the folder that was kept, None where nothing was. `acts`: what was done and
    when, seconds of the wall clock."""

    drill: Drill
    verdict: Verdict
    found: tuple[Graded, ...]
    seconds: float
    acts: tuple[tuple[float, str], ...]
    kafka: str
    history: Path | None = None


@dataclass(frozen=True, slots=True)
class Staging:
    """A cluster that is not ours: how clients reach it, and how many brokers it has."""

    connection: Connection
    brokers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a session runs its drills. `seed` makes the proxy's choices repeatable; `keep`: remove no run's folder;
    `against`: a cluster that is not ours."""

    seed: int = 0
    keep: bool = False
    against: Staging | None = None


class Session:
    """Runs drills in `folder`. `stop` ends it: the running drill raises DrillStopped."""

    def __init__(
        self,
        folder: Path,
        *,
        say: Say,
        stop: threading.Event,
        options: Options = Options(),
        on_found: Callable[[Graded], None] = lambda found: None,
    ) -> None:
        self._folder, self._say, self._stop, self._options, self._on_found = folder, say, stop, options, on_found
        self._against = options.against
        self._clusters = Clusters(folder, say)

    def close(self) -> None:
        self._clusters.drop()

    def run(self, drill: Drill) -> Result:
        """Run it. Raises DrillStopped; an error of ours makes it a drill that was not performed."""
        began = time.monotonic()
        folder = self._folder / f"{drill.title.replace('/', '-')}-{uuid.uuid4().hex[:4]}"
        stage: Stage | None = None
        cluster: LocalKafka | None = None
        error: str | None = None
        skipped = False
        kafka = ""
        said: dict[Path, int] = {}
        with ExitStack() as ending:
            try:
                cluster = None if self._against else self._clusters.take(drill.cluster)
                kafka = cluster.version if cluster else "staging"
                said = {broker.server_log: broker.server_log.stat().st_size for broker in _brokers(cluster)}
                play = drill.play()
                stage = self._stage(drill, play, folder, cluster, ending)
                self._perform(drill, play, stage, ending)
            except DrillStopped:
                raise
            except Exception as failure:  # one drill that cannot be performed says nothing of the next one
                if not isinstance(failure, known_errors()):
                    log.exception("the drill %s failed", drill.title)
                skipped = isinstance(failure, DrillSkipped)
                told = " ".join(str(failure).split())
                error = told if isinstance(failure, known_errors()) else f"{type(failure).__name__}: {told}"
        seen = tuple(stage.checker.found) if stage else ()
        verdict = judge(drill, seen, stage.first_act if stage else None, error, skipped=skipped)
        kept = folder if self._options.keep or verdict.failed else None
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _keep_logs(kept, _brokers(cluster), said)
        if error is not None or drill.spoils_cluster:
            self._clusters.drop()
        return Result(
            drill=drill,
            verdict=verdict,
            found=seen,
            seconds=time.monotonic() - began,
            acts=_acts(stage),
            kafka=kafka,
            history=kept,
        )

    def _stage(self, drill: Drill, play: Play, folder: Path, kafka: LocalKafka | None, ending: ExitStack) -> Stage:
        """Everything up to the probes, which do not work yet."""
        direct = self._against.connection if self._against else Connection(kafka.bootstrap if kafka else "")
        lies = list(play.lies())
        through = direct
        if lies:
            from monitor.drill.proxy import Proxy, upstream

            reached = upstream(direct.security, direct.token)
            proxy = ending.enter_context(Proxy(direct.bootstrap, lies=lies, seed=self._options.seed, upstream=reached))
            through = Connection(proxy.bootstrap)
        config = probes_config(drill, self._against.brokers if self._against else drill.cluster.brokers)
        checker = Checker(folder, SHORT, on_found=self._on_found)
        return Stage(
            folder=folder,
            config=config,
            connection=through,
            direct=direct,
            kafka=kafka,
            lies=lies,
            checker=checker,
            say=self._say,
            stop=self._stop,
        )

    def _perform(self, drill: Drill, play: Play, stage: Stage, ending: ExitStack) -> None:
        ending.callback(play.end)
        play.prepare(stage)
        fleet = stage.fleet = Fleet(
            stage.config,
            stage.connection,
            stage.folder / "journals",
            folder_clock(stage.folder / "journals"),
            history=stage.checker.history,
            say=self._say,
        )
        ending.callback(_remove_topics, stage)
        stage.checker.start()
        ending.callback(stage.checker.stop)
        ending.callback(fleet.stop)
        self._say("starting the probes")
        fleet.start()
        for spec in play.actors(stage):
            fleet.add(spec)
        stage.wait(lambda: _at_work(stage), READY_WITHIN, "that every probe writes and reads")
        try:
            play.act(stage)
            self._say("waiting for what must be found")
            self._await(lambda: complete(drill, stage.checker.found), drill.limit)
        finally:
            play.undo(stage)
        stage.pause(SETTLE_S)
        if drill.closes:
            self._await(lambda: not still_open(stage.checker.found), drill.limit)
        self._say("writing ends; readers and checks catch up")
        fleet.stop_sending()
        target = int(stage.clock() * 1e6) + max(SHORT.grace, SHORT.delivery) + MARGIN
        self._await(lambda: stage.checker.now > target, CATCH_UP_WITHIN)
        if drill.closes:  # a client may have begun to wait on meanwhile, and is given up then (librdkafka 5456)
            self._await(lambda: not still_open(stage.checker.found), GIVEN_UP_WITHIN)
        fleet.stop()
        stage.checker.stop()
        idle = [type(lie).__name__ for lie in stage.lies if not lie.acts and not play.may_be_idle(lie)]
        if idle:
            raise DrillFailed(f"nothing called for the lie {', '.join(idle)}, so nothing is proven")

    def _await(self, until: Callable[[], Any], seconds: float) -> bool:
        """Wait until it holds, at most so long; whether it does. Raises DrillStopped."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                return False
            if self._stop.wait(_LOOK):
                raise DrillStopped
        return True


def probes_config(drill: Drill, brokers: int) -> ProbesConfig:
    """The probes that the drill asks for, in topics of their own on a cluster of so many brokers."""
    topics = {
        "prefix": f"drill-{drill.title.replace('/', '-')}-{uuid.uuid4().hex[:6]}",
        "replication": min(3, brokers),
        "min_in_sync": 2 if brokers >= 3 else 1,
    }
    return ProbesConfig.model_validate(merged(merged({**QUIET}, {"topics": topics}), drill.probes))


def _at_work(stage: Stage) -> bool:
    """Has every probe that writes been acknowledged, and every one that reads read, and have checks begun?"""
    probes = [p for p in stage.probes.status().probes if p.kind not in ("observer", "audit")]
    for probe in probes:
        transactional = probe.kind in ("transactions", "transform", "aborts")
        if probe.kind == "reader" and not probe.polled:
            return False
        if transactional and not probe.transactions_committed:
            return False
        if probe.kind in ("writer", "registers") and not probe.acknowledged:
            return False
    return stage.checker.now > 0


def _remove_topics(stage: Stage) -> None:
    """The run's topics are of no use to anybody after it."""
    with suppress(Exception):
        admin = open_admin(admin_settings(stage.direct, client="offsetwatch-drill"))
        for future in admin.delete_topics(list(stage.config.topic_names), operation_timeout=5.0).values():
            future.result(6.0)


def _brokers(cluster: LocalKafka | None) -> list[Broker]:
    return cluster.brokers if cluster is not None else []


def _keep_logs(folder: Path, brokers: Sequence[Broker], begins: Mapping[Path, int]) -> None:
    """Put what each broker said in the run beside its history: whether a violation is the broker's is told there."""
    for broker in brokers:
        with suppress(OSError):
            (folder / "brokers").mkdir(parents=True, exist_ok=True)
            with broker.server_log.open("rb") as log, (folder / "brokers" / f"{broker.id}.log").open("wb") as kept:
                log.seek(begins.get(broker.server_log, 0))
                shutil.copyfileobj(log, kept)


def _acts(stage: Stage | None) -> tuple[tuple[float, str], ...]:
    if stage is None:
        return ()
    lied = [(act.at.timestamp(), f"{type(lie).__name__}: {act.what}") for lie in stage.lies for act in lie.acts]
    return tuple(sorted(stage.acted + lied))


def in_order_of_clusters(drills: Sequence[Drill]) -> list[Drill]:
    """The same drills, those that can share a cluster next to each other, those that spoil theirs last."""
    kinds = list(dict.fromkeys(drill.cluster for drill in drills))
    return sorted(drills, key=lambda drill: (kinds.index(drill.cluster), drill.spoils_cluster))
