"""A checkpoint at a URL: how Hadoop is told where that is, and how a rebuilt one is laid there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_jobs import location
from streaming_jobs.config import JobConfig
from streaming_jobs.history.handover import STATE_SCHEMA, RebuildPlan, Workspace, handover
from streaming_jobs.history.layout import by_delta, has_begun, reason_against
from streaming_jobs.integrity_job import session_settings
from streaming_jobs.location import TableUrl
from streaming_jobs.spark_conf import spark_conf
from streaming_jobs.verdicts.sink import query_id
from tests.object_store import SECRET, environment, store


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with store() as port:
        yield port


@pytest.fixture
def checkpoint(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableUrl]:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    location._store.cache_clear()
    yield TableUrl("s3a://bucket/canary/checkpoint")
    location._store.cache_clear()


def plan(id_: str) -> RebuildPlan:
    return RebuildPlan(id=id_, reason="", version=3, files=(), tables={}, reached=(), pieces=())


def test_a_rebuilt_checkpoint_is_laid_there_and_the_old_one_is_gone(checkpoint: TableUrl, tmp_path: Path) -> None:
    config = JobConfig(root=tmp_path, checkpoint=checkpoint)
    assert config.rebuild_folder == tmp_path / "checkpoints" / "integrity.rebuild"
    assert (handover(checkpoint), has_begun(checkpoint), by_delta(checkpoint)) == (None, False, None)
    for old, said in {"offsets/7": "{}", "commits/7": "{}", "metadata": 'v1\n{"id":"q"}'}.items():
        (checkpoint / old).write_text(said)
    assert has_begun(checkpoint) and by_delta(checkpoint) is False and query_id(checkpoint) == "q"
    space = Workspace(config.checkpoint_path, config.rebuild_folder)
    space.begin(plan("mine"))
    space.prepare(plan("mine"), STATE_SCHEMA.empty_table())
    assert reason_against(checkpoint) == "its checkpoint was laid out by another version of the job", "nothing is there"
    space.install()
    assert reason_against(checkpoint) is None and not has_begun(checkpoint)
    handed = handover(checkpoint)
    assert handed is not None and handed.plan == plan("mine")
    assert handed.state == checkpoint / "handover" / "state.parquet" and handed.state.is_file()
    assert space.plan() is None
    (checkpoint / "commits" / "0").write_text("{}")
    again = handover(checkpoint)
    assert again is not None and again.state is None


def test_one_that_is_laid_there_in_part_is_rebuilt(
    checkpoint: TableUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a monitor elsewhere, which does not see the folder of the rebuild."""
    space = Workspace(checkpoint, tmp_path / "integrity.rebuild")
    space.begin(plan("killed"))
    space.prepare(plan("killed"), STATE_SCHEMA.empty_table())
    put = TableUrl.write_bytes

    def killed(place: TableUrl, content: bytes, *, patient: bool = True) -> None:
        if place.name == "layout" and content != b"{}":
            raise KeyboardInterrupt
        put(place, content, patient=patient)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(TableUrl, "write_bytes", killed)
        space.install()
    assert reason_against(checkpoint) == "its checkpoint was laid out by another version of the job"
    assert handover(checkpoint) is not None
    assert space.plan() == plan("killed") and space.complete()
    space.install()
    assert space.plan() is None and reason_against(checkpoint) is None


def test_hadoop_is_told_what_deltalake_knows_and_no_secret(checkpoint: TableUrl, server: int) -> None:
    jars = [Path("/jars/delta.jar")]
    conf = spark_conf(session_settings(JobConfig(checkpoint=checkpoint), jars, beside=[Path("/s3a.jar")]))
    told = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in conf.items() if ".s3a." in name}
    assert told["endpoint"] == f"http://127.0.0.1:{server}" and told["endpoint.region"] == "us-east-1"
    assert told["path.style.access"] == "true"
    assert conf["spark.driver.extraClassPath"] == "/s3a.jar"
    assert SECRET not in str(conf)
    assert not any(".s3a." in name for name in spark_conf(session_settings(JobConfig(), jars)))
