"""What stands in two places is the same in both."""

from __future__ import annotations

import filecmp

from deploy.copies import copies


def test_copies_are_those_of_today() -> None:
    found = list(copies())
    assert len(found) > 4
    assert [
        str(copy) for file, copy in found if not copy.is_file() or not filecmp.cmp(file, copy, shallow=False)
    ] == [], "python -m deploy.copies writes them anew"
    for folder in {copy.parent for file, copy in found if file.parent.name == copy.parent.name}:
        assert {one.name for one in folder.iterdir()} == {copy.name for _, copy in found if copy.parent == folder}
