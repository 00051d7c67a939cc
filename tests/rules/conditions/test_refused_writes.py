"""`refused-writes`: a writer whose operations all come back with an error, beside those that write now and then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rules.vocabulary.times import micros
from tests.rules.conditions.liveness_of import at_once, row_by_row
from tests.rules.conditions.test_stuck_writers import born
from tests.rules.histories import START, History, Store, number
from tests.rules.whole import Told, in_any_way, live, whole

W1 = "writer-1 of run run"

Fed = Callable[[History], Store]
NAME = "refused-writes"
DENIED = "TOPIC_AUTHORIZATION_FAILED"


def goes_on(h: History, seconds: int, process: str = "w", *, error: str | None = None, first: int = 0) -> None:
    """A send a second: acknowledged, or refused, which leaves unknown what became of an earlier attempt."""
    for i in range(first, first + seconds):
        if error is None:
            h.send(process, i, 1, at=i)
        else:
            h.send(process, i, 1, type="info", error=error)
        h.mark(1.0)


def at(second: float) -> int:
    """Microseconds of log time."""
    return micros(START) + round(second * 1e6)


def refused(h: History) -> None:
    """It writes for three seconds, and is refused from then on."""
    born(h, "w", "writer-1")
    goes_on(h, 3)
    goes_on(h, 35, error=DENIED, first=3)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_a_writer_that_is_refused_and_writes_again(fed: Fed) -> None:
    """Where it is known first that it writes again, it is over, and nobody is told."""
    h = History()
    refused(h)
    goes_on(h, 3, first=38)
    opened, closed = whole(fed(h), [NAME])
    assert (opened.event, opened.subject, opened.message) == (
        "opened",
        (W1,),
        f"the cluster refuses what {W1} sends, with {DENIED} for 30 s",
    )
    evidence = {"process": number("w"), "writer": W1, "error": DENIED, "acknowledged": at(2.012), "since": at(3.016)}
    assert (opened.evidence, opened.at, opened.decidable) == (evidence, 33.136, 33.016)
    assert closed == Told(
        NAME,
        (W1,),
        f"{NAME} ended after 5.1 s",
        {"writer": W1, "lasted_s": 5.14},
        38.156,
        None,
        "closed",
        {},
        None,
    )


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
@pytest.mark.parametrize("both", [True, False])
def test_what_is_wrong_with_one_record_is_told_and_not_that_others_came_with_it(both: bool, fed: Fed) -> None:
    h = History()
    born(h, "w", "writer-1")
    for i in range(40):
        error = "INVALID_TIMESTAMP" if both and i % 3 == 1 else "INVALID_RECORD"
        h.send("w", i, 1, type="info", error=error)
        h.mark(1.0)
    (opened,) = whole(fed(h), [NAME])
    assert opened.evidence["error"] == ("INVALID_TIMESTAMP" if both else "INVALID_RECORD")


def never_wrote(h: History) -> None:
    born(h, "w", "writer-1")
    goes_on(h, 35, error=DENIED)


def by_a_broker_that_cannot_append(h: History) -> None:
    born(h, "w", "writer-1")
    goes_on(h, 3)
    goes_on(h, 35, error="UNKNOWN", first=3)


def certainly_not(h: History) -> None:
    """Nothing had left the client."""
    born(h, "w", "writer-1")
    for i in range(35):
        h.send("w", i, 1, type="fail", error=DENIED)
        h.mark(1.0)


def transactions(h: History) -> None:
    """One may not be written, so that the client ends the whole transaction with an error of its own."""
    born(h, "w", "writer-1")
    for i in range(35):
        error = "MSG_SIZE_TOO_LARGE" if i % 2 or not i else "_STATE"
        h.txn("w", sends=[("w", i, 1, None)], txn=i, type="fail", error=error)
        h.mark(1.0)


def lives(h: History) -> None:
    """Each gives up when it is refused, and another begins."""
    for life in range(8):
        born(h, f"w{life}", "writer-1")
        goes_on(h, 4, f"w{life}", error=DENIED)
        h.row(f"w{life}", "close", type="info", error=DENIED)
        h.mark(1.0)


def unanswered_between(h: History) -> None:
    """Some time out, the others are refused: it is refused whatever gets an answer."""
    born(h, "w", "writer-1")
    for i in range(36):
        silent = i % 3 == 1
        h.send("w", i, 1, type="info", error="_MSG_TIMED_OUT" if silent else DENIED)
        h.mark(1.0)


def unanswered(h: History) -> None:
    """Nobody says no: it is stuck."""
    born(h, "w", "writer-1")
    goes_on(h, 35, error="_MSG_TIMED_OUT")


TAKEN = "_REVOKE_PARTITIONS"
NO_ID = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def begins(h: History, life: str, *, error: str | None = None) -> None:
    """A transactional producer asks for its producer id, which is told in every partition; without one it ends."""
    born(h, life, "writer-1")
    h.row(life, "init", type="ok" if error is None else "info", error=error)
    if error is not None:
        h.row(life, "close", type="info", error=error)


def never_begins(h: History) -> None:
    """It is refused its producer id, life after life: it never sends anything, here or elsewhere."""
    for life in range(9):
        begins(h, f"w{life}", error=NO_ID)
        for _ in range(4):
            h.mark(1.0)


def begins_no_more(h: History) -> None:
    begins(h, "w")
    goes_on(h, 5)
    h.txn("w", sends=[("w", 5, 1, None)], txn=1, type="info", error=NO_ID)
    h.row("w", "close", type="info", error=NO_ID)
    never_begins(h)


def one_of_two(h: History) -> None:
    """Another one writes all the while."""
    born(h, "v", "writer-2")
    born(h, "w", "writer-1")
    for i in range(35):
        h.send("v", i, 1, at=i)
        h.send("w", i, 1, type="fail", error=DENIED)
        h.mark(1.0)


def seldom(h: History) -> None:
    """It tries once a minute."""
    born(h, "w", "writer-1")
    for i in range(3):
        goes_on(h, 1, error=DENIED, first=i)
        for _ in range(60):
            h.mark(1.0)


def after_rebalances(h: History) -> None:
    """What took its partitions is forgotten over what refuses it."""
    born(h, "w", "writer-1")
    for i in range(40):
        h.txn("w", sends=[("w", i, 1, None)], txn=i, type="fail", error=TAKEN if i < 3 else DENIED)
        h.mark(1.0)


def fenced(h: History, *, after: float, timeout: str | None = "1000") -> None:
    """Each of its lives is fenced in its second transaction, so long after that had begun."""
    for life in range(12):
        begins(h, f"w{life}")
        born(h, f"w{life}", "writer-1", **({} if timeout is None else {"transaction.timeout.ms": timeout}))
        invoked = h.at(h.time)
        h.time += after
        h.txn(f"w{life}", sends=[("w", life, 1, None)], txn=life, type="info", error="_FENCED", invoked=invoked)
        h.row(f"w{life}", "close", type="info", error="_FENCED")
        h.mark(4.0 - after)


def fenced_at_once(h: History) -> None:
    """Somebody else begins as the same transactional id, again and again."""
    fenced(h, after=0.9)


def fenced_before_its_time(h: History) -> None:
    fenced(h, after=1.1, timeout="60000")


def fenced_with_a_timeout_that_is_not_known(h: History) -> None:
    fenced(h, after=1.1, timeout=None)


@pytest.mark.parametrize(
    "build",
    [
        fenced_at_once,
        fenced_before_its_time,
        fenced_with_a_timeout_that_is_not_known,
        never_wrote,
        by_a_broker_that_cannot_append,
        certainly_not,
        transactions,
        lives,
        unanswered_between,
        one_of_two,
        never_begins,
        begins_no_more,
        seldom,
        after_rebalances,
    ],
)
@in_any_way(file=False)
def test_a_writer_that_is_refused(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    (opened,) = whole(fed(h), [NAME])
    assert (opened.event, opened.subject) == ("opened", (W1,))
    assert opened.evidence["error"] in (DENIED, "MSG_SIZE_TOO_LARGE", NO_ID, "UNKNOWN", "_FENCED")


def for_less_than_the_objective(h: History) -> None:
    born(h, "w", "writer-1")
    goes_on(h, 28, error=DENIED)
    goes_on(h, 20, first=28)


def now_and_then(h: History) -> None:
    born(h, "w", "writer-1")
    for i in range(0, 60, 4):
        goes_on(h, 3, error=DENIED, first=i)
        goes_on(h, 1, first=i + 3)


def aborts_on_purpose(h: History) -> None:
    born(h, "w", "writer-1")
    for i in range(40):
        h.txn("w", sends=[("w", i, 1, i)], txn=i, type="fail")
        h.mark(1.0)


def aborts_once_on_purpose(h: History) -> None:
    """An abort that was asked for and done is an answer that refuses nothing."""
    born(h, "w", "writer-1")
    goes_on(h, 20, error=DENIED)
    h.txn("w", sends=[("w", 20, 1, 20)], txn=1, type="fail")
    goes_on(h, 20, error=DENIED, first=21)


def the_topic_is_gone(h: History) -> None:
    born(h, "w", "writer-1")
    goes_on(h, 20, error="UNKNOWN_TOPIC_OR_PART")
    for i in range(20, 60):
        h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        goes_on(h, 1, error="UNKNOWN_TOPIC_OR_PART", first=i)


def the_topic_was_said_to_be_gone(h: History) -> None:
    """Once; the observer's questions take long."""
    born(h, "w", "writer-1")
    h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    goes_on(h, 60, error="UNKNOWN_TOPIC_OR_PART")


