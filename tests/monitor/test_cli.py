"""The command line: exit codes, one line for each error, and a quick start."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from monitor.cli import main
from monitor.process.versions import installed
from tests.monitor.commands import COMMAND, environment, offsetwatch
from tests.monitor.rows import finding, record

CASES = [
    (["--version"], 0, f"offsetwatch {installed('offsetwatch')}"),
    (["--help"], 0, "When something is found"),
    (["findings", "--help"], 0, "--severity"),
    (["nonsense"], 2, "offsetwatch: No such command 'nonsense' (offsetwatch --help)"),
    (["findings", "--nonsense"], 2, "offsetwatch: No such option: --nonsense"),
    (["findings", "--kind", "x"], 2, "Invalid value for '--kind': 'x' is not one of"),
    (["findings", "--anomaly", "x"], 2, "offsetwatch: --anomaly: there is no anomaly x; known are duplicate,"),
    (["findings", "--data", "nowhere"], 2, "offsetwatch: there are no tables in nowhere/tables"),
    (["findings", "--config", "missing.toml"], 2, "offsetwatch: missing.toml: cannot be read: No such file"),
    (["check"], 2, "offsetwatch: Missing argument 'files'"),
    (["check", "missing.edn"], 2, "missing.edn"),
    (["kafka", "up", "--brokers", "9"], 2, "Invalid value for '--brokers'"),
    (
        ["probe", "run", "--config", "bad.toml"],
        2,
        "offsetwatch: bad.toml: probes.writr: unknown key; did you mean writer?",
    ),
    (["monitor", "--config", "bad.toml"], 2, "offsetwatch: bad.toml: probes.writr: unknown key; did you mean writer?"),
    (["demo", "--seconds", "soon"], 2, "Invalid value for '--seconds'"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.toml").write_text("[probes]\nwritr = 1\n")
    return tmp_path


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The command in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(("arguments", "code", "said"), CASES, ids=[" ".join(arguments) for arguments, *_ in CASES])
def test_exit_codes(
    folder: Path,
    arguments: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    returned, out, err = called(arguments, capsys)
    assert returned == code
    shown, other = (out, err) if code == 0 else (err, out)
    assert said in shown
    assert other == ""
    assert code == 0 or len(shown.splitlines()) == 1, shown


@pytest.mark.parametrize("command", ["probe run", "probe drain", "monitor --probes"])
def test_a_cluster_that_does_not_answer_is_named(folder: Path, command: str) -> None:
    changed = {"OFFSETWATCH_CLUSTER__BOOTSTRAP": "127.0.0.1:1", "OFFSETWATCH_CLUSTER__REACHABLE_WITHIN": "0.5"}
    done = offsetwatch(*command.split(), cwd=folder, **changed)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "offsetwatch: OFFSETWATCH_CLUSTER__BOOTSTRAP: cluster.bootstrap: no broker answers at 127.0.0.1:1"
    )


def test_debug_shows_where_an_error_comes_from(folder: Path) -> None:
    for arguments in (["--debug", "findings", "--data", "nowhere"], ["findings", "--data", "nowhere", "--debug"]):
        done = offsetwatch(*arguments, cwd=folder)
        assert done.returncode == 1
        assert "Traceback" in done.stderr and "there are no tables in nowhere" in done.stderr


def test_a_command_that_read_tables_and_fails_leaves_with_its_own_code(tmp_path: Path) -> None:
    """Arrow's threads aborted one now and then as it ended, with code 134."""
    record(tmp_path, finding("duplicate"))
    for file in (tmp_path / "tables" / "findings").glob("*.parquet"):
        file.unlink()
    for _ in range(3):
        done = offsetwatch("status", "--data", str(tmp_path), cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "\x1b" not in done.stderr and "[31m" not in done.stderr
    program = "import deltalake, monitor.cli as c; c.known_errors = lambda: (); c.main()"
    broken = subprocess.run(
        [COMMAND[0], "-c", f"import atexit; atexit.register(print, 'waited'); {program}", "status", "--data", tmp_path],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (broken.returncode, broken.stdout) == (1, "") and "Traceback" in broken.stderr


@pytest.mark.long
def test_a_command_that_ran_ends_while_a_library_is_at_work(tmp_path: Path) -> None:
    """A monitor ended by SIGSEGV in one stop of twelve: deltalake was looking after a table, and came back into an
    interpreter that was going. What is done at the exit is done all the same, and who is no daemon is waited for."""
    for _ in range(20):
        write_deltalake(tmp_path / "table", pa.table({"a": range(100)}), mode="append")
    program = """
import atexit, sys, threading, time, deltalake
from monitor.process.ending import leave
sys.modules["pyspark"] = sys  # as if it had been at work
atexit.register(print, "and the end")
begun = threading.Event()

def keep_up():
    begun.set()
    while True:
        deltalake.DeltaTable("table").vacuum(retention_hours=1, dry_run=True, enforce_retention_duration=False)

def last():
    time.sleep(0.05)
    print("the last words")

threading.Thread(target=keep_up, daemon=True).start()
begun.wait()
threading.Thread(target=last).start()
leave(3, None)
"""
    for _ in range(12):
        done = subprocess.run(
            [COMMAND[0], "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (3, "the last words\nand the end\n"), done.stderr


@pytest.mark.parametrize("command", ["", "check", "findings", "monitor", "sql", "report", "export", "drill run"])
def test_help_reads_at_80_columns(folder: Path, command: str) -> None:
    done = offsetwatch(*command.split(), "--help", cwd=folder, COLUMNS="80")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
    if not command:
        titles = ("Begin", "Watch a cluster", "When something is found", "After an incident", "Judge what was kept")
        assert sorted(titles, key=done.stdout.index) == list(titles)


def test_help_does_not_load_what_only_commands_need() -> None:
    heavy = {"pyspark", "pandas", "pyarrow", "pydantic", "confluent_kafka", "deltalake", "prometheus_client"}
    heavy |= {"rich.table"}
    done = subprocess.run(
        [COMMAND[0], "-c", f"import sys, monitor.cli; print({heavy} & set(sys.modules))"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("said", ["--version", "--help"])
def test_a_reader_that_goes_away_is_no_error(folder: Path, said: str) -> None:
    piped = subprocess.Popen(
        [*COMMAND, said], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert piped.stdout is not None and piped.stderr is not None
    piped.stdout.close()
    piped.wait(timeout=300)
    assert (piped.stderr.read(), piped.returncode) == (b"", 141)
    piped.stderr.close()


UNWRITABLE = "offsetwatch: standard output cannot be written: No space left on device\n"
OUTPUTS = [
    ("--version", ">/dev/full", 2, UNWRITABLE),
    ("--help", ">/dev/full", 2, UNWRITABLE),
    ("--version", ">&-", 0, ""),
    ("findings --data nowhere", ">&-", 2, "offsetwatch: there are no tables in nowhere/tables: give the"),
    ("findings --data nowhere", "2>/dev/full", 2, ""),
    ("findings --data nowhere", "2>&-", 2, ""),
    ("check -", "<&-", 2, "offsetwatch: standard input: cannot be read: standard input is closed\n"),
]


def in_a_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("arguments", "where", "code", "said"), OUTPUTS, ids=[" ".join(one[:2]) for one in OUTPUTS])
def test_output_that_cannot_be_written_is_one_line(
    folder: Path, arguments: str, where: str, code: int, said: str
) -> None:
    done = in_a_shell(f"{shlex.join(COMMAND)} {arguments} {where}", folder)
    assert done.returncode == code
    assert done.stderr.startswith(said) and done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize("command", ["monitor --probes", "monitor", "probe run", "demo"])
def test_too_few_open_files_are_one_line(folder: Path, command: str) -> None:
    done = in_a_shell(f"ulimit -n 300; {shlex.join(COMMAND)} {command}", folder)
    said = "300 files may be open here, and 512 are needed at least: raise the limit (ulimit -n)"
    assert (done.returncode, done.stderr) == (2, f"offsetwatch: {said}\n")


@pytest.mark.parametrize(("limit", "gigabytes"), [(300_000, "0.3"), (1_000_000, "1.0")])
@pytest.mark.parametrize("command", ["monitor", "probe run"])
def test_too_few_addresses_are_one_line(folder: Path, command: str, limit: int, gigabytes: str) -> None:
    done = in_a_shell(f"ulimit -v {limit}; {shlex.join(COMMAND)} {command}", folder)
    said = f"{gigabytes} GB of addresses may be taken here, and 3 are needed at least: raise the limit (ulimit -v)"
    assert (done.returncode, done.stderr) == (2, f"offsetwatch: {said}\n")


def test_as_many_files_may_be_open_as_the_machine_lets_us(folder: Path) -> None:
    asked = "import monitor.process.limits as them; them.require_enough(); print(them.allowed() > 300)"
    done = in_a_shell(f"ulimit -Sn 300; {shlex.join([sys.executable, '-c', asked])}", folder)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_refusal_waits_for_no_thread_of_a_library(tmp_path: Path) -> None:
    """Of Arrow's and deltalake's, which abort the process now and then as it ends: one call in twelve did, with code
    134, where the configuration names several clusters."""
    record(tmp_path, finding("duplicate"))
    clusters = "".join(f'[clusters.{name}]\nbootstrap = "127.0.0.1:9"\n' for name in ("one", "two"))
    (tmp_path / "offsetwatch.toml").write_text(clusters)
    (tmp_path / "sitecustomize.py").write_text("import atexit\natexit.register(print, 'it was waited for')\n")
    told = environment()
    told["PYTHONPATH"] = f"{tmp_path}:{told['PYTHONPATH']}"
    done = subprocess.run(
        [*COMMAND, "findings", "--data", str(tmp_path), "--cluster", "three"],
        cwd=tmp_path,
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--cluster: nothing is known of a cluster three" in done.stderr
