"""Small histories, each with everything that must be found in it, to the last finding.

They cover the situations that the tests of Jepsen's Kafka workload cover (jepsen-io/jepsen, tests/kafka.clj), one after
the other, in the notation of `shorthand`, and further twins of them. What is expected of each anomaly is a list of
evidence, of which the parts that are given here must agree.
"""

from __future__ import annotations

from typing import Final

from tests.monitor.history_files import cases_of_order
from tests.monitor.history_files.case import UNTIMELY, Case, one

INFO_CONFLICT = """
    0 info send >x 1@0 >y 1
    1 ok send >x 2@0
"""

ATOMIC = """
    0 info send >x a >y b@0
    1 info send >y c
    3 ok poll <y c@1
"""

TORN = """
    0 ok send >x 9@9 >y 9@9
    1 ok assign x y
    1 ok poll <x 9@9 y 9@9
    0 ok txn >x 10@10 >y 10@10
    0 ok send >x 15@15 >y 15@15
    1 ok poll <{read}
"""

CASES: Final = (
    *cases_of_order.CASES,
    Case(
        "an offset with two values, and a value at two offsets",
        """
        0 ok txn <x a@0 b@1
        1 info txn >x c@1 b@3 d@4
        """,
        {
            "inconsistent-offsets": [{"key": "x", "offset": 1, "values": [{"value": "b"}, {"value": "c"}]}],
            "duplicate": [one("x", "b", offsets=[1, 3])],
            "lost-write": [one("x", "c", offset=1)],
            "phantom-read": [one("x", "a", offset=0)],
            "torn-transaction": [
                {
                    "key": None,
                    "transaction_index": 3,
                    "outcome": "info",
                    "seen": {"value": "b"},
                    "absent": {"value": "c"},
                }
            ],
        },
        open=UNTIMELY | {"int-poll-skip"},
    ),
    Case(
        "two acknowledged sends at one offset",
        """
        379 ok send >11 641@537
        363 ok send >11 645@537
        """,
        {"inconsistent-offsets": [{"key": 11, "offset": 537, "values": [{"value": 641}, {"value": 645}]}]},
    ),
    Case("an indefinite send may not have happened, so that it conflicts with nothing", INFO_CONFLICT),
    Case(
        "an indefinite send of which a value was polled elsewhere did happen",
        INFO_CONFLICT + "2 ok poll <y 1@5",
        {"inconsistent-offsets": [{"key": "x", "offset": 0, "values": [{"value": 1}, {"value": 2}]}]},
    ),
    Case("a failed send that was polled", "0 fail send >x 2 >y 3\n1 ok poll <x 2@0", {"G1a": [one("x", 2, offset=0)]}),
    Case("a failed send that an aborted transaction polled", "0 fail send >x 2 >y 3\n1 fail txn <x 2@0"),
    Case("an indefinite send that was polled", "0 info send >x 2 >y 3\n1 ok poll <x 2@0"),
    Case(
        "acknowledged values below the highest one polled",
        """
        0 ok send >x a@0
        0 ok send >x b@1 d@3
        1 info send >x c
        0 ok poll <x c@2
        """,
        {"lost-write": [one("x", "a", offset=0), one("x", "b", offset=1)]},
        {"int-send-skip": [{"key": "x"}]},
    ),
    Case("acknowledged values above the highest one polled", "0 ok send >x a@0 b@1 c@2\n1 ok poll <x a@0"),
    Case(
        "a value that another one overwrote",
        """
        0 ok send >x a@0
        0 ok send >x b@0 c@2
        0 ok poll <x b@0 c@2
        """,
        {
            "lost-write": [one("x", "a", offset=0)],
            "inconsistent-offsets": [{"key": "x", "offset": 0}],
        },
        open=frozenset({"nonmonotonic-send"}),
    ),
    Case("an indefinite transaction of which nothing was polled loses nothing", ATOMIC),
    Case(
        "an indefinite transaction of which a value was polled has lost the other",
        ATOMIC + "2 ok poll <x a@0",
        {"lost-write": [one("y", "b", offset=0)]},
    ),
    Case(
        "a value polled without its offset is a place to have read to, where its acknowledgement tells it",
        """
        0 ok send >x a@0 b@1
        1 ok poll <x b@
        """,
        {"lost-write": [one("x", "a")]},
    ),
    Case(
        "values whose places nothing tells conclude nothing about order",
        """
        0 ok send >x 0 1 2 3 4 5
        1 ok poll <x 0@0 1@ 2@ 3@3
        1 ok poll <x 4@ 5@
        2 ok poll <x 5@ 4@
        2 ok poll <x 0@0
        3 ok poll <x 4@ 2@
        3 ok poll <x 3@3
        3 ok poll <x 1@ <x 1@ 5@
        """,
    ),
    Case(
        "values polled without their offsets, whose places the acknowledgements tell",
        """
        0 ok send >x 0@0 1@1 2@2 3@3
        1 ok poll <x 0@ 1@
        1 ok poll <x 3@ 2@
        """,
        {
            "poll-skip": [{"key": "x", "process": 1}],
            "int-nonmonotonic-poll": [{"key": "x", "process": 1}],
        },
    ),
    Case(
        "a failed send that was polled without its offset",
        "0 fail send >x 1 2\n1 ok poll <x 1@ 2@",
        {"G1a": [one("x", 1), one("x", 2)]},
    ),
    Case(
        "a transaction that polled what it sent, without any offset",
        "0 ok txn >x 1 2 3 <x 2@ 3@",
        {"precommitted-read": [one("x", 2), one("x", 3)]},
        open=frozenset({"G1c"}),
    ),
    Case(
        "a value acknowledged at one offset and polled at another",
        """
        0 ok send >x a@1
        1 info send >x b
        2 ok poll <x b@2 a@3
        """,
        {"duplicate": [one("x", "a", offsets=[1, 3])]},
    ),
    Case(
        "many values at the same two offsets",
        "\n".join(f"0 ok send >x {v}@0\n{v + 1} ok poll <x {v}@1" for v in range(10)),
        {
            "duplicate": [one("x", v, offsets=[0, 1]) for v in range(10)],
            "inconsistent-offsets": [
                {"key": "x", "offset": offset, "values": [{"value": v} for v in range(10)]} for offset in (0, 1)
            ],
            "spurious-zero-offset": [one("x", v, known=1) for v in range(1, 10)],
        },
        open=frozenset({"nonmonotonic-send"}),
    ),
    Case(
        "a duplicate that only an aborted poll saw, and a failed send at another offset",
        """
        0 ok send >x 0@1
        0 fail send >x 1@2
        1 fail poll <x 0@11 1@12
        """,
        {"duplicate": [one("x", 0, offsets=[1, 11])]},
    ),
    Case("the same offset polled by two processes", "0 ok send >x a@1\n1 ok poll <x a@1\n2 ok poll <x a@1"),
    Case("everything was polled in the end", "0 ok poll <\n0 ok send >x a@0 b@1\n0 ok poll <x a@0\n0 ok poll <x b@1"),
    Case(
        "a transaction that polled what it sent",
        "0 ok txn >x a@0 <x a@0",
        {"precommitted-read": [one("x", "a", offset=0, process=0)]},
        open=frozenset({"G1c"}),
    ),
    Case(
        "a transaction of unknown outcome that polled what it sent",
        "0 info txn >x a@0 <x a@0",
        {"precommitted-read": [one("x", "a", offset=0, process=0)]},
        open=frozenset({"G1c"}),
    ),
    Case(
        "a transaction of one value a key, of which a reader passed one",
        TORN.format(read="x 10@10 <y 15@15"),
        {
            "torn-transaction": [
                {
                    "key": None,
                    "transaction_index": 7,
                    "outcome": "ok",
                    "seen": {"key": "x", "value": 10, "offset": 10},
                    "absent": {"key": "y", "value": 10, "offset": 10},
                    "message": "of transaction 7 (ok), value 10 was polled in key x, and value 10 is absent from offset"
                    " 10 of key y, which a reader passed",
                }
            ],
            "lost-write": [one("y", 10, offset=10)],
            "poll-skip": [{"key": "y", "process": 1, "previous_offset": 9, "offset": 15, "skipped": [{"value": 10}]}],
        },
    ),
    Case("a transaction of one value a key, of which a reader polled both", TORN.format(read="x 10@10 <y 10@10 15@15")),
    Case("a transaction of one value a key, of which a reader has not come to one", TORN.format(read="x 10@10")),
    Case(
        "a transaction of one value a key, of which a reader passed both",
        TORN.format(read="x 15@15 <y 15@15"),
        {
            "lost-write": [one("x", 10, offset=10), one("y", 10, offset=10)],
            "poll-skip": [{"key": "x", "process": 1}, {"key": "y", "process": 1}],
        },
    ),
    Case(
        "a transaction of two values in each key, of which the second of one is missing",
        """
        0 ok txn >x a@1 b@2 >y a@1 b@2
        0 ok send >x c@4
        1 ok poll <x a@1 c@4 y a@1 b@2
        """,
        {
            "torn-transaction": [
                {
                    "outcome": "ok",
                    "seen": {"key": "x", "value": "a", "offset": 1},
                    "absent": {"key": "x", "value": "b", "offset": 2},
                }
            ],
            "lost-write": [one("x", "b", offset=2)],
            "int-poll-skip": [{"key": "x", "process": 1}],
        },
    ),
    Case(
        "a transaction of two values in each key, of which the first of one is missing",
        """
        0 ok send >x 0@0
        0 ok txn >x a@1 b@2 >y a@1 b@2
        1 ok poll <x 0@0 b@2 y a@1 b@2
        """,
        {
            "torn-transaction": [
                {
                    "outcome": "ok",
                    "seen": {"key": "x", "value": "b", "offset": 2},
                    "absent": {"key": "x", "value": "a", "offset": 1},
                }
            ],
            "lost-write": [one("x", "a", offset=1)],
            "int-poll-skip": [{"key": "x", "process": 1}],
        },
    ),
    Case(
        "a reader of which nobody knows where it began has passed nothing that lies before what it told",
        """
        0 ok txn >x a@0 b@1
        0 ok send >x z
        1 ok poll <x z@ b@1
        """,
        {"lost-write": [one("x", "a", offset=0)]},
    ),
    Case(
        "readers that told no place at all have passed nothing",
        """
        0 ok txn >x a@0 b
        1 ok poll <x b@
        """,
    ),
    Case(
        "a reader that told where it was before and after has passed what lies between",
        """
        0 ok send >x s@0 t@1
        0 ok txn >x a@2 b@3
        0 ok send >x z
        1 ok poll <x s@0 z@ t@1
        1 ok poll <x b@3 z@
        """,
        {
            "lost-write": [one("x", "a", offset=2)],
            "poll-skip": [{"key": "x", "process": 1, "previous_offset": 1, "offset": 3, "skipped": [{"value": "a"}]}],
            "torn-transaction": [
                {"seen": {"value": "b", "offset": 3, "key": "x"}, "absent": {"value": "a", "offset": 2, "key": "x"}}
            ],
        },
    ),
    Case(
        "a reader that gave the partition up between has passed nothing there",
        """
        0 ok send >x s@0 t@1
        0 ok txn >x a@2 b@3
        0 ok send >x z
        1 ok poll <x s@0 z@ t@1
        1 ok assign y
        1 ok assign x
        1 ok poll <x b@3 z@
        """,
        {"lost-write": [one("x", "a", offset=2)]},
    ),
    Case(
        "values that nobody sent: below the highest one sent, of a key to which nothing was sent, and of another key",
        """
        0 ok send >x 1@0 3@1 >z 5@0
        1 ok poll <x 1@0 2@5 3@1
        1 ok poll <y 1@0
        2 info txn <y 1@0
        2 ok poll <z 5@0 text@
        """,
        {
            "phantom-read": [
                one(
                    "x",
                    2,
                    offset=5,
                    process=1,
                    index=3,
                    message="value 2 was polled at offset 5 of key x, to which nobody sent it",
                ),
                one(
                    "y",
                    1,
                    offset=0,
                    process=1,
                    index=5,
                    message="value 1 was polled at offset 0 of key y, to which nobody sent it",
                ),
                one(
                    "z",
                    "text",
                    offset=None,
                    process=2,
                    index=9,
                    message="value text was polled at an unknown offset of key z, to which nobody sent it",
                ),
            ],
        },
        open=frozenset({"int-poll-skip", "int-nonmonotonic-poll"}),
    ),
    Case(
        "values that were sent by operations of any outcome, some of which never completed",
        """
        0 fail send >x 1
        1 info send >x 2
        3 ok send >x 3@2
        4 invoke txn >x 4 <
        5 info poll <x 1@0 2@1 3@2 4@3
        """,
    ),
    Case(
        "an acknowledgement at 0 when a higher offset was known",
        "0 ok send >x a@1\n1 ok send >x b@0",
        {"spurious-zero-offset": [one("x", "b", known=1, process=1)]},
    ),
    Case(
        "an acknowledgement at 0 of a send that may have been invoked before a higher offset was known",
        "only 0 ok send >x a@1\nonly 1 ok send >x b@0",
    ),
    Case(
        "acknowledgements of sends that were open at once",
        """
        only 0 invoke send >x a
        only 1 invoke send >x b
        only 0 ok send >x a@1
        only 1 ok send >x b@0
        """,
    ),
    Case(
        "a send without invocation that its process began when a higher offset was known",
        "only 0 ok send >x a@1\nonly 1 ok send >y c@0\nonly 1 ok send >x b@0",
        {"spurious-zero-offset": [one("x", "b", known=1, process=1)]},
    ),
    Case(
        "one operation that went back to 0 knew nothing before it was invoked",
        "0 ok send >x a@0 b@1\n1 ok poll <x b@1 a@0",
        {"int-nonmonotonic-poll": [{"key": "x", "process": 1}]},
    ),
    Case(
        "two sends that each key orders otherwise",
        """
        only 0 invoke send >x a >y a
        only 1 invoke send >x b >y b
        only 0 ok send >x a@0 >y a@1
        only 1 ok send >x b@1 >y b@0
        """,
        {},
        {"G0": [{}]},
        ww=True,
    ),
    Case(
        "two transactions that see each other",
        """
        only 0 invoke txn >x a <
        only 1 invoke txn >y b <
        only 0 ok txn >x a@0 <y b@0
        only 1 ok txn >y b@0 <x a@0
        """,
        {"G1c": [{}]},
    ),
    Case(
        "a transaction that sees another one, and wrote before it",
        """
        only 0 invoke txn >x a >y c
        only 1 invoke txn < >y b
        only 0 ok txn >x a@0 >y c@2
        only 1 ok txn <x a@0 >y b@1
        """,
        {},
        {"G1c": [{}]},
        ww=True,
    ),
)