def once_and_once(h: History) -> None:
    """Refused once; that nothing was sent for long afterwards says nothing."""
    born(h, "w", "writer-1")
    goes_on(h, 1, error=DENIED)
    for _ in range(60):
        h.mark(1.0)


def sends_elsewhere(h: History) -> None:
    """It is refused its producer id, and would not have sent here."""
    for life in range(9):
        born(h, f"w{life}", "writer-1", sends_to="another topic")
        h.row(f"w{life}", "init", type="info", error=NO_ID)
        h.row(f"w{life}", "close", type="info", error=NO_ID)
        for _ in range(4):
            h.mark(1.0)


def is_rebalanced_all_the_time(h: History) -> None:
    """Its group takes its partitions away, transaction after transaction: no broker has refused a thing."""
    born(h, "w", "writer-1")
    for i in range(40):
        h.txn("w", sends=[("w", i, 1, None)], txn=i, type="fail", error=TAKEN)
        h.mark(1.0)


def whose_transactions_time_out(h: History) -> None:
    """They are open for longer than their timeout, as on a machine that is starved: the coordinator ends them."""
    fenced(h, after=1.0)


def twice_in_twelve_minutes(h: History) -> None:
    """In between it had nothing to send here: others of its group had the partition."""
    born(h, "w", "writer-1")
    goes_on(h, 3)
    for i in (3, 4):
        goes_on(h, 1, error=DENIED, first=i)
        for _ in range(720):
            h.mark(1.0)


