"""The report as it is read: on a terminal of 80 columns, and where it is piped elsewhere."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from monitor.commands.check import Options, run
from monitor.history_files.verdict import Verdict
from monitor.history_files.verdict_text import VerdictText
from monitor.screen import Screen
from rules.vocabulary.catalogue import CATALOGUE
from tests.monitor.history_files.cases import TORN
from tests.monitor.history_files.shorthand import events

HISTORY = (
    TORN.format(read="x 10@10 <y 15@15")
    + "0 ok send >x "
    + " ".join(f"{v}@{v}" for v in range(16, 90))
    + """
    3 ok poll <x 89@89
    only alice invoke txn >v a <
    only bob invoke txn >w b <
    only alice ok txn >v a@0 <w b@0
    only bob ok txn >w b@0 <v a@0
    7 ok subscribe v
    7 ok txn <v a@0
    7 ok txn <v a@0
    """
)

REPORT = """\
h: NOT VALID (13 operations)

  lost-write: 75 found
  A visible write lies below what readers have polled, and no ok operation
    polled it.
    key x: value 15 was acknowledged at offset 15 and never polled; readers are
      past 89
      value 15, offset 15, read to 90
    key x: value 16 was acknowledged at offset 16 and never polled; readers are
      past 89
      value 16, offset 16, read to 90
    key x: value 17 was acknowledged at offset 17 and never polled; readers are
      past 89
      value 17, offset 17, read to 90
    key x: value 18 was acknowledged at offset 18 and never polled; readers are
      past 89
      value 18, offset 18, read to 90
    key x: value 19 was acknowledged at offset 19 and never polled; readers are
      past 89
      value 19, offset 19, read to 90
    and 70 more of them (--json lists them)
"""
SUMMARY = """
h: NOT VALID (13 operations)
  wrong:              lost-write               75
                      poll-skip                 1
                      torn-transaction          1
                      G1c                       1
                      unseen                   75
  allowed:            nonmonotonic-poll         1
  noted, not judged:  rebalance                 1
"""


@pytest.fixture
def verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Verdict, int]:
    """The verdict on `HISTORY`, and its number of operations."""
    path = tmp_path / "h"
    path.write_text("".join(json.dumps(event) + "\n" for event in events(HISTORY)))
    shown: list[tuple[Verdict, int]] = []
    monkeypatch.setattr(VerdictText, "show", lambda self, called, verdict, number, of: shown.append((verdict, number)))
    assert run([path], Options()) == 1
    monkeypatch.undo()
    return shown[0]


def printed(verdict: tuple[Verdict, int], *, terminal: bool, width: int = 80, times: int = 1) -> str:
    file = io.StringIO()
    report = VerdictText(Screen(file=file, force_terminal=terminal, width=width))
    for _ in range(times):
        report.show("h", *verdict)
    return file.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_on_a_terminal_of_80_columns(verdict: tuple[Verdict, int]) -> None:
    text = printed(verdict, terminal=True)
    assert "\x1b[1;31mNOT VALID" in text
    report = plain(text)
    assert report.startswith(REPORT)
    assert report.endswith(SUMMARY)
    assert max(map(len, report.splitlines())) <= 80
    assert "seen key x value 10 offset 10" in " ".join(report.split())
    assert not re.search(r"[\[{}\]]", report)


def test_elsewhere_each_finding_is_a_line_without_color(verdict: tuple[Verdict, int]) -> None:
    text = printed(verdict, terminal=False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert "    key x: value 15 was acknowledged at offset 15 and never polled; readers are past 89" in lines
    assert f"  {CATALOGUE['lost-write'].meaning}" in lines
    assert text.split() == plain(printed(verdict, terminal=True)).split()


def test_a_name_that_no_line_can_hold_is_not_cut() -> None:
    long = "a-key-" * 30
    verdict = Verdict(anomalies={"duplicate": [{"key": long, "message": "value 1 stands at offsets 1 and 2"}]})
    assert f"\n      {long}: value 1 stands" in plain(printed((verdict, 1), terminal=True)).replace(":\n      ", ": ")


def test_what_is_valid_is_one_line() -> None:
    assert printed((Verdict(), 1234), terminal=False, times=2) == "h: valid (1,234 operations)\n" * 2


def test_what_is_only_counted_is_said() -> None:
    found = [{"key": 1, "message": f"value {v} stands at offsets 1 and 2"} for v in range(7)]
    told = Verdict(anomalies={"duplicate": found}, left_out={"duplicate": 1000}, unsearched=["duplicate"])
    text = printed((told, 1), terminal=False)
    assert "duplicate: 1,007 found" in text
    assert "and 1,002 more of them (--json lists them, but for 1,000 that are only counted)" in text
    assert "and there may be more: the search ended here" in text
    assert re.search(r"wrong: +duplicate +1,007 or more\n", text)


def test_several_histories_are_counted_in_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, lines in (("good", "0 ok send >x 1@0\n1 ok poll <x 1@0"), ("bad", "0 ok send >x 1@0"), ("broken", "")):
        (tmp_path / name).write_text("".join(json.dumps(event) + "\n" for event in events(lines)))
    assert run([tmp_path / name for name in ("good", "bad", "broken", "good")]) == 2
    assert capsys.readouterr().out.endswith("\n4 histories: 2 valid, 1 not valid, 1 could not be checked\n")


def test_what_a_history_holds_steers_no_terminal_and_forges_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = events("0 fail send >x a\n1 ok poll <x a@0")
    text = "".join(json.dumps(event) + "\n" for event in found)
    path, other = tmp_path / "h", tmp_path / "\x1b[2J"
    path.write_text(text.replace('"a"', json.dumps("\x1b[2J\nh: valid")).replace('"x"', json.dumps("\u202ex")))
    assert run([path, other], Options()) == 2
    told = capsys.readouterr()
    for shown in told.out, told.err:
        assert shown.isprintable() or not {"\x1b", "\u202e"} & set(shown)
    assert "\nh: valid" not in told.out
    assert "value \ufffd[2J\ufffdh: valid was polled" in told.out


def test_words_in_a_value_are_not_taken_for_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file's own terms are put in once: a value that reads like a partition or a transaction stays itself."""
    for value in ("partition 0", "process 1 of 1/0", "0/0"):
        path = tmp_path / "h"
        text = "".join(json.dumps(event) + "\n" for event in events("0 fail send >k a\n1 ok poll <k a@0"))
        path.write_text(text.replace('"a"', json.dumps(value)))
        assert run([path], Options(json_output=True)) == 1
        [one] = json.loads(capsys.readouterr().out)["anomalies"]["G1a"]
        assert one["message"] == f"value {value} was polled, and its write failed or its transaction aborted"


def test_half_a_character_in_a_value_leaves_json_that_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h"
    path.write_text('[{"type": "ok", "process": 0, "f": "send", "value": [["send", 0, [0, "\\ud800"]]]}]')
    assert run([path], Options(json_output=True)) == 1
    [unseen] = json.loads(capsys.readouterr().out)["anomalies"]["unseen"]
    assert unseen["first"] == [{"value": "\ud800"}]
    assert run([path], Options()) == 1
    assert "first \ufffd" in capsys.readouterr().out
