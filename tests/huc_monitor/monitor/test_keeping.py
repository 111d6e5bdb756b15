from __future__ import annotations

import dataclasses
import io
import re
import shutil
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest
from support.production_log import FIRST_DAY, after, make_log, write_project

from huc_monitor.cli import main
from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor, open_tracker
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.keeping import Keeper, Restored
from huc_monitor.monitor.ports import FilesTracker, MemoryTracker, MonitorInfo
from huc_monitor.monitor.records import WindowRecord

OLD = Path(__file__).parents[2] / "golden_house" / "old_state"


def keeper_of(config):
    given = load_config(config)
    return Keeper(tracker=open_tracker(given), identity=given.identity, name="intrusion")


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked")
    config = write_project(folder, *make_log(5, 600, broken_from=3))
    monitor = open_monitor(config)
    for record in monitor.check(after(5.6)):
        monitor.tracker.record(record, {"page.html": b"x" * 5000})
    return folder


@pytest.fixture
def config(checked, tmp_path):
    shutil.copytree(checked, tmp_path / "project")
    return tmp_path / "project" / "huc.yaml"


def content(keeper):
    state, records = keeper.tracker.load_state(), keeper.tracker.records()
    return state, [record.to_dict() for record in records]


def a_thousand(config):
    """Put a thousand windows with a page each before those of the project."""
    keeper = keeper_of(config)
    tracker, records = keeper.tracker, keeper.tracker.records()
    state = tracker.load_state()
    for alert in state["alerts"]:
        alert["first_ordinal"] += 1000
        alert["last_ordinal"] += 1000
    tracker.save_state(state)
    for record in records:
        tracker.remove(record)
        tracker.record(dataclasses.replace(record, ordinal=record.ordinal + 1000))
    for n in range(1000):
        start = FIRST_DAY - timedelta(days=1000 - n)
        end, due_at = start + timedelta(days=1), start + timedelta(days=1.5)
        times = {"start": start, "end": end, "due_at": due_at}
        record = dataclasses.replace(records[1], ordinal=n + 1, window_id=f"w{n}", **times)
        tracker.record(record, {"page.html": b"x" * 5000})
    return keeper


@pytest.mark.seconds
def test_pruning_a_thousand_windows_leaves_trends_and_open_alerts(config, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)  # a thousand files are enough work
    keeper = a_thousand(config)
    state, before = keeper.tracker.load_state(), keeper.tracker.records()
    size = sum(path.stat().st_size for path in keeper.tracker.folder.rglob("*") if path.is_file())
    done = keeper.prune(FIRST_DAY - timedelta(days=100))
    after_it = keeper.tracker.records()
    assert done.n_thinned == 900
    assert keeper.tracker.load_state() == state, "open alerts and all else"
    assert [r.key for r in after_it] == [r.key for r in before]
    for name in ("audit", "tolerances", "levels", "alerts", "n_labelled", "coverage", "start"):
        assert [getattr(r, name) for r in after_it] == [getattr(r, name) for r in before], name
    assert after_it[900:] == before[900:], "younger windows are whole"
    assert len(keeper.tracker.files(before[899])) == 0
    assert len(keeper.tracker.files(before[900])) == 1
    now = sum(path.stat().st_size for path in keeper.tracker.folder.rglob("*") if path.is_file())
    assert size - now == done.n_bytes > 900 * 5000
    assert keeper.prune(FIRST_DAY - timedelta(days=100)).n_thinned == 0, "once"


def test_pruning_keeps_windows_since_the_oldest_open_alert_whole(config):
    keeper = keeper_of(config)
    before = keeper.tracker.records()
    opened = min(alert.first_ordinal for alert in before[-1].alerts)
    done = keeper.prune(after(300))
    assert done.n_held == sum(record.ordinal >= opened for record in before) > 0
    for old, new in zip(before, keeper.tracker.records(), strict=True):
        assert (old == new) == (old.ordinal >= opened), old


def test_a_dry_run_of_prune_changes_nothing(config):
    keeper = keeper_of(config)
    before = content(keeper)
    assert keeper.prune(after(300), dry_run=True).n_thinned > 0
    assert content(keeper) == before