@pytest.mark.parametrize(
    "build",
    [
        is_rebalanced_all_the_time,
        whose_transactions_time_out,
        twice_in_twelve_minutes,
        for_less_than_the_objective,
        now_and_then,
        aborts_on_purpose,
        aborts_once_on_purpose,
        the_topic_is_gone,
        the_topic_was_said_to_be_gone,
        once_and_once,
        unanswered,
        sends_elsewhere,
    ],
)
@in_any_way()
def test_a_writer_that_is_fine(build: Callable[[History], None], fed: Fed) -> None:
    h = History()
    build(h)
    assert whole(fed(h), [NAME]) == []


@in_any_way(file=False)
def test_it_ends_where_nobody_bears_the_name_any_more(fed: Fed) -> None:
    h = History()
    refused(h)
    h.row("w", "close")
    for _ in range(140):
        h.mark(1.0)
    _, closed = whole(fed(h), [NAME])
    assert (closed.event, closed.evidence["writer"]) == ("closed", W1)
    assert closed.at == pytest.approx(157, abs=0.5)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_it_goes_on_while_clients_wait_before_they_begin_anew(fed: Fed) -> None:
    """What is refused again and again waits half a minute and more between two tries."""
    h = History()
    for life in range(6):
        begins(h, f"w{life}", error=NO_ID)
        for _ in range(45):
            h.mark(1.0)
    (opened,) = whole(fed(h), [NAME])
    assert opened.event == "opened"


def test_it_ends_where_the_partition_is_not_there() -> None:
    h = History()
    refused(h)
    h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
    h.mark(1.0)
    h.mark(1.0)
    assert [one.event for one in whole(row_by_row(h), [NAME])] == ["opened", "closed"]


@in_any_way(file=False)
def test_one_that_is_refused_is_not_stuck(fed: Fed) -> None:
    h = History()
    refused(h)
    assert whole(fed(h), ["stuck-producer"]) == []


