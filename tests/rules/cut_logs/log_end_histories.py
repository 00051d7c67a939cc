"""Histories of logs that end below what was known of them (`GUILTY`, with what is told), beside ends that say nothing
(`INNOCENT`)."""

from __future__ import annotations

from typing import Any

from rules.vocabulary.objectives import SECOND
from rules.vocabulary.slices import Run
from rules.vocabulary.times import micros
from tests.rules.histories import START, History, number
from tests.rules.whole import Told


def written_again(h: History, offset: int) -> None:
    """A second after a listing, a record is given this offset; a second later the end is listed once more."""
    h.time += 1
    h.send("v", 0, 1, at=offset)
    h.time += 1
    h.observe(end=offset + 1)


def truncated(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def truncated_in_an_outage(h: History) -> None:
    """Nobody could ask for the end until three records had been written again."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.send("v", 0, 2, at=3)
    h.time += 1
    h.observe(end=6)
    h.time += 1
    h.send("v", 2, 1, at=6)
    h.time += 1
    h.observe(end=7)


def truncated_beside_a_slow_write(h: History) -> None:
    """What stands at 3 was invoked before a higher offset was known: the log need not have been cut below 6."""
    h.send("w", 0, 3, at=0)
    h.send("x", 0, 1, at=3, invoked=h.at(0.7), completed=h.at(1.5))
    h.send("w", 3, 6, at=4, invoked=h.at(0.5), completed=h.at(1))
    h.time = 2
    h.observe(end=6)
    written_again(h, 6)


def truncated_below_a_poll(h: History) -> None:
    h.poll("r", [("w", 0, 10, 0)])
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


def erased(h: History) -> None:
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=0)
    h.observe(end=0)
    written_again(h, 0)


def truncated_by_one_clock_of_two(h: History) -> None:
    """What the other host knows is more, and says nothing."""
    on_a = {"boot": "a", "mono_invoked": 10**9, "mono_completed": 2 * 10**9}
    h.send("w", 0, 10, at=0, **on_a)
    h.send("x", 0, 10, at=10, boot="b", mono_invoked=1, mono_completed=2)
    later: dict[str, Any] = {"boot": "a", "mono_invoked": 9 * 10**9, "mono_completed": 10**10}
    h.row("o", "offsets", log_start=0, log_end=4, last_stable=4, **later)
    h.send("v", 0, 1, at=5, boot="a", mono_invoked=11 * 10**9, mono_completed=12 * 10**9)
    h.row(
        "o",
        "offsets",
        log_start=0,
        log_end=6,
        last_stable=6,
        boot="a",
        mono_invoked=13 * 10**9,
        mono_completed=14 * 10**9,
    )


def died_while_it_polled(h: History, polled: int = 10) -> None:
    """Killed with a transaction open; recovery writes what its journal has. It polled some time before the close row,
    and long after the transaction began: the row itself does not tell."""
    began = h.at(h.time)
    h.time += 5
    h.row(
        "t",
        "txn",
        type="info",
        txn=1,
        error="process-died",
        invoked=began,
        completed=began,
        polled=runs_of(polled),
        mode="assign",
        isolation="read_committed",
    )
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))


def runs_of(polled: int) -> list[Run]:
    return [Run(number("w"), 0, 0, polled)]


def truncated_below_what_a_dead_process_had_polled(h: History) -> None:
    """By the time it was closed, it had."""
    died_while_it_polled(h)
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def truncated_below_what_a_dead_process_had_polled_beside_others(h: History) -> None:
    """Of another one, and of one on another host, it is not known by when they had polled more."""
    others: dict[str, dict[str, Any]] = {"u": {}, "x": {"boot": "b", "mono_invoked": 1, "mono_completed": 1}}
    for process, more in others.items():
        now = h.at(h.time)
        h.row(
            process,
            "txn",
            type="info",
            txn=2,
            error="process-died",
            invoked=now,
            completed=now,
            polled=runs_of(20),
            mode="assign",
            isolation="read_committed",
            **more,
        )
    truncated_below_what_a_dead_process_had_polled(h)


def truncated_below_an_indefinite_poll(h: History) -> None:
    """Its process lives: it had polled by the end of the operation."""
    h.poll("r", [("w", 0, 10, 0)], type="info")
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


def truncated_below_a_poll_in_no_time(h: History) -> None:
    h.row("z", "position", type="info", invoked=h.at(0), completed=h.at(0.001))
    now = h.at(h.time)
    h.poll("r", [("w", 0, 10, 0)], invoked=now, completed=now)
    h.time += 0.998
    h.observe(end=9)
    written_again(h, 9)


def never_listed_again(h: History, offset: int, end: int = 4) -> None:
    """The last listing is short, and records are given offsets from this one on. Then who observes is gone."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=end)
    h.time += 1
    h.send("v", 0, 1, at=offset)
    h.time += 1
    h.send("v", 1, 1, at=offset + 1)
    for _ in range(12):
        h.mark(1.0)


def truncated_and_never_listed_again(h: History) -> None:
    never_listed_again(h, 5)


def erased_and_never_listed_again(h: History) -> None:
    never_listed_again(h, 1, end=0)


def written_as_the_next_listing_is_made(h: History, invoked: float = 3.02) -> None:
    """The end is listed again from 3 s to 3.05 s: it has what was written meanwhile."""
    h.send("w", 0, 10, at=0)
    h.time = 1
    h.observe(end=10)
    h.time = 2
    h.observe(end=9)
    h.send("v", 0, 1, at=9, invoked=h.at(invoked), completed=h.at(invoked + 0.02))
    h.row("observer", "offsets", log_start=0, log_end=10, last_stable=10, invoked=h.at(3), completed=h.at(3.05))
    h.time = 4


def cut(end: int, known: int, again: int, where: str, *, at: float, since: float) -> Told:
    """`since`: when the offset was known first, in seconds."""
    said = (
        f"the log ends at {end}, and offset {known} was acknowledged or polled before; then offset {again} was given to"
        f" another write: what stood {where} is gone"
    )
    return Told(
        "log-truncation",
        (known,),
        said,
        {"log_end": end, "known": known, "written_again": again, "known_since": micros(START) + round(since * SECOND)},
        at,
    )


def cut_at_9(at: float, *, since: float) -> Told:
    return cut(9, 9, 9, "there", at=at, since=since)


def outlived(h: History, invoked: float) -> None:
    """The log grows past all that was known, before the write has its answer that was given offset 4 again."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=10)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 8, at=10)
    h.time += 1
    h.observe(end=18)
    for _ in range(20):
        h.mark(2)
    h.send("x", 0, 1, at=4, invoked=h.at(invoked))
    h.mark(1)


def borne_out_by_an_answer_that_came_late(h: History) -> None:
    outlived(h, 2.5)


def answered_late_and_under_way_before(h: History) -> None:
    outlived(h, 1.5)


def truncated_and_written_by_a_transaction(h: History, type: str, error: str | None = None) -> None:
    """Each of its records was acknowledged, whatever became of it."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    began = h.at(h.time)
    h.time += 0 if error else 1
    h.txn("t", sends=[("t", 0, 3, 4)], type=type, txn=1, error=error, invoked=began, completed=h.at(h.time))
    h.time += 1
    h.observe(end=8)


def written_by_an_aborted_transaction(h: History) -> None:
    truncated_and_written_by_a_transaction(h, "fail")


def written_by_an_indefinite_transaction(h: History) -> None:
    truncated_and_written_by_a_transaction(h, "info")


def written_by_a_transaction_whose_process_died(h: History) -> None:
    """Nobody knows when its records were acknowledged, and it began after the listing."""
    truncated_and_written_by_a_transaction(h, "info", "process-died")
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))


