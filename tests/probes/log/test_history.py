"""The Delta table that a committer meets: made, shared with other hosts, out of reach, too old, or the wrong one."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from probes.log.commits import data_files, history
from probes.log.commits.append_plan import PLAN
from probes.log.commits.committer import CommitPace, committer
from probes.log.commits.history import History, TableProperties
from probes.log.errors import HistoryMismatch, HistoryUnavailable
from rules.vocabulary.slices import SLICE_SCHEMA
from tests.probes.log.lives import (
    BEGIN,
    Prober,
    StillClock,
    check_marks,
    check_slices,
    logged,
    table_rows,
    wait_for,
)
from tests.probes.log.test_data_files import rows_at


def test_two_hosts_append_to_one_table_at_the_same_time(tmp_path: Path, history: Path, clock: StillClock) -> None:
    """Each meets the other's commits again and again, and each row is there once."""
    folders = [tmp_path / name for name in ("a", "b")]
    probers = [Prober.start(folder, n, clock) for n, folder in enumerate(folders, 1)]
    for prober in probers:
        prober.send(0)
    errors: list[BaseException] = []

    def work(folder: Path) -> None:
        try:
            with committer(folder, history, clock) as one:
                for _ in range(25):
                    one.commit()
        except BaseException as error:
            errors.append(error)

    with committer(folders[0], history, clock) as one:
        one.commit()
    threads = [threading.Thread(target=work, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    rows = table_rows(history)
    check_slices(rows)
    assert len(rows) == 2 * (2 + 1) + 2 * (25 + 25 + 1)
    assert len({r["process"] for r in rows if r["f"] == "mark"}) == 2


def test_a_table_that_cannot_be_reached_is_tried_again_and_nothing_is_lost(
    folder: Path, history: Path, clock: StillClock
) -> None:
    prober = Prober.start(folder, 1, clock)
    history.write_text("in the way")
    stop = threading.Event()
    with committer(folder, history, clock, CommitPace(every=0.02, longest_wait=0.1)) as one:
        with pytest.raises(HistoryUnavailable, match=r"cannot .* the Delta table .*history"):
            one.commit()
        assert "history" in (one.status().error or "")
        running = threading.Thread(target=one.run, args=(stop,))
        running.start()
        time.sleep(0.3)
        history.unlink()
        prober.send(0)
        wait_for(lambda: one.status().backlog == 0 and one.status().version > 3)
        prober.send(1)
        stop.set()
        running.join()
        assert one.status().error is None
    assert logged(table_rows(history), 1) == prober.must_be_logged()


def test_another_table_than_the_folders_own_is_refused(
    folder: Path, history: Path, tmp_path: Path, clock: StillClock
) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
    with (
        committer(folder, tmp_path / "other", clock) as one,
        pytest.raises(HistoryMismatch, match="another probe log"),
    ):
        one.commit()
    assert not (tmp_path / "other").exists(), "nothing is left there"
    table = DeltaTable(str(history))
    table.restore(0)
    with committer(folder, history, clock) as one:
        # Delta keeps application versions over a restore: the plan counts as done, and the log goes on from there.
        one.commit()
    (folder / PLAN).write_text("{}")
    with committer(folder, history, clock) as one, pytest.raises(HistoryMismatch, match="cannot be read"):
        one.run(threading.Event())


def test_a_table_that_is_away_for_a_while_is_not_made_anew(folder: Path, history: Path, clock: StillClock) -> None:
    """As with the disk that it lies on: rows wait in the journals, and follow when it is back."""
    prober = Prober.start(folder, 1, clock)
    aside = history.with_name("aside")
    with committer(folder, history, clock) as one:
        one.commit()
        for _ in range(2):
            history.rename(aside)
            for _ in range(2):
                prober.send(0)
                with pytest.raises(HistoryUnavailable, match="cannot read the Delta table"):
                    one.commit()
            assert not history.exists()
            aside.rename(history)
            one.drain()
    rows = table_rows(history)
    assert logged(rows, 1) == prober.must_be_logged()
    assert check_marks(history) > 0


def test_a_folder_put_back_to_an_older_state_is_refused(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
        old = (folder / PLAN).read_bytes()
        one.commit()
        one.commit()
    (folder / PLAN).write_bytes(old)
    with committer(folder, history, clock) as one, pytest.raises(HistoryMismatch, match="put back to an older state"):
        one.commit()


def test_a_table_that_is_no_probe_log_is_refused(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    write_deltalake(str(history), pa.table({"process": ["x"], "date": [1]}))
    with committer(folder, history, clock) as one, pytest.raises(HistoryMismatch, match="another type in column"):
        one.commit()


def test_a_table_of_another_format_is_refused(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    with committer(folder, history, clock) as one:
        one.commit()
    DeltaTable(str(history)).alter.set_table_properties({"offsetwatch.format": "2"}, raise_if_not_exists=False)
    with (
        committer(folder, history, clock) as one,
        pytest.raises(HistoryMismatch, match=r"has format 2 .* writes format 1"),
    ):
        one.commit()


def test_columns_that_an_older_table_lacks_are_added(folder: Path, history: Path, clock: StillClock) -> None:
    Prober.start(folder, 1, clock)
    older = pa.schema([f for f in SLICE_SCHEMA if f.name not in ("last_stable", "rebalanced")])
    DeltaTable.create(str(history), schema=older, partition_by=["date"])
    with committer(folder, history, clock) as one:
        assert one.commit() == 4
    assert {"last_stable", "rebalanced"} <= set(table_rows(history)[0])


def test_a_table_that_is_made_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads what was appended where the loss of the host took the first commit of the table's log."""
    synced: list[Path] = []
    for module in (data_files, history):
        monkeypatch.setattr(module, "sync", synced.append)
    table = tmp_path / "history"
    History(str(table)).id()
    assert synced == [table / "_delta_log" / f"{0:020}.json", table / "_delta_log", table]
    synced.clear()
    History(str(table)).id()
    assert synced == []


def test_an_append_is_on_the_disk_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake's object stays at the version before a commit of files: that one was synced, and a power cut might
    leave the newest commit empty, which nobody can read."""
    place = tmp_path / "history"
    history = History(str(place), TableProperties(checkpoint_interval=3))
    for version in (1, 2, 3):
        synced: list[Path] = []
        monkeypatch.setattr(data_files, "sync", synced.append)
        before = {*place.glob("date=*/*.parquet")}
        assert not history.has("app", version, tmp_path)
        history.append(rows_at(BEGIN), "app", version)
        (file,) = {*place.glob("date=*/*.parquet")} - before
        commit = place / "_delta_log" / f"{version:020}.json"
        assert {file, file.parent, commit, commit.parent} <= {*synced}, version


def test_what_was_appended_here_last_is_known_until_somebody_else_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = [], DeltaTable.transaction_version

    def counted(table: DeltaTable, app: str) -> int | None:
        asked.append(app)
        found: int | None = ask(table, app)
        return found

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    history, rows = History(str(tmp_path / "history")), rows_at(BEGIN)
    history.append(rows, "app", 1)
    assert history.last_version("app") == 1
    history.append(rows, "app", 2)
    assert (history.last_version("app"), history.last_versions(["app"]), asked) == (2, {"app": 2}, [])
    History(str(tmp_path / "history")).append(rows, "app", 3)  # a copy of its folder is at work
    assert (history.last_version("app"), asked) == (3, ["app"])
    history.append(rows, "other", 1)
    assert (history.last_version("app"), history.last_version("other"), asked) == (3, 1, ["app", "app"])


def test_the_log_of_the_table_stays_short(folder: Path, history: Path, clock: StillClock) -> None:
    """Checkpoints and the deletion of old log files happen by themselves, by the properties of the table."""
    Prober.start(folder, 1, clock)
    table = History(str(history), TableProperties(checkpoint_interval=5, log_retention="interval 0 seconds"))
    with committer(folder, table, clock) as one:
        for _ in range(40):
            one.commit()
            assert table._checkpoints is not None
            table._checkpoints.close()  # what is being made is made
    assert len(list((history / "_delta_log").glob("*.json"))) <= 12
    assert len(table_rows(history)) == 2 + 40 * 2
    found = DeltaTable(str(history)).metadata().configuration
    assert found["delta.checkpointInterval"] == "5" and found["delta.logRetentionDuration"] == "interval 0 seconds"


def test_rows_of_two_days_go_to_two_partitions_of_the_table(folder: Path, history: Path, clock: StillClock) -> None:
    clock.time = BEGIN.replace(hour=23, minute=59, second=59)
    prober = Prober.start(folder, 1, clock)
    clock.tick(2)
    prober.send(0)
    with committer(folder, history, clock) as one:
        one.commit()
    assert {str(r["date"]) for r in table_rows(history)} == {"2026-03-01", "2026-03-02"}