def _does_not_begin_now_and_then(h: History) -> None:
    """What it sends in between goes elsewhere."""
    for life in range(0, 8, 2):
        begins(h, f"w{life}", error=NO_ID)
        h.mark(1.0)
        begins(h, f"w{life + 1}")
        for _ in range(20):
            h.mark(1.0)
        h.row(f"w{life + 1}", "close")


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_one_that_got_a_producer_id_in_between_was_not_refused_all_the_time(fed: Fed) -> None:
    h = History()
    _does_not_begin_now_and_then(h)
    assert whole(fed(h), [NAME]) == []


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_nor_one_whose_transaction_was_refused_before_that(fed: Fed) -> None:
    h = History()
    begins(h, "w")
    h.txn("w", sends=[("w", 0, 1, None)], txn=1, type="info", error=DENIED)
    h.row("w", "close", type="info", error=DENIED)
    _does_not_begin_now_and_then(h)
    assert whole(fed(h), [NAME]) == []


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_one_that_gets_no_answer_instead_of_a_producer_id_is_stuck(fed: Fed) -> None:
    """A new life every ten seconds: none lasts for as long as the objective."""
    h = History()
    for life in range(4):
        born(h, f"w{life}", "writer-1")
        invoked = h.at(h.time)
        h.row(f"w{life}", "init", type="info", error="_TIMED_OUT", invoked=invoked, completed=h.at(h.time + 10))
        h.time += 10
        h.row(f"w{life}", "close", type="info", error="_TIMED_OUT")
        h.mark(1.0)
    (opened,) = whole(fed(h), ["stuck-producer"])
    assert (opened.event, opened.subject, opened.evidence["answered"]) == ("opened", (W1,), -1)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_a_producer_that_gets_its_id_again_is_refused_no_more(fed: Fed) -> None:
    h = History()
    never_begins(h)
    begins(h, "w")
    for _ in range(5):
        h.mark(1.0)
    told = whole(fed(h), [NAME])
    assert [(one.event, one.subject) for one in told] == [
        ("opened", (W1,)),
        ("closed", (W1,)),
    ]
    assert told[1].at == pytest.approx(36, abs=0.5)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_of_two_that_are_refused_each_is_told_with_what_is_its_own(fed: Fed) -> None:
    h = History()
    for process, name in (("v", "writer-2"), ("w", "writer-1")):
        born(h, process, name)
    goes_on(h, 3)
    began = h.time
    for i in range(33):
        h.send("v", i, 1, type="fail", error="MSG_SIZE_TOO_LARGE")
        h.send("w", 3 + i, 1, type="fail", error=DENIED)
        h.mark(1.0)
    told = [(one.subject, one.evidence) for one in whole(fed(h), [NAME])]
    two = "writer-2 of run run"
    heard = {"process": number("v"), "writer": two, "error": "MSG_SIZE_TOO_LARGE", "acknowledged": -1}
    denied = {"process": number("w"), "writer": W1, "error": DENIED, "acknowledged": at(began - 1.002)}
    assert told == [
        ((two,), {**heard, "since": at(began + 0.002)}),
        ((W1,), {**denied, "since": at(began + 0.004)}),
    ]


@pytest.mark.parametrize("first", ["MSG_SIZE_TOO_LARGE", "_STATE"])
def test_what_the_client_says_after_a_refusal_counts_and_is_none_without_one(first: str) -> None:
    h = History()
    born(h, "w", "writer-1")
    for i in range(35):
        h.txn("w", sends=[("w", i, 1, None)], txn=i, type="fail", error="_STATE" if i else first)
        h.mark(1.0)
    told = [one.evidence["error"] for one in whole(live(row_by_row)(h), [NAME])]
    assert told == ([first] if first != "_STATE" else [])


@pytest.mark.parametrize("error", ["INVALID_REQUIRED_ACKS", "_UNKNOWN_TOPIC", "_FENCED"])
def test_an_error_that_is_not_known_or_that_a_broker_told_is_a_refusal(error: str) -> None:
    h = History()
    born(h, "w", "writer-1")
    for i in range(35):
        h.send("w", i, 1, type="fail", error=error)
        h.mark(1.0)
    assert [one.evidence["error"] for one in whole(live(row_by_row)(h), [NAME])] == [error]


