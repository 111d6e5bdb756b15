"""Other users of the machine can neither read what is written nor choose where it goes."""

from __future__ import annotations

import os
import stat
import tempfile
from typing import TYPE_CHECKING

import pytest

import huc_monitor as hm
from huc_monitor._common.private_files import (
    UnsafePathError,
    make_private_folder,
    open_lock_file,
    state_folder,
    write_atomically,
)
from huc_monitor.monitor._lock import default_path, hold
from huc_monitor.monitor.ports import FilesTracker, MonitorInfo

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes and links of POSIX systems")


@pytest.fixture(autouse=True)
def _usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def victim(tmp_path) -> Path:
    path = tmp_path / "private-key"
    path.write_text("a secret")
    path.chmod(0o600)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_locks_lie_in_a_folder_of_this_user_and_not_in_a_shared_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = default_path("5f")
    assert path == tmp_path / "state" / "huc-monitor" / "5f.lock"
    assert mode(path.parent) == 0o700
    with hold(path):
        assert mode(path) == 0o600
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_user_without_a_home_gets_a_private_folder_by_number(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert state_folder() == tmp_path / f"huc-monitor-{os.getuid()}"
    assert mode(state_folder()) == 0o700


@pytest.mark.parametrize("trap", ["link", "open", "foreign"])
def test_a_folder_that_somebody_prepared_is_refused(tmp_path, monkeypatch, trap):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"huc-monitor-{os.getuid()}"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir(mode=0o777 if trap == "open" else 0o700)
    if trap == "open":
        folder.chmod(0o777)
    if trap == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    fault = {"link": "is a link", "open": "has mode 0777", "foreign": "belongs to user"}[trap]
    with pytest.raises(UnsafePathError, match=rf"{fault}.*set XDG_STATE_HOME"):
        default_path("5f")


def test_a_symbolic_link_instead_of_a_lock_overwrites_nothing(tmp_path, victim):
    lock = tmp_path / "lock"
    lock.symlink_to(victim)
    with pytest.raises(UnsafePathError, match="is a symbolic link"), hold(lock):
        pass
    assert victim.read_text() == "a secret"


def test_a_hard_link_instead_of_a_lock_overwrites_nothing(tmp_path, victim):
    lock = tmp_path / "lock"
    lock.hardlink_to(victim)
    with pytest.raises(UnsafePathError, match="plain file with one name"), hold(lock):
        pass
    assert victim.read_text() == "a secret"


def test_a_file_moved_to_where_the_lock_is_keeps_its_content(tmp_path, victim):
    lock = victim.rename(tmp_path / "lock")
    with pytest.raises(UnsafePathError, match="holds something other"), hold(lock):
        pass
    assert lock.read_text() == "a secret"


def test_a_folder_instead_of_a_lock_is_an_error_of_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        open_lock_file(tmp_path)


def test_a_lock_left_behind_is_used_again(tmp_path):
    (tmp_path / "lock").write_text("1234567\n")
    with hold(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_link_at_the_temporary_name_is_not_followed(tmp_path, victim):
    (tmp_path / ".state.json.tmp").symlink_to(victim)
    write_atomically(tmp_path / "state.json", b"{}")
    assert victim.read_text() == "a secret"
    assert (tmp_path / "state.json").read_bytes() == b"{}"


def test_state_files_are_0600_and_state_folders_0700(tmp_path):
    tracker = FilesTracker(MonitorInfo("m", "x"), tmp_path / "huc-state")
    tracker.save_state({"schema_version": 1})
    tracker.set_alert_status("ok", [])
    made = list((tmp_path / "huc-state").rglob("*"))
    assert {mode(path) for path in made if path.is_file()} == {0o600}
    assert {mode(path) for path in [tmp_path / "huc-state", *made] if path.is_dir()} == {0o700}


def test_a_folder_that_exists_keeps_its_mode(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o750)
    make_private_folder(tmp_path / "shared" / "new")
    assert (mode(tmp_path / "shared"), mode(tmp_path / "shared" / "new")) == (0o750, 0o700)


def test_a_new_report_is_for_its_writer_and_a_shared_one_stays_shared(tmp_path):
    tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    pay = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})
    result = hm.audit([[0.25] * 4] * 8, list("aacccddd"), tree=tree, utilities=[pay])
    path = hm.write_report(result, tmp_path / "report.html")
    assert mode(path) == 0o600
    path.chmod(0o644)
    assert mode(hm.write_report(result, path)) == 0o644
