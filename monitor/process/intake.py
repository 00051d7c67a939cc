"""The probe log of hosts that append it to a topic is taken into the monitor's own table, beside the checks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from monitor.config.config import Config
from monitor.process.reach import evidence_topic, reach
from probes.log.commits.history import History
from probes.log.errors import ProbeLogError
from probes.log.evidence.intake import Intake

ENDED_WITHIN: Final = 30.0
"""Seconds that the commit under way has left at a stop; one that is not done is made again by the next start."""


def begin_intake(config: Config, say: Callable[[str], None]) -> Callable[[], None]:
    """Begin to take it in, in a thread; returns what ends that. Raises ConfigError where nobody answers, and the probe
    log's errors where there can be no table."""
    reach(config, "evidence")
    topic, history = evidence_topic(config), History(str(config.job.history_path))
    history.id()  # checks that find no probe log end after a while; here somebody is going to write to it
    stopping = threading.Event()
    intake = Intake(topic, history, say)

    def work() -> None:
        try:
            intake.run(stopping)
        except ProbeLogError as error:
            say(f"the probe log is carried on no more: {error}")

    def end() -> None:
        stopping.set()
        thread.join(ENDED_WITHIN)

    thread = threading.Thread(target=work, name="intake", daemon=True)
    thread.start()
    say(f"the probe log is taken from {topic}")
    return end