def gets_its_id(h: History, lives: int = 4, first: int = 0) -> None:
    """Lives that get their producer id, and whose first transaction is refused; another writer does not get its own."""
    for life in range(first, first + lives):
        begins(h, f"w{life}")
        h.txn(f"w{life}", sends=[(f"w{life}", life, 1, None)], txn=life, type="info", error=DENIED)
        h.row(f"w{life}", "close", type="info", error=DENIED)
        born(h, f"v{life}", "writer-2")
        h.row(f"v{life}", "init", type="info", error=NO_ID)
        h.row(f"v{life}", "close", type="info", error=NO_ID)
        for _ in range(11):
            h.mark(1.0)


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_who_gets_a_producer_id_and_may_not_send_is_refused_all_the_time(fed: Fed) -> None:
    h = History()
    gets_its_id(h)
    told = [(one.event, one.subject) for one in whole(fed(h), [NAME])]
    assert told == [("opened", (W1,)), ("opened", ("writer-2 of run run",))]


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_nor_is_it_over_when_a_later_life_does_not_get_one_at_first(fed: Fed) -> None:
    h = History()
    gets_its_id(h)
    for life, error in (("w7", NO_ID), ("w8", None), ("w9", NO_ID), ("w10", None)):
        begins(h, life, error=error)
        for _ in range(3):
            h.mark(1.0)
    told = [(one.event, one.subject) for one in whole(fed(h), [NAME]) if one.subject == (W1,)]
    assert told == [("opened", (W1,))]


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_that_others_get_a_producer_id_says_nothing_of_one_that_does_not(fed: Fed) -> None:
    h = History()
    for life in range(9):
        begins(h, f"w{life}", error=NO_ID)
        born(h, f"v{life}", "writer-2")
        h.row(f"v{life}", "init")
        for _ in range(4):
            h.mark(1.0)
    assert [(one.event, one.subject) for one in whole(fed(h), [NAME])] == [("opened", (W1,))]


def test_a_refusal_from_before_it_wrote_counts_no_more_whenever_it_is_known() -> None:
    h = History()
    born(h, "w", "writer-1")
    late = h.send("w", 0, 1, type="fail", error=DENIED)
    h.send("w", 1, 1, at=1)
    for _ in range(45):
        h.mark(1.0)
    before = len(h.rows)
    h.send("w", 2, 1, type="fail", error=DENIED)
    for _ in range(3):
        h.mark(1.0)
    store = Store()
    store.feed([row for row in h.rows[:before] if row is not late])
    store.feed([late, *h.rows[before:]])
    assert whole(store, [NAME]) == []


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
@pytest.mark.parametrize("again", [True, False], ids=["said again and again", "said once"])
def test_where_there_is_no_partition_nobody_is_refused_a_producer_id(again: bool, fed: Fed) -> None:
    h = History()
    for life in range(9):
        if again or not life:
            h.row("observer", "offsets", type="info", error="UNKNOWN_TOPIC_OR_PART")
        begins(h, f"w{life}", error=NO_ID)
        for _ in range(4):
            h.mark(1.0)
    assert whole(fed(h), [NAME]) == []


@pytest.mark.parametrize("fed", [live(row_by_row), live(at_once)])
def test_it_ends_where_the_next_life_has_nothing_to_send_here(fed: Fed) -> None:
    """Somebody else took its transactional id again and again. The member of the group that it is goes on, and was
    given other partitions."""
    h = History()
    for life in range(5):
        begins(h, f"w{life}")
        h.txn(f"w{life}", sends=[(f"w{life}", 99, 1, None)], txn=life, type="info", error="_FENCED")
        h.row(f"w{life}", "close", type="info", error="_FENCED")
        refused_last = h.time
        for _ in range(9):
            h.mark(1.0)
    begins(h, "w")
    for _ in range(150):
        h.mark(1.0)
    opened, closed = whole(fed(h), [NAME])
    assert (opened.event, closed.event) == ("opened", "closed")
    assert closed.at == pytest.approx(refused_last + 120, abs=0.1)


@pytest.mark.parametrize("tries", [True, False], ids=["it tries once more", "it does not"])
def test_it_lasts_for_as_long_as_somebody_bears_the_name_and_two_minutes_after(tries: bool) -> None:
    """Whoever was told of is refused still when it tries again after minutes, and where its client says no more than
    that it may not go on."""
    h = History()
    refused(h)
    refused_last = h.time
    for _ in range(140):
        h.mark(1.0)
    assert [one.event for one in whole(row_by_row(h), [NAME])] == ["opened"]
    if tries:
        refused_last = h.time + 1
        h.txn("w", sends=[("w", 99, 1, None)], txn=1, type="fail", error="_STATE")
    h.row("w", "close", type="info", error="_STATE")
    for _ in range(130):
        h.mark(1.0)
    _, closed = whole(row_by_row(h), [NAME])
    assert closed.event == "closed"
    assert closed.at == pytest.approx(refused_last - 1 + 120, abs=0.1)
