"""`offsetwatch drill endure`: all workloads on three brokers under a random schedule of real faults. No violation.

Kafka promises that nothing is lost, doubled or exposed while one broker at a time is out; here everything is done to
make it break that. The checker runs live, and once more to the end when writing has stopped. A violation fails the run,
and its history is kept; it is excused only by the name of a published defect (`monitor.drill.endurance.defects`) to
which somebody has traced it. What happened, and what was found, is written beside the history.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import orjson

from deploy.local_kafka import LocalKafka
from monitor.drill.definition.graded import Graded
from monitor.drill.definition.verdict import still_open
from monitor.drill.endurance import schedule
from monitor.drill.endurance.defects import Defect, named
from monitor.drill.errors import DrillFailed
from monitor.drill.running.checker import Checker
from monitor.drill.running.session import CATCH_UP_WITHIN, MARGIN
from monitor.errors import VIOLATION
from monitor.history_files.checks import CHECK_FAILED
from monitor.process.program_log import configure
from monitor.process.signals import stop_on_signal
from probes.config import ProbesConfig
from probes.kafka.client import Connection
from probes.log.commits.folder_clock import folder_clock
from probes.running.fleet import Fleet
from rules.vocabulary.objectives import Objectives

ROOT: Final = Path(".offsetwatch")
TELL_EVERY: Final = 15.0
READY_WITHIN: Final = 90.0
WORKLOADS: Final[dict[str, dict[str, Any]]] = {
    "topics": {"prefix": "endure", "partitions": 3},
    "transaction": {"count": 3, "timeouts": [10.0, 5.0, 2.0]},
    "audit": {"period": 60.0},
    "unrest": {"mean_interval": 90.0},
}


def run(
    *, minutes: float, seed: int, folder: Path | None = None, excuse: Sequence[str] = (), debug: bool = False
) -> int:
    """Run for so long; 0 where no violation was found, 1 where one was, or the cluster did not recover.

    `folder`: where everything is kept; else a new one, which is removed after a run without violation. Raises UserError
    for a defect that is none, and the errors of what could not be started."""
    excused = named(list(excuse))
    data = folder or ROOT / f"endure-{time.strftime('%Y%m%d-%H%M%S')}"
    configure(debug=debug, file=data / "logs" / "endure.log", quiet=True)
    with stop_on_signal() as stop:
        outcome = Endurance(data, minutes * 60.0, seed, stop, excused).run()
    if outcome == 0 and folder is None:
        shutil.rmtree(data, ignore_errors=True)
    return outcome


class Endurance:
    """One endurance run in the folder `data`, for `seconds`."""

    def __init__(self, data: Path, seconds: float, seed: int, stop: threading.Event, excused: Sequence[Defect]) -> None:
        self._data, self._seconds, self._seed, self._stop, self._excused = data, seconds, seed, stop, excused
        self._began = time.monotonic()
        self._happened: list[schedule.Happened] = []
        self._failed: str | None = None

    def run(self) -> int:
        """Start everything, let it run, end everything, and judge; the exit code."""
        objectives = Objectives()
        checker = Checker(self._data, objectives, on_found=self._found)
        with ExitStack() as ending:
            kafka = LocalKafka(self._data / "kafka", brokers=3, cuttable=True, say=self._say)
            ending.callback(kafka.stop)
            kafka.start()
            config = ProbesConfig.model_validate({**WORKLOADS, "unrest": {**WORKLOADS["unrest"], "seed": self._seed}})
            fleet = Fleet(
                config,
                Connection(kafka.bootstrap),
                self._data / "journals",
                folder_clock(self._data / "journals"),
                history=checker.history,
                say=self._say,
            )
            checker.start()
            ending.callback(checker.stop)
            ending.callback(fleet.stop)
            fleet.start()
            self._until(lambda: all(p.sent or p.polled for p in fleet.status().probes if p.kind != "observer"))
            self._under_faults(kafka, fleet, config)
            self._say("writing ends; readers and checks catch up")
            fleet.stop_sending()
            target = int(time.time() * 1e6) + objectives.grace + MARGIN
            self._until(lambda: checker.now > target, CATCH_UP_WITHIN + objectives.grace / 1e6)
            status = fleet.status()
            fleet.stop()
            checker.stop()
        totals = {
            name: sum(getattr(p, name) for p in status.probes)
            for name in ("acknowledged", "polled", "transactions_committed", "transactions_aborted", "lives")
        }
        return self.judge(checker.found, totals, checker.checks.rejected)

    def _under_faults(self, kafka: LocalKafka, fleet: Fleet, config: ProbesConfig) -> None:
        run_id = fleet.status().run
        topics = config.topic_names
        targets = schedule.Targets(
            partitions=[(topic, p) for topic in topics for p in range(config.topics.partitions)],
            transactional_ids=[f"{config.topics.prefix}-{run_id}-transactions-{n + 1}" for n in range(0, 3, 2)],
            groups=[f"{config.topics.prefix}-{run_id}-{name}" for name in ("group", "transform")],
            topics=topics,
        )
        kinds, missing = schedule.possible(kafka)
        for name, why in missing.items():
            self._say(f"without {name}: {'; '.join(why)}")
        drawn = schedule.draw(self._seed, self._seconds, targets, kinds=kinds)
        self._say(f"under faults: {str(drawn).splitlines()[0]}")
        (self._data / "schedule.txt").write_text(f"{drawn}\n")
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(fleet, over), name="endure-tell", daemon=True)
        teller.start()
        try:
            began = time.monotonic()
            self._happened = schedule.run(drawn, kafka, self._stop, self._say)
            self._stop.wait(max(0.0, began + self._seconds - time.monotonic()))
        except DrillFailed as failed:
            self._failed = str(failed)
            self._say(self._failed)
        finally:
            over.set()
            teller.join()

    def _tell(self, fleet: Fleet, over: threading.Event) -> None:
        while not over.wait(TELL_EVERY):
            probes = fleet.status().probes
            told = [f"{sum(getattr(p, n) for p in probes):,} {n}" for n in ("acknowledged", "polled")]
            self._say(", ".join(told))

    def _until(self, condition: Any, seconds: float = READY_WITHIN) -> None:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end and not self._stop.wait(0.3):
            pass

    def judge(self, found: Sequence[Graded], totals: dict[str, int], rejected: Sequence[str] = ()) -> int:
        """Tell and write down what came of it; the exit code. `rejected`: why rows of the probe log were refused; who
        wrote such a row has a log that never completes, and is a defect of ours."""
        violations = [one for one in found if one.violation or one.name == CHECK_FAILED]
        excused = [one for one in violations if any(defect.explains(one) for defect in self._excused)]
        guilty = [one for one in violations if one not in excused]
        conditions = Counter(one.name for one in found if one.finding.event == "opened")
        lasting = still_open(found)
        self._say(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in totals.items()))
        made = [one for one in self._happened if one.error is None]
        kinds = ", ".join(f"{name} {n}" for name, n in sorted(Counter(one.entry.kind for one in made).items()))
        self._say(f"{len(made)} faults: {kinds or 'none'}")
        for happened in self._happened:
            if happened.error is not None:
                self._say(f"not made: {happened.told}: {happened.error}")
        self._say(f"conditions: {', '.join(f'{name} {n}' for name, n in sorted(conditions.items())) or 'none'}")
        for one in lasting:
            self._say(f"still open: {one.name} in {one.finding.topic}/{one.finding.partition}: {one.finding.message}")
        for reason, number in sorted(Counter(rejected).items()):
            self._say(f"{number} rows were rejected: {reason}")
        for one in excused:
            self._say(f"excused: {one.name}: {one.finding.message}")
        for one in guilty[:50]:
            self._say(f"VIOLATION {one.name} in {one.finding.topic}/{one.finding.partition}: {one.finding.message}")
        told = {
            "seed": self._seed,
            "seconds": round(time.monotonic() - self._began),
            "totals": totals,
            "faults": [
                {
                    "at": str(one.began and one.began.wall),
                    "kind": one.entry.kind,
                    "told": one.told,
                    "recovered_in": one.recovered_in,
                    "error": one.error,
                }
                for one in self._happened
            ],
            "conditions": dict(conditions),
            "violations": [one.told() for one in guilty],
            "excused": [one.told() for one in excused],
            "still_open": [one.told() for one in lasting],
            "rejected": dict(Counter(rejected)),
            "failed": self._failed,
        }
        (self._data / "endure.json").write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2, default=str))
        if guilty or rejected or self._failed is not None:
            self._say(
                f"failed: {len(guilty)} violations, {len(rejected)} rejected rows; the history is kept in {self._data}"
            )
            return VIOLATION
        self._say("no violation")
        return 0

    def _found(self, one: Graded) -> None:
        if one.violation or one.name == CHECK_FAILED:
            self._say(f"found {one.name} ({one.severity}): {one.finding.message}")

    def _say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {line}", flush=True)
