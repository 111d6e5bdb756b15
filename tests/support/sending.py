"""Kill checks while they send, take the receiver away, run again, and compare what it heard.

Run as a script, ``sending.py CONFIG FOLDER N SEED NOW...`` with HUC_PORT and HUC_SECRET set; prints
one JSON document. The receiver is a process of its own, and every check is one: see `killing`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from huc_notify import SignatureError, verify

from support.killing import (
    count_records,
    finish,
    outcome,
    start_checks,
    wait_for_records,
    warm_up,
)

MODES = ("kill-before", "kill-after", "kill-anywhere", "503", "down")


class Story:
    def __init__(self, config: str, folder: Path, times: list[str]) -> None:
        self.config, self.folder, self.times = config, folder, times
        self.state = Path(config).parent / "huc-state"
        self.orders, self.log = folder / "orders", folder / "requests.jsonl"
        self.receiver: subprocess.Popen[str] | None = None

    def start_receiver(self) -> None:
        script = str(Path(__file__).with_name("receiver.py"))
        command = [sys.executable, script, os.environ["HUC_PORT"], str(self.folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.receiver = subprocess.Popen(command, **pipes)
        assert self.receiver.stdout.readline().strip() == "ready"

    def stop_receiver(self) -> None:
        self.receiver.communicate(timeout=10)

    def forget(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)
        for file in (self.orders, self.log):
            file.unlink(missing_ok=True)

    def check(self, now: str) -> None:
        assert finish(start_checks(self.config, [now])) == 0

    def disturbed(self, now: str, mode: str, rng: random.Random) -> bool:
        """Run one check that is killed or finds nobody, and tell whether it came to that."""
        if mode == "down":
            self.stop_receiver()
            self.check(now)
            self.start_receiver()
            return True
        if mode == "503":
            self.orders.write_text("503")
            self.check(now)
            self.orders.unlink()
            return True
        if mode == "kill-anywhere":
            before = count_records(self.state)
            child = start_checks(self.config, [now])
            wait_for_records(self.state, before + rng.randint(0, 2), child)
            time.sleep(rng.uniform(0, 0.05))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
            return finish(child) != 0
        gate, ready = os.pipe()
        child = start_checks(self.config, [now], after=gate)
        self.orders.write_text(f"{mode} {child}")
        os.write(ready, b"x")
        code = finish(child)
        os.close(gate)
        os.close(ready)
        self.orders.unlink(missing_ok=True)
        return code != 0

    def heard(self) -> dict[str, object]:
        lines = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]
        forged = 0
        messages, taken = {}, 0
        for line in lines:
            try:
                message = verify(line["body"].encode(), line["headers"], os.environ["HUC_SECRET"])
            except SignatureError:
                forged += 1
                continue
            if line["outcome"] != "503":
                taken += 1
                same = messages.setdefault(message.key, message)
                assert same == message, "one key, one message"
        steps = Counter(
            " ".join(step[name] for name in ("kind", "window_id", "utility", "subgroup", "node"))
            for message in messages.values()
            for step in message.data["transitions"]
        )
        return {
            "messages": {key: message.to_dict() for key, message in messages.items()},
            "steps": dict(steps),
            "twice_on_the_wire": taken - len(messages),
            "requests": len(lines),
            "forged": forged,
        }


def main(config: str, folder: str, n_runs: int, seed: int, times: list[str]) -> dict[str, object]:
    rng = random.Random(seed)  # noqa: S311 - not a secret
    warm_up(config)
    story = Story(config, Path(folder), times)
    story.start_receiver()
    story.forget()
    for now in times:
        story.check(now)
    expected, state = story.heard(), outcome(story.state)
    assert expected["twice_on_the_wire"] == 0
    happened: Counter[str] = Counter()
    wrong = twice = forged = requests = 0
    for n in range(n_runs):
        story.forget()
        mode, chosen = MODES[n % len(MODES)], rng.randrange(len(times))
        for place, now in enumerate(times):
            if place == chosen and story.disturbed(now, mode, rng):
                happened[mode] += 1
            story.check(now)
        story.check(times[-1])  # nothing is due, and nothing may be said
        found = story.heard()
        told = found["messages"] == expected["messages"] and found["steps"] == expected["steps"]
        wrong += not told or outcome(story.state) != state
        twice += found["twice_on_the_wire"]
        forged += found["forged"]
        requests += found["requests"]
    story.stop_receiver()
    return {
        "runs": n_runs,
        "happened": dict(happened),
        "wrong": wrong,
        "forged": forged,
        "messages": len(expected["messages"]),
        "steps": len(expected["steps"]),
        "most_often_told": max(expected["steps"].values()),
        "requests": requests,
        "twice_on_the_wire": twice,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])))
