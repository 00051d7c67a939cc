"""Jars, resolved by the real Ivy from a small Maven repository in a folder: no network, and every way to fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.errors import JarsMissing
from deploy.jars import Artefact, JarSet, kafka_jars, resolved, spark_jars

APP = Artefact("org.example", "app", "1.0")
LIB = Artefact("org.example", "lib", "2.0")
SET = JarSet("app", "the app", (APP,))


class Registry:
    """A Maven repository in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def publish(self, artefact: Artefact, *needs: Artefact, pom_only: bool = False) -> None:
        folder = self.root / artefact.org.replace(".", "/") / artefact.name / artefact.rev
        folder.mkdir(parents=True)
        needed = "".join(
            f"<dependency><groupId>{a.org}</groupId><artifactId>{a.name}</artifactId><version>{a.rev}</version></dependency>"
            for a in needs
        )
        (folder / f"{artefact.name}-{artefact.rev}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{artefact.org}</groupId>"
            f"<artifactId>{artefact.name}</artifactId><version>{artefact.rev}</version>"
            f"<dependencies>{needed}</dependencies></project>"
        )
        if not pom_only:
            (folder / f"{artefact.name}-{artefact.rev}.jar").write_bytes(f"jar of {artefact}".encode())


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    root = tmp_path / "registry"
    place = f"{root}/[organisation]/[module]/[revision]/[module]-[revision]"
    (tmp_path / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers><filesystem name="folder" m2compatible="true">'
        f'<ivy pattern="{place}.pom"/><artifact pattern="{place}.[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("OFFSETWATCH_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setenv("OFFSETWATCH_HOME", str(tmp_path / "home"))
    return Registry(root)


def names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def test_a_set_is_fetched_once_with_what_it_needs(registry: Registry, tmp_path: Path) -> None:
    registry.publish(APP, LIB)
    registry.publish(LIB)
    said: list[str] = []
    jars = resolved(said.append, SET)
    assert names(jars) == ["app-1.0.jar", "lib-2.0.jar"]
    assert jars[0].read_bytes() == b"jar of org.example:app:1.0"
    assert said == [f"fetching the app into {tmp_path / 'home/jars/app'}"]
    assert resolved(said.append, SET) == jars
    assert len(said) == 1, "what is there is not fetched again"
    assert sorted(entry.name for entry in (tmp_path / "home/jars").iterdir()) == [".app.lock", "app"]


def test_what_pyspark_has_is_left_out(registry: Registry) -> None:
    hadoop = Artefact("org.apache.hadoop", "hadoop-client-api", "1.0")
    registry.publish(APP, hadoop, LIB)  # hadoop is not even published: asking for it would fail
    registry.publish(LIB)
    assert names(resolved(print, JarSet("app", "the app", (APP,), beside_pyspark=True))) == [
        "app-1.0.jar",
        "lib-2.0.jar",
    ]


@pytest.mark.long
@pytest.mark.parametrize("harm", ["truncated", "removed", "list lost", "definition changed"])
def test_a_folder_that_is_not_whole_is_fetched_again(registry: Registry, harm: str) -> None:
    registry.publish(APP, LIB)
    registry.publish(LIB)
    jar, other = resolved(print, SET)
    wanted = SET
    match harm:
        case "truncated":
            jar.write_bytes(b"j")
        case "removed":
            jar.unlink()
        case "list lost":
            (jar.parent / "jars.json").write_text("{")
        case "definition changed":
            wanted = JarSet("app", "the app", (LIB,))
    jars = resolved(print, wanted)
    assert jars == ([jar, other] if wanted is SET else [other])
    assert jars[0].read_bytes() == f"jar of {wanted.artefacts[0]}".encode()
    assert set(jar.parent.iterdir()) == {*jars, jar.parent / "jars.json"}


@pytest.mark.long
def test_a_missing_artefact_is_named(registry: Registry) -> None:
    with pytest.raises(JarsMissing, match=r"^cannot fetch org\.example:app:1\.0: not found; the log is .*ivy\.log$"):
        resolved(print, SET)
    registry.publish(APP, LIB)
    with pytest.raises(
        JarsMissing, match=r"^cannot fetch org\.example:lib:2\.0 \(needed by org\.example:app:1\.0\): not"
    ):
        resolved(print, SET)
    registry.publish(LIB)
    assert names(resolved(print, SET)) == ["app-1.0.jar", "lib-2.0.jar"], "a failure leaves nothing in the way"


def test_a_published_artefact_without_its_jar_is_named(registry: Registry) -> None:
    registry.publish(APP, LIB)
    registry.publish(LIB, pom_only=True)
    with pytest.raises(JarsMissing, match=r"cannot fetch org\.example:lib:2\.0 \(needed by org\.example:app:1\.0\): "):
        resolved(print, SET)


def test_an_unreachable_registry_is_told_from_a_missing_artefact(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="web"/><resolvers>'
        '<ibiblio name="web" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    with pytest.raises(JarsMissing, match=r"cannot fetch org\.example:app:1\.0: .*127\.0\.0\.1") as refused:
        resolved(print, SET)
    assert "\n" not in str(refused.value)


def test_two_processes_fetch_a_set_once(registry: Registry) -> None:
    registry.publish(APP, LIB)
    registry.publish(LIB)
    program = (
        "import sys; from deploy.jars import *\n"
        "print(*resolved(to := lambda line: print(line, file=sys.stderr), "
        "JarSet('app', 'the app', (Artefact('org.example', 'app', '1.0'),))))"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    (one, said_by_one), (other, said_by_other) = (process.communicate(timeout=300) for process in both)
    assert one == other
    assert one.split()[1].endswith("lib-2.0.jar")
    assert (said_by_one + said_by_other).count("fetching the app into") == 1


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OFFSETWATCH_HOME", str(tmp_path / "file"))
    with pytest.raises(Exception, match=r"^cannot write .*file/jars.*OFFSETWATCH_HOME"):
        resolved(print, SET)


@pytest.mark.parametrize("version", ["latest", "4.3", "../4.3.1", ""])
def test_a_version_is_three_numbers(version: str) -> None:
    with pytest.raises(JarsMissing, match=r"is not a version of Apache Kafka: write it like 4\.3\.1"):
        kafka_jars(version)


def test_the_real_sets() -> None:
    kafka, spark = names(kafka_jars()), names(spark_jars())
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"} <= set(kafka)
    assert {"delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar", "delta-kernel-api-4.4.0.jar"} <= set(spark)
    doubled = ("hadoop", "scala", "jackson-core", "jackson-databind", "slf4j", "log4j", "parquet", "zstd", "snappy")
    assert not [name for name in spark if name.startswith(doubled)]
