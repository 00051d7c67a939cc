"""What every test may ask for: real Kafka clusters, started once a session and only when asked for.

Tests share a cluster and never a topic: each makes topics, groups and transactional ids with names of its own. A test
that stops or kills brokers starts a cluster for itself.

The session runs in an empty folder, so that whatever is written to the current folder by default is not written into
the checkout; only the jars and the Java runtime are shared with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deploy.home import home
from deploy.local_kafka import LocalKafka

# How long an example takes says how busy the machine is.
settings.register_profile("offsetwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("offsetwatch")

CHECKOUT = Path(__file__).parents[1]
NEEDS = {"kafka": {"kafka", "kafka3", "kafka_of_3_8", "secured"}, "spark": {"spark"}}
"""The marker of a test that asks for one of these fixtures, itself or through another one."""

LONGEST = (
    "tests/streaming_jobs/test_rebuild.py", "tests/monitor/drill/faults/test_faults.py",
    "tests/alerts/test_silenced_pages.py", "tests/streaming_jobs/test_killed.py", "tests/deploy/test_grafana.py",
    "tests/deploy/test_prometheus.py", "tests/monitor/test_monitor_cycles.py", "tests/monitor/drill/test_drills.py",
    "tests/deploy/test_local_kafka.py", "tests/monitor/test_cluster_fleets.py",
)  # fmt: skip
"""Files of minutes, some of them in a single test that waits: two of them are under way, and others are there to fill
the time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker or Spark, so that `make quick` can leave it out, and put the longest files first: where
    two run at a time, none goes on for minutes when all others are done."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        for marker, fixtures in NEEDS.items():
            if asked & fixtures:
                item.add_marker(marker)
    order: dict[Path, int] = {}
    for item in items:
        order[item.path] = min(_order(item), order.get(item.path, _order(item)))
    items.sort(key=lambda item: order[item.path])


def _order(item: pytest.Item) -> int:
    """Where the file of such a test stands: the longest, those with Spark, those with a broker, all others."""
    file = item.path.relative_to(CHECKOUT).as_posix()
    if file in LONGEST:
        return LONGEST.index(file)
    marked = [item.get_closest_marker(name) is not None for name in ("spark", "kafka")]
    return len(LONGEST) + (marked.index(True) if True in marked else len(marked))


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before, environment = Path.cwd(), os.environ.get("OFFSETWATCH_HOME")
    os.environ["OFFSETWATCH_HOME"] = str(home())
    os.chdir(tmp_path_factory.mktemp("current-folder"))
    yield
    os.chdir(before)
    if environment is None:
        del os.environ["OFFSETWATCH_HOME"]
    else:
        os.environ["OFFSETWATCH_HOME"] = environment


@pytest.fixture(scope="session")
def kafka(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One broker, for all tests of the session."""
    with LocalKafka(tmp_path_factory.mktemp("kafka"), brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers, for all tests of the session."""
    with LocalKafka(tmp_path_factory.mktemp("kafka3"), brokers=3) as cluster:
        yield cluster