def truncated_below_an_aborted_transaction(h: History) -> None:
    h.txn("t", sends=[("t", 0, 10, 0)], type="fail", txn=1)
    h.time += 1
    h.observe(end=9)
    written_again(h, 9)


GUILTY = [
    (written_by_an_aborted_transaction, cut(4, 9, 4, "at 6 offsets", at=1.004, since=0.004)),
    (written_by_an_indefinite_transaction, cut(4, 9, 4, "at 6 offsets", at=1.004, since=0.004)),
    (written_by_a_transaction_whose_process_died, cut(4, 9, 4, "at 6 offsets", at=1.004, since=0.004)),
    (truncated_below_an_aborted_transaction, cut_at_9(1.004, since=0.004)),
    (borne_out_by_an_answer_that_came_late, cut(4, 9, 4, "at 6 offsets", at=2.006, since=0.006)),
    (truncated_below_an_indefinite_poll, cut_at_9(1.004, since=0.004)),
    (truncated_below_a_poll_in_no_time, cut_at_9(1.004, since=0.004)),
    (truncated_below_what_a_dead_process_had_polled_beside_others, cut(4, 9, 4, "at 6 offsets", at=6.01, since=5.0)),
    (truncated, cut(4, 9, 4, "at 6 offsets", at=2.006, since=0.006)),
    (truncated_in_an_outage, cut(6, 9, 3, "at 7 offsets", at=2.006, since=0.006)),
    (truncated_beside_a_slow_write, cut(6, 9, 6, "at 4 offsets", at=2.002, since=1.002)),
    (truncated_below_a_poll, cut(9, 9, 9, "there", at=1.004, since=0.004)),
    (written_as_the_next_listing_is_made, cut(9, 9, 9, "there", at=2.002, since=0.002)),
    (truncated_and_never_listed_again, cut(4, 9, 5, "at 5 offsets", at=2.006, since=0.006)),
    (erased_and_never_listed_again, cut(0, 9, 1, "at 9 offsets", at=2.006, since=0.006)),
    (erased, cut(0, 9, 0, "at 10 offsets", at=1.004, since=0.004)),
    (truncated_by_one_clock_of_two, cut(4, 9, 5, "at 5 offsets", at=0.006, since=-7.994)),
    (truncated_below_what_a_dead_process_had_polled, cut(4, 9, 4, "at 6 offsets", at=6.006, since=5.006)),
]


