"""An append as messages, and back: in parts, between others', twice, without its beginning; and what is not ours."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from probes.log.evidence import messages
from probes.log.evidence.messages import Append, Assembly, Newer, NotOurs, packed
from rules.vocabulary.slices import SLICE_SCHEMA, Run, Slice, to_table
from tests.probes.log.lives import BEGIN


def rows(count: int, process: int = 1) -> pa.Table:
    return to_table(
        Slice(
            cluster="c",
            topic_id="t",
            topic="probe",
            partition=0,
            run="run",
            process=process,
            op=n,
            slice=n,
            f="send",
            type="ok",
            invoked=BEGIN,
            completed=BEGIN,
            sent=(Run(process, n * 7919, n, 3),),
        )
        for n in range(count)
    )


def taken(assembly: Assembly, told: list[tuple[int, list[tuple[str, bytes]], memoryview]]) -> list[Append]:
    found = [assembly.take(offset, headers, bytes(value)) for offset, headers, value in told]
    return [one for one in found if one is not None]


def numbered(first: int, of: pa.Table, app: str, version: int) -> list[tuple[int, list[tuple[str, bytes]], memoryview]]:
    return [(first + n, headers, value) for n, (headers, value) in enumerate(packed(of, app, version))]


def test_an_append_comes_back_as_it_was() -> None:
    (told,) = [numbered(7, rows(3), "a", 1)]
    (found,) = taken(Assembly(), told)
    assert (found.app, found.version, found.first) == ("a", 1, 7)
    assert found.rows.equals(rows(3)) and found.rows.schema.equals(SLICE_SCHEMA)


def test_parts_of_two_hosts_stand_between_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PART_BYTES", 500)
    one, other = numbered(0, rows(40, 1), "a", 5), numbered(1, rows(40, 2), "b", 9)
    assert min(len(one), len(other)) > 2
    mixed = [part for pair in zip(one, other, strict=False) for part in pair]
    rest = [*one, *other][len(mixed) :] if len(one) != len(other) else []
    assembly = Assembly()
    assert taken(assembly, mixed[:2]) == [] and assembly.first == 0
    found = taken(assembly, [*mixed[2:], *rest])
    assert {(one.app, one.version): one.rows.num_rows for one in found} == {("a", 5): 40, ("b", 9): 40}
    assert assembly.first is None


def test_what_begins_before_the_topic_does_is_passed_over_and_what_begins_again_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "PART_BYTES", 500)
    told = numbered(0, rows(40), "a", 1)
    assembly = Assembly()
    assert taken(assembly, told[1:]) == [] and assembly.first is None
    assert taken(assembly, told[:2]) == []
    (found,) = taken(assembly, told)
    assert found.rows.equals(rows(40))


def test_columns_that_an_earlier_version_did_not_have_are_absent() -> None:
    (headers, value) = next(iter(packed(rows(2).drop_columns(["altered", "reached"]), "a", 1)))
    found = Assembly().take(0, headers, bytes(value))
    assert found is not None and found.rows.equals(rows(2))


@pytest.mark.parametrize(
    ("headers", "value", "why"),
    [
        (None, b"hello", "it is no part of a probe log"),
        ([("app", b"a"), ("version", b"x"), ("part", b"0/1"), ("format", b"1")], b"", "it is no part of a probe log"),
        ([("app", b"a"), ("version", b"1"), ("part", b"0"), ("format", b"1")], b"", "it is no part of a probe log"),
        ([("app", b"a"), ("version", None), ("part", b"0/1"), ("format", b"1")], b"", "it is no part of a probe log"),
        ([("app", b"a"), ("version", b"-1"), ("part", b"0/1"), ("format", b"1")], b"", "it is no part of a probe log"),
        ([("app", b"a"), ("version", b"1"), ("part", b"2/1"), ("format", b"1")], b"", "it is no part of a probe log"),
        ([("app", b"a"), ("version", b"1"), ("part", b"0/1"), ("format", b"1")], b"hello", "it cannot be read"),
        ([("app", b"a"), ("version", b"1"), ("part", b"0/1"), ("format", b"1")], None, "it cannot be read"),
    ],
)
def test_what_is_not_ours_is_told(headers: Any, value: bytes | None, why: str) -> None:
    with pytest.raises(NotOurs, match=why):
        Assembly().take(0, headers, value)


def test_bytes_that_were_cut_anywhere_are_told() -> None:
    (headers, value) = next(iter(packed(rows(30), "a", 1)))
    whole = bytes(value)
    for cut in range(0, len(whole) - 8, 97):
        with pytest.raises(NotOurs, match="it cannot be read"):
            Assembly().take(0, headers, whole[:cut])


def test_rows_of_a_later_format_are_not_passed_over() -> None:
    (headers, value) = next(iter(packed(rows(1), "a", 1)))
    later = [(key, b"2" if key == "format" else told) for key, told in headers]
    with pytest.raises(Newer, match="rows of format 2"):
        Assembly().take(0, later, bytes(value))
