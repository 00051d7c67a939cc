"""What the program says of itself: what many say again and again is told once, and a full disk says nothing twice."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest

from monitor.process import program_log
from monitor.process.program_log import configure, say


def test_what_all_say_of_a_full_disk_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    configure(file=tmp_path / "program.log")
    log = logging.getLogger("probes.trouble")
    for name in ("writer-1", "writer-2", "reader-1"):
        log.warning("probe %s: %s", name, "no space left", extra={"said_once": "JournalUnwritable"})
        log.warning("probe %s has another trouble", name)
    told = capsys.readouterr().err
    assert told.count("no space left") == 1 and told.count("another trouble") == 3
    assert (tmp_path / "program.log").read_text().count("no space left") == 1


def test_pythons_own_warnings_are_in_the_file_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)  # as in a process of its own
        configure(file=tmp_path / "program.log")
        warnings.warn("Producer abort_transaction failed during close", RuntimeWarning, stacklevel=1)
    logging.captureWarnings(False)
    assert capsys.readouterr().err == ""
    assert "RuntimeWarning: Producer abort_transaction failed" in (tmp_path / "program.log").read_text()


def test_it_is_told_again_later(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    configure()
    monkeypatch.setattr(program_log, "SAID_AGAIN_AFTER", 0.0)
    log = logging.getLogger("probes.trouble")
    for _ in range(2):
        log.warning("no space left", extra={"said_once": "JournalUnwritable"})
    assert capsys.readouterr().err.count("no space left") == 2


def test_a_log_file_that_cannot_be_written_says_nothing_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`/dev/full` refuses every write as a full disk does."""
    configure(file=Path("/dev/full"))
    logging.getLogger("monitor.trouble").info("for the file alone")
    assert capsys.readouterr().err == ""
    configure()


def test_each_line_is_an_object_where_json_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    configure(as_json=True)
    try:
        say('checking the probe log in "a"')
        logging.getLogger("monitor").warning("the disk %s is full", "/data")
    finally:
        configure()
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["logger"], one["message"]) for one in said] == [
        ("info", "offsetwatch", 'checking the probe log in "a"'),
        ("warning", "monitor", "the disk /data is full"),
    ]
    assert all(one["time"].endswith("Z") for one in said)


def test_a_disk_that_is_full_again_is_another_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The second night is told too, however soon it comes; one, in which probes try again and again, is told once."""
    configure()
    log = logging.getLogger("probes.trouble")

    def tried(at: float) -> bool:
        record = log.makeRecord(log.name, logging.WARNING, "", 0, "no space left", (), None, extra=FULL)
        record.created = at
        log.handle(record)
        return bool(capsys.readouterr().err)

    assert [tried(at) for at in (1000, 1003, 1006, 1025.9, 1046, 1047)] == [True, False, False, False, True, False]


FULL = {"said_once": "JournalUnwritable", "spell": 20.0}


def test_what_a_client_says_by_the_second_is_told_once(tmp_path: Path) -> None:
    """While a broker refuses its login, or is away: with how long it took, which differs each time."""
    file = tmp_path / "probes.log"
    configure(file=file)
    log = logging.getLogger("offsetwatch.client")
    for i in range(50):
        for client in ("audit", "reader-1"):
            log.error("FAIL [%s] SASL authentication error (after %sms in state AUTH_REQ)", client, i)
    assert [line.partition("FAIL ")[2] for line in file.read_text().splitlines()] == [
        "[audit] SASL authentication error (after 0ms in state AUTH_REQ)",
        "[reader-1] SASL authentication error (after 0ms in state AUTH_REQ)",
    ]
    later = log.makeRecord(
        log.name, logging.ERROR, "", 0, "FAIL [audit] SASL authentication error (after 9ms)", (), None
    )
    later.created += 61
    log.handle(later)
    assert len(file.read_text().splitlines()) == 3, "it is another time"