def listed_by_a_deposed_leader(h: History) -> None:
    """It was cut off before it could know of the last records. Its successor has them, and gives out what follows."""
    h.send("w", 0, 10, at=0)
    for _ in range(20):
        h.time += 1
        h.observe(end=4)
    written_again(h, 10)


def listed_by_a_deposed_leader_and_never_again(h: History) -> None:
    never_listed_again(h, 10)


def acknowledged_late(h: History) -> None:
    """A deposed leader listed its end; a write that had been under way by then is acknowledged below what is known."""
    early = h.at(h.time)
    h.send("w", 0, 5, at=0)
    h.send("w", 5, 4, at=6)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 1, at=5, invoked=early)
    h.time += 1
    h.observe(end=10)


def given_out_after_the_log_was_whole(h: History) -> None:
    """A wrong acknowledgement, after a listing that had all that was known: what was listed before says nothing."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.observe(end=10)
    written_again(h, 4)


def given_out_once_the_log_was_listed_whole(h: History) -> None:
    written_as_the_next_listing_is_made(h, 3.06)


def listed_before(h: History) -> None:
    """The listing was invoked before the acknowledgement came."""
    early = h.at(h.time)
    h.send("w", 0, 10, at=0)
    h.row("observer", "offsets", log_start=0, log_end=4, last_stable=4, invoked=early)
    written_again(h, 4)


def listed_by_another_host(h: History) -> None:
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    h.row(
        "o", "offsets", log_start=0, log_end=4, last_stable=4, boot="b", mono_invoked=9 * 10**9, mono_completed=10**10
    )
    h.send("v", 0, 1, at=4, boot="b", mono_invoked=11 * 10**9, mono_completed=12 * 10**9)


def acknowledged_without_idempotence(h: History) -> None:
    """Its leader alone may have had it, which is all that was promised."""
    h.start("w", writer=str(number("w")), idempotent="false")
    truncated(h)


def of_an_indefinite_write(h: History) -> None:
    h.send("w", 0, 10, at=0, type="info")
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def killed_before_it_polled(h: History) -> None:
    """The transaction began, the log's end was listed as it was, more was written, and polled: then it died."""
    h.send("w", 0, 4, at=0)
    began = h.at(h.time)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("w", 4, 6, at=4)
    h.time += 1
    h.row(
        "t",
        "txn",
        type="info",
        txn=1,
        error="_TIMED_OUT",
        invoked=began,
        completed=began,
        polled=runs_of(10),
        mode="assign",
        isolation="read_committed",
    )
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))
    h.time += 1
    h.observe(end=10)


