"""A check may die anywhere. Run again, it must leave what one leaves that did not die."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.production_log import after, make_log, write_project
from support.watched import Ear, make, revisited

from huc_monitor.monitor.ports.tracker import MemoryTracker

pytestmark = pytest.mark.seconds  # killed processes

TESTS = Path(__file__).parents[2]
TIMES = ["2024-03-04T06:00+00:00", "2024-03-06T12:00+00:00"]


class CrashError(BaseException):
    """The power goes out."""


class Fuse:
    """Blows before or after the n-th thing that leaves a trace."""

    def __init__(self, at: int | None) -> None:
        self.at, self.count = at, 0

    def run(self, action):
        self._step()
        done = action()
        self._step()
        return done

    def _step(self):
        self.count += 1
        if self.count == self.at:
            raise CrashError


class FusedTracker(MemoryTracker):
    def __init__(self, fuse):
        super().__init__()
        self.fuse, self.told, self.handed = fuse, [], []

    def save_state(self, state):
        self.fuse.run(lambda: MemoryTracker.save_state(self, state))

    def record(self, record, artifacts=None):
        def act():
            if record.key in self._records:
                assert self._records[record.key] == record.to_json(), "same key, same content"
            MemoryTracker.record(self, record, artifacts)

        self.fuse.run(act)

    def set_alert_status(self, status, alerts):
        self.fuse.run(lambda: self.told.append((status, len(alerts))))


class FusedEar(Ear):
    def __init__(self, fuse):
        super().__init__()
        self.fuse = fuse

    def send(self, message):
        self.fuse.run(lambda: self.heard.append(message))


class Life:
    """What outlives checks: a tracker, whoever hears messages, and what was recalibrated."""

    def __init__(self) -> None:
        self.fuse = Fuse(None)
        self.tracker, self.ear, self.trained = FusedTracker(self.fuse), FusedEar(self.fuse), []

    def check(self, log, labels, now) -> None:
        monitor = make(
            log,
            labels,
            tracker=self.tracker,
            notifiers={"ear": self.ear},
            recalibration={"enabled": True, "critical_windows": 2},
            recalibrate=lambda trigger: self.fuse.run(lambda: self.trained.append(trigger.id)),
            windows=revisited("6d"),
            tolerance=0.01,
            audit={"n_draws": 50},
        )
        monitor.check(after(now))

    def left(self) -> dict:
        """Everything that a next check, or a person, could find."""
        records = [record.to_dict() | {"timings": None} for record in self.tracker.records()]
        return {
            "records": records,
            "state": self.tracker.load_state(),
            "heard": {message.key: message.to_dict() for message in self.ear.heard},
            "trained": set(self.trained),
            "told": self.tracker.told[-1:],
        }


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_dying_before_or_after_any_write_or_message_changes_nothing(every):
    log, labels = make_log(5, 800, broken_from=1, late_share=0.1)
    undisturbed, checks = Life(), []
    for now in (3.2, 5.6, 7.0):
        before = copy.deepcopy(undisturbed)
        undisturbed.check(log, labels, now)
        checks.append((now, before, undisturbed.fuse.count, undisturbed.left()))
    n_steps = undisturbed.fuse.count
    assert n_steps > 40
    assert undisturbed.trained, "recalibration was part of it"
    for at in range(n_steps, 0, -every):
        now, before, _, expected = next(check for check in checks if at <= check[2])
        life = copy.deepcopy(before)
        life.fuse.at = at
        with pytest.raises(CrashError):
            life.check(log, labels, now)
        life.check(log, labels, now)
        assert life.left() == expected, f"died at step {at} of {n_steps}"


def kill(folder: Path, n: int) -> dict:
    log, labels = make_log(4, 300, broken_from=2, late_share=0.1)
    config = write_project(folder, log, labels, windows=", revisit: 4d")
    command = [
        sys.executable,
        str(TESTS / "support" / "killing.py"),
        str(config),
        str(n),
        "1",
        *TIMES,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_four_killed_checks_leave_what_one_leaves_that_was_not_killed(tmp_path):
    found = kill(tmp_path, 4)
    assert found["wrong"] == 0
    assert found["killed"] == 4


@pytest.mark.slow
def test_a_hundred_killed_checks_leave_what_one_leaves_that_was_not_killed(tmp_path):
    found = kill(tmp_path, 100)
    assert found["wrong"] == 0
    assert found["killed"] == 100
    spread = found["records_when_killed"]
    assert len(set(spread)) >= found["records"] - 2, "kills reach every part of the check"
    assert max(spread.count(n) for n in spread) <= 40, "and do not crowd in one"


def test_of_two_checks_started_at_once_one_works_and_nothing_is_duplicated(tmp_path):
    log, labels = make_log(5, 400)
    config = write_project(tmp_path, log, labels)
    main = "import sys; from huc_monitor.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", main, "check", "--config", str(config), "--json"]
    command += ["--now", "2024-03-08"]
    for more, codes in (([], [{0, 2}, {0, 2}]), (["--wait", "60s"], [{0}, {0}])):
        started = time.monotonic()
        both = [
            subprocess.Popen(
                [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        outputs = [process.communicate(timeout=120) for process in both]
        assert time.monotonic() - started < 120
        for process, allowed, (out, err) in zip(both, codes, outputs, strict=True):
            assert process.returncode in allowed, err
            if process.returncode == 2:
                assert "Another check is running" in err
                assert out == ""
        done = [json.loads(out)["records"] for out, _ in outputs if out]
        new = [record["window_id"] for records in done for record in records]
        assert len(new) == len(set(new))
        files = [path.name for path in tmp_path.rglob("records/*.json")]
        assert len(files) == 5