def test_a_backup_brings_everything_back(config, tmp_path):
    keeper, archive = keeper_of(config), tmp_path / "b.tar.gz"
    before = content(keeper)
    n = keeper.backup(archive)
    assert n == len(before[1])
    assert archive.stat().st_mode & 0o077 == 0
    files = {p.name: p.read_bytes() for r in keeper.tracker.records() for p in keeper._files(r)}
    rows = {path.name: path.read_bytes() for path in keeper._rows.glob("*")}
    assert rows
    shutil.rmtree(config.parent / "huc-state")
    assert keeper.restore(archive) == Restored(n, 0, 0)
    assert content(keeper) == before
    assert {p.name: p.read_bytes() for r in keeper.tracker.records() for p in keeper._files(r)} == (
        files
    )
    assert {path.name: path.read_bytes() for path in keeper._rows.glob("*")} == rows
    with pytest.raises(InvalidInputError, match=r"has a state. Pass --replace"):
        keeper.restore(archive)
    assert keeper.restore(archive, replace=True) == Restored(n, 0, 0)
    assert open_monitor(config).check(after(5.6)).records == (), "the next check goes on"


def a_state_that_went_on(config, archive):
    """Make a backup, then a window and a revision more with a file each; return what was there."""
    keeper = keeper_of(config)
    before, n = content(keeper), keeper.backup(archive)
    newest = keeper.tracker.records()[-1]
    later = dataclasses.replace(newest, ordinal=newest.ordinal + 1, window_id="later")
    for record in (later, dataclasses.replace(newest, revision=newest.revision + 1)):
        keeper.tracker.record(record, {"page.html": b"x"})
    state = keeper.tracker.load_state()
    keeper.tracker.save_state({**state, "last_judged": later.ordinal})
    return keeper, before, n


def test_what_a_backup_does_not_have_goes_with_the_state_that_is_given_up(config, tmp_path, capsys):
    keeper, before, n = a_state_that_went_on(config, tmp_path / "b.tar.gz")
    given = [str(tmp_path / "b.tar.gz"), "--config", str(config)]
    assert main(["restore", *given, "--replace"]) == 0
    said = f"Restored {n} records and the state. 2 that the backup does not have were removed."
    assert said in capsys.readouterr().out
    assert content(keeper) == before
    assert not [path for path in keeper.tracker.folder.rglob("*") if "later" in path.name]


def test_other_trackers_keep_what_a_backup_does_not_have_and_say_so(config, tmp_path):
    keeper, before, n = a_state_that_went_on(config, tmp_path / "b.tar.gz")
    other = dataclasses.replace(keeper, tracker=MemoryTracker())
    keeper.copy_to(other)
    assert other.restore(tmp_path / "b.tar.gz", replace=True) == Restored(n, 0, 2)
    assert content(other)[0] == before[0]
    assert len(other.tracker.records()) == n + 2


