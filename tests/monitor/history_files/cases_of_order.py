"""Small histories about order: what polls and sends skip, and where they go back, between operations and within one."""

from __future__ import annotations

from typing import Final

from tests.monitor.history_files.case import UNTIMELY, Case, one

SKIPPING = """
    0 ok poll <x a@1 b@2
    1 ok poll <x c@3
    {first}
    0 ok poll <x d@4
    {second}
    2 ok send >x f@6
    0 ok poll <x g@7
    3 info send >x a b c d g
"""
SKIP_C = {"key": "x", "process": 0, "offset": 4, "previous_offset": 2, "skipped": [{"value": "c"}]}
SKIP_F = {"key": "x", "process": 0, "offset": 7, "previous_offset": 4, "skipped": [{"value": "f"}]}
F_LOST = [one("x", "f", offset=6)]
SENT_AROUND_F = {"int-send-skip": [{"key": "x", "process": 3}]}
"""The operation of process 3 sent d and g, and another's f stands between them."""

SIX_SENT = "0 ok send >x 0@0 1@1 2@2 3@3 4@4 5@5\n1 ok txn <x 0@0\n1 fail txn <x 1@1 2@2\n"

BACK = """
    0 ok send >x a b c d
    0 ok poll <x a@1 b@2 c@3
    {between}
    0 ok poll <x b@2 c@3 d@4
"""
WENT_BACK = {"key": "x", "process": 0, "previous_offset": 3, "offset": 2}

SENT_BACK = """
    0 ok send >x c@3 d@4
    {between}
    0 ok send >x a@1 b@2
"""

CASES: Final = (
    Case(
        "polls that skip what others have seen, but no holes",
        SKIPPING.format(first="", second=""),
        {"poll-skip": [SKIP_C, SKIP_F], "lost-write": F_LOST, "vanished-record": [one("x", "c", offset=3)]},
        SENT_AROUND_F,
        open=UNTIMELY,
    ),
    Case(
        "a process that gave the partition up skips nothing",
        SKIPPING.format(first="0 ok subscribe y", second="0 info assign y"),
        {"lost-write": F_LOST},
        SENT_AROUND_F,
        open=UNTIMELY,
    ),
    Case(
        "a failed assignment gives nothing up",
        SKIPPING.format(first="0 fail assign y", second="0 fail subscribe y"),
        {"poll-skip": [SKIP_C, SKIP_F], "lost-write": F_LOST, "vanished-record": [one("x", "c", offset=3)]},
        SENT_AROUND_F,
        open=UNTIMELY,
    ),
    Case(
        "a process that keeps the partition skips; by subscription that is allowed",
        SKIPPING.format(first="0 ok subscribe x y", second="0 ok assign x y"),
        {"poll-skip": [SKIP_F], "lost-write": F_LOST},
        {"poll-skip": [SKIP_C]} | SENT_AROUND_F,
        open=UNTIMELY,
    ),
    Case(
        "aborted and indefinite transactions that rewind",
        """
        0 ok send >x 0@0 1@1 2@2
        1 ok txn <x 0@0
        1 fail txn <x 1@1 2@2
        1 info txn <x 1@1 2@2
        1 ok txn <x 1@1 2@2
        """,
    ),
    Case(
        "aborted transactions that do not rewind",
        SIX_SENT + "1 fail txn <x 3@3 4@4\n1 ok txn <x 5@5",
        {
            "poll-skip": [
                {"key": "x", "previous_offset": 0, "offset": 3, "skipped": [{"value": 1}, {"value": 2}]},
                {"key": "x", "previous_offset": 0, "offset": 5, "skipped": [{"value": v} for v in (1, 2, 3, 4)]},
            ],
            "lost-write": [one("x", v) for v in (1, 2, 3, 4)],
        },
    ),
    Case(
        "an indefinite transaction after an aborted one, without rewinding",
        SIX_SENT + "1 info txn <x 3@3 4@4",
        {"poll-skip": [{"key": "x", "previous_offset": 0, "offset": 3, "skipped": [{"value": 1}, {"value": 2}]}]},
    ),
    Case("a poll that goes back", BACK.format(between=""), {"nonmonotonic-poll": [WENT_BACK]}),
    Case("a poll that goes back after the partition was given up", BACK.format(between="0 ok subscribe y")),
    Case("a poll that goes back after another assignment", BACK.format(between="0 ok assign y")),
    Case("a poll that goes back after seeking to the beginning", BACK.format(between="0 ok assign x rewind")),
    Case(
        "a poll that goes back although the partition was kept",
        BACK.format(between="0 ok assign x y"),
        {"nonmonotonic-poll": [WENT_BACK]},
    ),
    Case(
        "a poll that goes back in a subscription that kept the partition",
        BACK.format(between="0 ok subscribe x y"),
        {},
        {"nonmonotonic-poll": [WENT_BACK]},
    ),
    Case("a process that starts over after a crash", BACK.format(between="0 info crash")),
    Case("sends that go back", SENT_BACK.format(between=""), {"nonmonotonic-send": [{"key": "x"}]}),
    Case(
        "sends that go back after the partition was given up",
        SENT_BACK.format(between="0 ok subscribe y"),
        {"nonmonotonic-send": [{"key": "x"}]},  # what a process reads says nothing about where it writes
    ),
    Case(
        "sends that go back after an indefinite assignment",
        SENT_BACK.format(between="0 info assign y"),
        {"nonmonotonic-send": [{"key": "x"}]},
    ),
    Case(
        "sends that go back in a subscription that kept the partition",
        SENT_BACK.format(between="0 ok subscribe x y"),
        {"nonmonotonic-send": [{"key": "x"}]},
    ),
    Case(
        "sends that go back although the partition was kept",
        SENT_BACK.format(between="0 ok assign x y"),
        {"nonmonotonic-send": [{"key": "x"}]},
    ),
    Case(
        "skips within operations",
        """
        1 info send >x a b d
        0 ok poll <x a@1 d@4
        2 ok poll <x a@1 <x d@4
        3 ok poll <x b@2
        """,
        {
            "int-poll-skip": [{"key": "x", "process": 0}, {"key": "x", "process": 2}],
            "late-record": [one("x", "b", offset=2)],
        },
        {"int-send-skip": []},
    ),
    Case(
        "skips within operations whose partition was rebalanced",
        """
        1 info send >x a b d
        0 ok poll <x a@1 d@4 rebalance x
        3 ok poll <x b@2
        """,
    ),
    Case(
        "sends of one operation with another's between them",
        """
        0 ok send >x a@1 c
        1 info send >x b
        2 ok poll <x b@2 c@3
        """,
        {"lost-write": [one("x", "a", offset=1)]},
        {"int-send-skip": [{"key": "x", "process": 0}]},
    ),
    Case(
        "going back within operations",
        """
        0 info send >x a b c
        1 ok poll <x c@3 a@1
        2 ok poll <x b@2 c@3 <x c@3
        """,
        {"int-nonmonotonic-poll": [{"key": "x", "process": 1}, {"key": "x", "process": 2}]},
    ),
    Case(
        "sends of one operation in the wrong order",
        """
        0 ok send >x c@3 a@1
        0 info send >y d b
        1 info send >y c
        0 ok poll <y b@2 c@3 d@4
        """,
        {"int-nonmonotonic-send": [{"key": "x", "process": 0}, {"key": "y", "process": 0}]},
    ),
)