def acknowledged_below_the_end(h: History) -> None:
    """A wrong acknowledgement, but not where the log may have been cut."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("v", 0, 2, at=1)
    h.time += 1
    h.observe(end=4)


def acknowledged_across_the_end_of_a_whole_log(h: History) -> None:
    h.send("w", 0, 5, at=0)
    h.time += 1
    h.observe(end=5)
    h.time += 1
    h.send("v", 0, 3, at=4)
    h.time += 1
    h.observe(end=7)


def written_by_another_host(h: History) -> None:
    """Its clock is its own: nobody knows whether it wrote after the listing."""
    h.send("w", 0, 10, at=0, boot="a", mono_invoked=10**9, mono_completed=2 * 10**9)
    h.row(
        "o",
        "offsets",
        log_start=0,
        log_end=4,
        last_stable=4,
        boot="a",
        mono_invoked=3 * 10**9,
        mono_completed=4 * 10**9,
    )
    h.send("v", 0, 1, at=4, boot="b", mono_invoked=5 * 10**9, mono_completed=6 * 10**9)
    for boot in ("b", "a"):
        h.row(
            "o",
            "offsets",
            log_start=0,
            log_end=5,
            last_stable=5,
            boot=boot,
            mono_invoked=7 * 10**9,
            mono_completed=8 * 10**9,
        )


def empty_with_one_record(h: History) -> None:
    """Offset 0 was known, and none above it."""
    h.send("w", 0, 1, at=0)
    h.time += 1
    h.observe(end=0)
    h.time += 1
    h.observe(end=1)


def lost_with_its_host(h: History) -> None:
    """Nobody knows when it polled what it had polled: it has no close row."""
    h.row(
        "t", "txn", type="info", txn=1, error="host-lost", polled=runs_of(10), mode="assign", isolation="read_committed"
    )
    h.time += 1
    h.observe(end=4)
    written_again(h, 4)


def acknowledged_to_a_transaction_whose_process_died(h: History) -> None:
    """Its row does not tell when: it was listed as it was, and then written."""
    h.send("w", 0, 4, at=0)
    began = h.at(h.time)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.send("w", 4, 1, at=4)
    h.txn("t", sends=[("t", 0, 6, 5)], type="info", txn=1, error="process-died", invoked=began, completed=began)
    h.row("t", "close", type="info", error="process-died", invoked=h.at(h.time), completed=h.at(h.time))
    h.time += 1
    h.observe(end=11)


def written_by_a_transaction_that_was_under_way(h: History) -> None:
    """A deposed leader listed the end that it knew; the transaction had its offsets by then, or has them since."""
    early = h.at(h.time)
    h.send("w", 0, 4, at=0)
    h.send("w", 4, 4, at=6)
    h.time += 1
    h.observe(end=4)
    h.time += 1
    h.txn("t", sends=[("t", 0, 2, 4)], type="fail", txn=1, invoked=early)
    h.time += 1
    h.observe(end=10)


def of_an_indefinite_transaction_without_offsets(h: History) -> None:
    h.txn("t", sends=[("t", 0, 10, None)], type="info", txn=1)
    h.time += 1
    h.observe(end=0)
    written_again(h, 0)


def listed_in_vain(h: History) -> None:
    """The request failed, whatever it told."""
    h.send("w", 0, 10, at=0)
    h.time += 1
    h.row("observer", "offsets", type="fail", log_start=0, log_end=4, last_stable=4)
    written_again(h, 4)
    h.observe(end=10)


def listed_as_zero(h: History, first: int = 10) -> None:
    h.send("w", 0, 10, at=0)
    h.observe(end=first)
    h.time += 1
    h.observe(end=0)
    h.observe(end=10)


INNOCENT = [
    answered_late_and_under_way_before,
    acknowledged_below_the_end,
    acknowledged_across_the_end_of_a_whole_log,
    written_by_another_host,
    empty_with_one_record,
    listed_in_vain,
    acknowledged_to_a_transaction_whose_process_died,
    written_by_a_transaction_that_was_under_way,
    of_an_indefinite_transaction_without_offsets,
    listed_by_a_deposed_leader,
    listed_by_a_deposed_leader_and_never_again,
    acknowledged_late,
    given_out_after_the_log_was_whole,
    given_out_once_the_log_was_listed_whole,
    listed_before,
    listed_by_another_host,
    acknowledged_without_idempotence,
    of_an_indefinite_write,
    killed_before_it_polled,
    lost_with_its_host,
]
