"""Whose settings Spark has: a site's are kept, ours stand where it says nothing, and what the checks need is theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from monitor.config.config import load
from streaming_jobs import session
from streaming_jobs.config import JobConfig, SparkConfig
from streaming_jobs.errors import EvidenceGap, JobFailed, NotShared, translated
from streaming_jobs.history.log_source import Blocks, ProbeLogReader
from streaming_jobs.integrity_job import session_settings
from streaming_jobs.session import SessionSettings
from streaming_jobs.shipping import SHIPPED, WORKERS_NEED, archive
from streaming_jobs.spark_conf import NEEDED, java_options, launch_conf, spark_conf

DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def settings(master: str = "spark://there:7077", **conf: str) -> SessionSettings:
    config = JobConfig.model_validate({"root": "/data", "cores": 3, "spark": {"master": master, "conf": conf}})
    return session_settings(config, [Path("/jars/delta-spark_4.2_2.13-4.4.0.jar")])


def test_a_site_keeps_what_it_has_set_but_for_what_the_checks_need() -> None:
    site = {
        "spark.sql.streaming.minBatchesToRetain": "100",
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.extensions": "com.example.Lineage",
        "spark.cores.max": "16",
    }
    conf = spark_conf(settings(), site)
    assert {name for name in site if name in conf} == {"spark.sql.session.timeZone", "spark.sql.extensions"}
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.extensions"] == f"com.example.Lineage,{DELTA}"
    assert spark_conf(settings(), conf)["spark.sql.extensions"] == f"com.example.Lineage,{DELTA}", "once"


def test_what_fits_few_cores_and_loopback_is_set_for_a_local_spark_alone() -> None:
    here, there = spark_conf(settings("local")), spark_conf(settings())
    assert (here["spark.master"], here["spark.driver.host"]) == ("local[3]", "127.0.0.1")
    only_here = set(here) - set(there)
    assert {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.codegen.wholeStage"} <= only_here
    assert {"spark.driver.memory", "spark.ui.enabled", "spark.shuffle.checksum.enabled"} <= only_here
    assert there["spark.cores.max"] == "3"
    assert "spark.cores.max" not in spark_conf(settings("yarn"))
    assert "-XX:+UseSerialGC" in java_options(settings("local"))
    assert not [option for option in java_options(settings()) if option.startswith("-XX")]


def test_the_configuration_is_above_the_site() -> None:
    asked = settings(**{"spark.cores.max": "4", "spark.executor.memory": "2g"})
    conf = spark_conf(asked, {"spark.cores.max": "16"})
    assert (conf["spark.cores.max"], conf["spark.executor.memory"]) == ("4", "2g")
    assert spark_conf(settings("local", **{"spark.sql.codegen.wholeStage": "true"}))[
        "spark.sql.codegen.wholeStage"
    ] == ("true")


def test_delta_is_shipped_beside_a_sites_jars_unless_these_bring_it() -> None:
    launched = launch_conf(settings(), {"spark.jars": "/site/a.jar"})
    assert (launched["spark.master"], launched["spark.submit.deployMode"]) == ("spark://there:7077", "client")
    assert launched["spark.jars"] == "/site/a.jar,/jars/delta-spark_4.2_2.13-4.4.0.jar"
    assert launch_conf(settings(), {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"})["spark.jars"] == ""
    frames = {"spark.jars.packages": "io.graphframes:graphframes-spark4_2.13:0.12.3"}
    assert launch_conf(settings(**frames))["spark.jars"] == "/jars/delta-spark_4.2_2.13-4.4.0.jar"
    assert launch_conf(settings("local", **{"spark.jars": "b.jar"}))["spark.jars"].startswith("b.jar,/jars/delta")


def test_a_sites_defaults_are_read_where_spark_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._site_defaults() == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.jars no.jar\n\nspark.jars   /site/a.jar\nspark.eventLog.enabled=true\nspark.a:b c = d\nspark.alone\n"
    )
    assert session._site_defaults() == {
        "spark.jars": "/site/a.jar",
        "spark.eventLog.enabled": "true",
        "spark.a": "b c = d",
    }


def test_settings_are_written_as_spark_names_them(tmp_path: Path) -> None:
    file = tmp_path / "offsetwatch.toml"
    file.write_text(
        '[job.spark]\nmaster = "yarn"\n[job.spark.conf]\nspark.executor.memory = "2g"\n'
        'spark.executor.instances = 4\nspark.eventLog.enabled = true\n"spark.speculation" = "false"\n'
    )
    config = load(file, {"OFFSETWATCH_JOB__SPARK__CONF__SPARK_EXECUTOR_MEMORY": "3g"}).job.spark
    assert (config.master, config.conf) == (
        "yarn",
        {
            "spark.executor.memory": "3g",
            "spark.executor.instances": "4",
            "spark.eventLog.enabled": "true",
            "spark.speculation": "false",
        },
    )


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"master": "local[*]"}, "pattern"),
        ({"master": "spark://"}, "pattern"),
        ({"conf": {"spark.master": "yarn"}}, "it is job.spark.master"),
        ({"conf": {"spark": {"submit": {"deployMode": "cluster"}}}}, "this process is the driver"),
        ({"conf": {"spark.sql.session.timeZone": "Europe/Berlin"}}, "must be UTC"),
        ({"conf": {"executor.memory": "1g"}}, "begin with spark"),
    ],
)
def test_what_may_not_be_set_is_refused_with_its_reason(section: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SparkConfig.model_validate(section)
    assert SparkConfig.model_validate({"conf": NEEDED}).conf == NEEDED


def test_what_is_shipped_is_all_of_ours_that_a_task_imports(tmp_path: Path) -> None:
    packed = archive(tmp_path)
    assert archive(tmp_path) == packed, "the same code is the same archive"
    # Without our folder, and without installed packages of ours or of others that were not said to be needed.
    program = (
        "import sys, sysconfig; begun = set(sys.modules)\n"
        "import streaming_jobs.worker_daemon, streaming_jobs.verdicts.part_checks, streaming_jobs.history.log_source\n"
        "there = {name.partition('.')[0]: module for name, module in sys.modules.items() if name not in begun}\n"
        "site = sysconfig.get_paths()['purelib']\n"
        "print(*{n for n, m in there.items() if site in (getattr(m, '__file__', None) or '')})\n"
        "print(*{n for n, m in sys.modules.items() if sys.argv[1] in (getattr(m, '__file__', None) or '')})"
    )
    environment = os.environ | {"PYTHONPATH": str(packed)}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(packed)], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    foreign, ours = (set(line.split()) for line in ran.stdout.decode().splitlines())
    assert {"rules.step", "streaming_jobs.history.log_source"} <= ours
    brought = {"pyspark", "py4j", "dateutil", "pytz", "six"}  # by Spark, and by pandas
    assert {name for name in foreign if not name.startswith("_")} - brought <= set(WORKERS_NEED)
    assert {name.partition(".")[0] for name in ours} == set(SHIPPED)


def test_a_worker_that_does_not_see_the_data_folder_is_no_gap_in_the_evidence(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "version": "0", "files": "1", "bytes": "1", "checkpoint": str(tmp_path / "c")}
    reader = ProbeLogReader(options)
    with pytest.raises(NotShared, match="_delta_log is not to be seen by Spark's worker on") as refused:
        reader.read(Blocks([]))
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(NotShared, match="/c is not to be seen"):
        reader.read(Blocks([]))
    (tmp_path / "c").mkdir()
    assert list(reader.read(Blocks([]))) == []
    told = translated(RuntimeError(f"streaming_jobs.errors.NotShared: {refused.value}"), checkpoint="c")
    assert type(told) is JobFailed and not isinstance(told, EvidenceGap)
    assert "must be one that all of Spark's machines see" in str(told)