def test_a_restore_that_was_killed_while_it_removed_is_repeated(config, tmp_path, monkeypatch):
    keeper, before, n = a_state_that_went_on(config, tmp_path / "b.tar.gz")
    late = keeper.tracker.load_state()

    def dying(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(FilesTracker, "remove", dying)
    with pytest.raises(KeyboardInterrupt):
        keeper.restore(tmp_path / "b.tar.gz", replace=True)
    assert keeper.tracker.load_state() == late, "the state comes last"
    monkeypatch.undo()
    assert keeper.restore(tmp_path / "b.tar.gz", replace=True) == Restored(n, 2, 0)
    assert content(keeper) == before


def test_without_replace_no_record_is_removed(config, tmp_path):
    keeper, _, n = a_state_that_went_on(config, tmp_path / "b.tar.gz")
    (keeper.tracker.folder / "state.json").unlink()
    assert keeper.restore(tmp_path / "b.tar.gz") == Restored(n, 0, 2)


def test_a_backup_of_another_monitor_is_refused(config, tmp_path):
    keeper, archive = keeper_of(config), tmp_path / "b.tar.gz"
    keeper.backup(archive)
    other = dataclasses.replace(keeper, identity="0" * 64)
    with pytest.raises(
        InvalidInputError, match=r"is of monitor 'intrusion' .* utilities or windows"
    ):
        other.restore(archive, replace=True)


def _evil(path, kind):
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("records/x.json")
        if kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        elif kind == "hard":
            member.type, member.linkname = tarfile.LNKTYPE, "/etc/passwd"
        else:
            member.name = kind
            member.size = 2
        tar.addfile(member, io.BytesIO(b"{}"))


@pytest.mark.parametrize(
    "kind",
    ["link", "hard", "/etc/x", "../x", "records/../../x.json", "rows/../../x", "records/..", "x"],
)
def test_an_archive_with_links_or_other_places_is_refused_and_nothing_written(
    config, tmp_path, kind
):
    keeper = keeper_of(config)
    before = content(keeper)
    path = tmp_path / "evil.tar.gz"
    _evil(path, kind)
    with pytest.raises(InvalidInputError, match="which no backup does"):
        keeper.restore(path, replace=True)
    assert content(keeper) == before


def test_a_cut_off_archive_is_refused_and_nothing_written(config, tmp_path):
    keeper, archive = keeper_of(config), tmp_path / "b.tar.gz"
    keeper.backup(archive)
    before = content(keeper)
    whole = archive.read_bytes()
    for n in (0, 10, len(whole) // 2, len(whole) - 20):
        archive.write_bytes(whole[:n])
        with pytest.raises(InvalidInputError, match=r"cannot be read as a backup|no whole backup"):
            keeper.restore(archive, replace=True)
    assert content(keeper) == before


def test_a_killed_restore_is_repeated(config, tmp_path, monkeypatch):
    keeper, archive = keeper_of(config), tmp_path / "b.tar.gz"
    before = content(keeper)
    keeper.backup(archive)
    shutil.rmtree(config.parent / "huc-state")
    calls = []

    def dying(self, record, artifacts=None):
        calls.append(record)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return stored(self, record, artifacts)

    stored = FilesTracker.record
    monkeypatch.setattr(FilesTracker, "record", dying)
    with pytest.raises(KeyboardInterrupt):
        keeper.restore(archive)
    assert keeper.tracker.load_state() is None, "the state comes last"
    monkeypatch.undo()
    keeper.restore(archive)
    assert content(keeper) == before


def test_records_and_state_move_to_another_tracker(config):
    keeper = keeper_of(config)
    target = dataclasses.replace(keeper, tracker=MemoryTracker())
    n = keeper.copy_to(target)
    assert content(target) == content(keeper)
    assert n == len(target.tracker.records())
    with pytest.raises(InvalidInputError, match="has a state already"):
        keeper.copy_to(target)


def test_the_state_of_the_previous_version_upgrades_with_its_open_alerts(tmp_path, capsys):
    shutil.copytree(OLD, tmp_path / "project")
    config = tmp_path / "project" / "huc.yaml"
    keeper = keeper_of(config)
    state, records = content(keeper)
    alerts = {(a["utility"], a["subgroup"], a["node"]) for a in state["alerts"]}
    assert alerts
    assert main(["backup", str(tmp_path / "b.tar.gz"), "--config", str(config)]) == 0
    assert main(["migrate", "--config", str(config)]) == 0
    assert "Wrote 3 records and the state." in capsys.readouterr().out
    new_state, new_records = content(keeper)
    others = [key for key in state if key != "alerts"]
    assert {key: new_state[key] for key in others} == {key: state[key] for key in others}
    for old, new in zip(state["alerts"], new_state["alerts"], strict=True):
        assert {key: new[key] for key in old} == old, "nothing is lost"
    assert [WindowRecord.from_dict(r) for r in new_records] == [
        WindowRecord.from_dict(r) for r in records
    ]
    assert main(["mute", "--until", "2d", "--all", "--config", str(config)]) == 0
    assert main(["restore", str(tmp_path / "b.tar.gz"), "--replace", "--config", str(config)]) == 0
    assert content(keeper)[0] == new_state


def test_commands_say_what_they_did(config, tmp_path, capsys):
    given = ("--config", str(config))
    assert main(["prune", "--keep", "1y", "--dry-run", *given]) == 0
    assert "would be" in capsys.readouterr().out
    assert main(["prune", "--keep", "1 year", *given]) == 2
    assert "Write 1y, 90d or 26w" in capsys.readouterr().err
    assert main(["prune", "--keep", "1y", *given]) == 0
    assert "records made thinner" in capsys.readouterr().out
    assert main(["prune", "--keep", "1d", *given]) == 0
    assert re.search(r"[1-9]\d* stay whole: an alert is\s+open since", capsys.readouterr().out)
    assert main(["restore", str(tmp_path / "none.tar.gz"), *given]) == 2
    assert "none.tar.gz" in capsys.readouterr().err


def test_what_has_no_state_is_not_backed_up(tmp_path):
    tracker = FilesTracker(MonitorInfo("m", "5f"), folder=tmp_path)
    with pytest.raises(InvalidInputError, match=r"has no state yet. Run: huc-monitor check"):
        Keeper(tracker=tracker, identity="5f", name="m").backup(tmp_path / "b.tar.gz")
    assert not (tmp_path / "b.tar.gz").exists()
