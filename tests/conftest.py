"""What every test may ask for: real Kafka clusters, started once a session and only when asked for.

Tests share a cluster and never a topic: each makes topics, groups and transactional ids with names of its own. A test
that stops or kills brokers starts a cluster for itself.

The session runs in an empty folder, so that whatever is written to the current folder by default is not written into
the checkout; only the jars and the Java runtime are shared with it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from deploy.home import home
from deploy.local_kafka import LocalKafka
from tests.shared_kafka import Shared, shared

# How long an example takes says how busy the machine is.
settings.register_profile("offsetwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("offsetwatch")

NEEDS = {"kafka": {"kafka", "kafka3", "kafka_of_3_8", "secured"}, "spark": {"spark"}}
"""The marker of a test that asks for one of these fixtures, itself or through another one."""
WAITING = ("kafka", "spark", "slow")
"""Markers of tests that start programs, and wait for them."""
LONGEST = (
    "streaming_jobs/rebuild/test_rebuild",
    "probes/test_transform",
    "streaming_jobs/test_killed",
    "probes/test_fleet",
    "deploy/test_local_kafka",
    "probes/log/evidence/test_intake",
    "probes/test_group_offsets",
    "streaming_jobs/test_object_store",
    "probes/log/test_cut_journals",
    "streaming_jobs/test_job",
    "monitor/drill/test_drills",
    "monitor/process/test_stop",
    "monitor/drill/proxy/test_lies",
    "monitor/drill/proxy/test_side",
)
"""Files that took a minute or more when they were measured last, the longest first: none of them may come last."""
WAY = "fed"
"""The parameter by which a test of the rules is given its history in several ways."""
TOGETHER = {
    f"tests/{name}.py": together
    for together, names in {
        "three brokers": (
            "deploy/test_local_kafka",
            "probes/test_topics",
            "monitor/drill/proxy/test_passing",
            "monitor/drill/proxy/test_side",
            "monitor/drill/proxy/test_wire",
            "monitor/drill/proxy/test_lies",
            "monitor/drill/test_schedule",
        ),
        "a broker that wants a login": (
            "monitor/canaries/test_login",
            "monitor/drill/proxy/test_upstream",
            "monitor/postmortem/test_explain_more",
        ),
        "a Spark session": (
            "streaming_jobs/rebuild/test_rebuild",
            "streaming_jobs/test_cycles",
            "streaming_jobs/test_session",
        ),
        "another Spark session": (
            "streaming_jobs/test_job",
            "streaming_jobs/history/test_files",
            "streaming_jobs/history/test_damaged_files",
            "streaming_jobs/history/test_holding",
            "streaming_jobs/verdicts/test_across",
        ),
    }.items()
    for name in names
}
"""Files that want what is dear to start, three brokers, those of an older version, or a Spark session: of each group
one process runs all, and starts these once. With two sessions Spark's files take no longer than the others; each
begins with four to six seconds of processor time, by how much of it is used, and warms up anew."""


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]  # its library tells no types
    """A file's tests in one process, as `--dist loadfile` has it, and some files' in the same."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether | None:
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "give each test's history to the rules in one way only; which of its ways that is differs from case to case"
    parser.addoption("--one-way", action="store_true", help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a broker or Spark, so that `make quick` can leave it out.

    Files with such tests come first, the longest of them before the others, and these in an order that has nothing to
    do with their names: neighbours in a folder want the same of the machine. The others fill what those leave, so that
    no long file comes last."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        for marker, fixtures in NEEDS.items():
            if asked & fixtures:
                item.add_marker(marker)
    file = {item: item.nodeid.partition("::")[0] for item in items}
    waiting = {file[item] for item in items if any(item.get_closest_marker(name) for name in WAITING)}
    longest = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    place = {one: longest.get(one, len(LONGEST) if one in waiting else len(LONGEST) + 1) for one in file.values()}
    items.sort(key=lambda item: (place[file[item]], crc32(file[item].encode())))
    if config.getoption("one_way"):
        kept = _one_way(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _one_way(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each case, which its test and its parameters but `fed` name, the way whose name has the lowest checksum: any
    of them, and the same one each time."""
    found: dict[object, pytest.Item] = {}
    for item in sorted(items, key=lambda item: crc32(item.nodeid.encode())):
        given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        case = frozenset((name, id(value)) for name, value in given.items() if name != WAY)  # few have a hash
        found.setdefault((item.nodeid.partition("[")[0], case), item)
    return set(found.values())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: looking through it for garbage meanwhile finds next to none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Seven thousand collected tests are not looked through for garbage again and again: a seventh of the processor
    time of the rules' tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


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
def kafka(_folders: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> LocalKafka:
    """One broker, for all tests of the session, in all its processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka"
    # Left when all is over, and not as the last test's last act, whose time is limited: the others may take long.
    uses = ExitStack()
    request.config.add_cleanup(uses.close)
    return Shared(folder, uses.enter_context(shared(folder)))


@pytest.fixture(scope="session")
def kafka3(_folders: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Three brokers, for all tests of the session."""
    with LocalKafka(tmp_path_factory.mktemp("kafka3"), brokers=3) as cluster:
        yield cluster
