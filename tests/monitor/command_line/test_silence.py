"""`offsetwatch silence`, and where a silence is shown."""

from __future__ import annotations

import json
import re
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from alerts.silences import FolderSilences, path_of
from tests.alerts.servers import alertmanager, get
from tests.monitor.commands import offsetwatch
from tests.monitor.rows import finding, record


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two clusters, with a condition that is open in each."""
    folder = tmp_path / "data"
    record(
        folder,
        finding("unseen", (1,), "opened", cluster="EmAw", topic="orders"),
        finding("unseen", (2,), "opened", cluster="EmXy", topic="payments"),
    )
    return folder


def test_a_line_silences_a_cluster_and_every_command_shows_it(data: Path) -> None:
    asked = ["silence", "add", "--cluster", "EmA", "--until", "2h", "--because", "new disks", "--data", str(data)]
    done = offsetwatch(*asked, cwd=data)
    assert (done.returncode, done.stderr) == (0, "")
    (one,) = FolderSilences(path_of(data / "alerts")).all()
    until = one.until.strftime("%H:%M")
    assert timedelta(0) < one.until - datetime.now(UTC) <= timedelta(hours=2)
    said = " ".join(done.stdout.split())
    assert said.startswith(f"{one.id}: cluster EmAw is silenced until ")
    assert " UTC, for 2 h. What is still open " in said, "a time that was meant to be past is tomorrow's"
    assert f"offsetwatch silence end {one.id}" in " ".join(done.stdout.split())

    listed = offsetwatch("silence", "list", "--data", str(data), cwd=data).stdout
    assert listed.startswith("Silenced until ")
    assert f"{until} UTC: cluster EmAw (new disks, by {one.by}); {one.id}" in " ".join(listed.split())
    (told,) = json.loads(offsetwatch("silence", "list", "--json", "--data", str(data), cwd=data).stdout)
    assert (told["id"], told["cluster"], told["topic"], told["because"]) == (one.id, "EmAw", None, "new disks")

    found = offsetwatch("findings", "--data", str(data), cwd=data).stdout
    assert f"cluster EmAw (new disks, by {one.by}); {one.id}" in " ".join(found.split())
    rows = [line for line in found.splitlines() if "crit unseen" in line]
    assert sorted(("EmAw" in line, "silenced" in line) for line in rows) == [(False, False), (True, True)]
    assert max(map(len, found.splitlines())) <= 80
    for line in rows:
        said = " ".join(offsetwatch("explain", line.split()[0], "--data", str(data), cwd=data).stdout.split())
        shown = re.search(r"Silenced until (?:\d\d-\d\d )?(\S+) UTC: cluster EmAw \(new disks, by (.+?)\)", said)
        assert (shown.groups() if shown else None) == ((until, one.by) if "silenced" in line else None)
    status = offsetwatch("status", "--data", str(data), cwd=data).stdout
    assert "cluster EmAw (new disks" in " ".join(status.split())
    assert json.loads(offsetwatch("status", "--json", "--data", str(data), cwd=data).stdout)["silences"] == [told]

    ended = offsetwatch("silence", "end", one.id, "--data", str(data), cwd=data)
    assert ended.stdout.startswith("cluster EmAw is silenced no more")
    assert offsetwatch("silence", "list", "--data", str(data), cwd=data).stdout == "Nothing is silenced.\n"
    assert "ilenced" not in offsetwatch("findings", "--data", str(data), cwd=data).stdout
    assert "Over since" in offsetwatch("silence", "list", "--all", "--data", str(data), cwd=data).stdout


def test_a_topic_says_of_which_cluster_it_is(data: Path) -> None:
    asked = ["silence", "add", "--topic", "orders", "--until", "2h", "--because", "x", "--data", str(data)]
    assert " topic orders of cluster EmAw is silenced" in " ".join(offsetwatch(*asked, cwd=data).stdout.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--until", "2h"], "silence add: give --cluster or --topic; nothing silences everything"),
        (["--until", "2h", "--cluster", "zz"], "--cluster: there is no cluster zz; known are EmAw, EmXy"),
        (["--until", "2h", "--cluster", "Em"], "--cluster: 2 clusters are meant: EmAw, EmXy; name one"),
        (["--until", "2h", "--topic", "orderz"], "--topic: there is no topic orderz; known are orders, payments"),
        (
            ["--until", "2h", "--topic", "payments", "--cluster", "EmAw"],
            "--topic: there is no topic payments; known are orders",
        ),
        (["--until", "8d", "--cluster", "EmAw"], "a silence lasts 7 days at most; begin another one then"),
        (["--until", "soon", "--cluster", "EmAw"], "--until: 'soon' is no time"),
        (["--until", "2020-01-01T10:00", "--cluster", "EmAw"], "a silence until 2020-01-01 10:00 UTC is over already"),
        (["--until", "2h", "--cluster", "EmAw", "--because", " "], "a silence needs a reason"),
    ],
)
def test_what_silences_nothing_or_too_much_is_one_line(data: Path, arguments: list[str], said: str) -> None:
    because = [] if "--because" in arguments else ["--because", "new disks"]
    done = offsetwatch("silence", "add", *arguments, *because, "--data", str(data), cwd=data)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert done.stderr.startswith(f"offsetwatch: {said}")
    assert not path_of(data / "alerts").exists()


def test_a_silence_without_a_reason_or_an_end_is_refused(data: Path) -> None:
    for missing in ("--because", "--until"):
        given = {"--because": "x", "--until": "2h"}
        words = [word for name, value in given.items() if name != missing for word in (name, value)]
        done = offsetwatch("silence", "add", "--cluster", "EmAw", *words, "--data", str(data), cwd=data)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"Missing option '{missing}'" in done.stderr


def test_an_end_of_what_is_not_silenced_is_one_line(data: Path) -> None:
    done = offsetwatch("silence", "end", "abc", "--data", str(data), cwd=data)
    assert (done.returncode, done.stderr) == (2, "offsetwatch: no active silence begins with 'abc'\n")


def test_where_there_are_no_tables_nothing_can_be_silenced(tmp_path: Path) -> None:
    asked = ["silence", "add", "--cluster", "c", "--until", "2h", "--because", "x", "--data", str(tmp_path / "none")]
    done = offsetwatch(*asked, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


@pytest.mark.parametrize("named", ["none", "file", ""])
def test_of_a_folder_that_is_not_there_nobody_says_that_nothing_is_silenced(tmp_path: Path, named: str) -> None:
    (tmp_path / "file").touch()
    done = offsetwatch("silence", "list", "--data", str(tmp_path / named) if named else "", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr


WORD = "offsetwatch silence {}: new disks"


def silenced_there(url: str, id_: str) -> list[str]:
    """The states of what an Alertmanager has of a silence of ours, once it was told of it."""
    return [
        one["status"]["state"]
        for one in json.loads(get(f"{url}/api/v2/silences") or "[]")
        if one["comment"] == WORD.format(id_)
    ]


def tell_of(url: str, id_: str) -> None:
    """As the monitor does."""
    now = datetime.now(UTC)
    matcher = {"name": "cluster", "value": "EmAw", "isRegex": True, "isEqual": True}
    document = {
        "matchers": [matcher],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=2)).isoformat(),
        "createdBy": "offsetwatch",
        "comment": WORD.format(id_),
    }
    asked = urllib.request.Request(
        f"{url}/api/v2/silences", json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(asked, timeout=30).close()


@pytest.mark.long
def test_where_no_monitor_works_its_silence_is_ended_in_alertmanager_too(data: Path, tmp_path: Path) -> None:
    silences, now = FolderSilences(path_of(data / "alerts")), datetime.now(UTC)
    one, other = (
        silences.add(cluster="EmAw", topic=topic, until=now + timedelta(hours=2), because="disks", by="me", now=now)
        for topic in ("", "orders")
    )
    file = tmp_path / "offsetwatch.toml"
    with alertmanager(tmp_path / "am", "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n") as url:
        file.write_text(f'data = "{data}"\n[alerts.alertmanager]\nurls = ["{url}"]\n')
        tell_of(url, one.id)
        tell_of(url, other.id)
        done = offsetwatch("silence", "end", one.id, "--config", str(file), cwd=data)
        assert (done.returncode, done.stderr) == (0, "")
        assert " ".join(done.stdout.split()) == (
            "cluster EmAw is silenced no more, in Alertmanager neither. That was not the monitor's doing: does it work?"
            " What is open there is told when it does."
        )
        assert (silenced_there(url, one.id), silenced_there(url, other.id)) == (["expired"], ["active"])
    done = offsetwatch("silence", "end", other.id, "--config", str(file), cwd=data)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert said.startswith(
        "offsetwatch: topic orders of cluster EmAw is silenced no more here, but perhaps in Alertmanager, until "
    )
    assert f"'offsetwatch silence {other.id}'" in said
    assert {one.active(datetime.now(UTC)) for one in silences.all()} == {False}
