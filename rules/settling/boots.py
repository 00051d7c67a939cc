"""The boots of a host, in their order: whatever their clocks say, each was over before the next one began.

A committer numbers its appends, and goes on with the numbers in the next boot. Its marks tell the boot and the number;
so the order of a host's boots is known also where one began with a clock that is far behind the last one's.
"""

from __future__ import annotations

from typing import Final

from rules.kept.state import Host, Process, State

BOOTS_KEPT: Final = 8


def note_mark(host: Host, read: int, boot: int, at: int, number: int) -> None:
    """A host's mark says through when its journals are `read`: it was written in `boot` (-1 where it does not say), at
    a log time, with the append of this number."""
    newest = host.boots[-1][0] if host.boots else -1
    if boot >= 0:
        known = next((one for one in host.boots if one[0] == boot), None)
        if known is None:
            host.boots.append([boot, at, number])
        else:
            known[1:] = min(known[1], at), min(known[2], number)
        host.boots = sorted(host.boots, key=lambda one: one[2])[-BOOTS_KEPT:]
    if boot < 0 or boot == newest:
        host.now = max(host.now, read)
    elif host.boots[-1][0] == boot:
        host.now = read  # by the clock of this boot: the last one's may have been ahead


def boots_after(state: State, boot: int) -> set[int]:
    """The later boots of the host of this one, as far as they are known: whatever was done in them was done later, also
    where nobody knows how their clocks differ."""
    return set(_around(state, boot)[1])


def boots_before(state: State, boot: int) -> set[int]:
    """The earlier ones: all that was done in them was over when this one began."""
    return set(_around(state, boot)[0])


def boots_around(state: State, boot: int) -> list[int]:
    """The other boots of its host, as far as they are known."""
    before, after = _around(state, boot)
    return before + after


def _around(state: State, boot: int) -> tuple[list[int], list[int]]:
    """The boots of its host before and after this one."""
    for host in state.hosts.values():
        numbers = [known[0] for known in host.boots]
        if boot in numbers:
            at = numbers.index(boot)
            return numbers[:at], numbers[at + 1 :]
    return [], []


def boots_after_its(process: Process, host: Host) -> list[list[int]]:
    """The boots of its host after that of a process. One without a mark of its own boot is taken to have lived before
    those that began later by their clocks."""
    numbers = [boot for boot, *_ in host.boots]
    if process.boot in numbers:
        return host.boots[numbers.index(process.boot) + 1 :]
    return [one for one in host.boots if one[1] > process.first]
