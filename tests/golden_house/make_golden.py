"""Write what the installed version computes to ``expected/``: ``python make_golden.py [case ...]``.

Run it with the version whose numbers shall be kept, never to make a failing test pass: what is
meant to move is listed in ``moved.json``, with its reason in the test.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def load_cases():
    spec = importlib.util.spec_from_file_location("golden_cases", HERE / "golden_cases.py")
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    return cases


def write(name, data):
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    (HERE / "expected").mkdir(exist_ok=True)
    (HERE / "expected" / f"{name}.json").write_text(text + "\n", "utf-8")


def main(names):
    cases = load_cases()
    write("arithmetic", cases.arithmetic())
    for case in cases.CASES:
        if names and case.__name__ not in names:
            continue
        started = time.perf_counter()
        write(case.__name__, case())
        print(f"{time.perf_counter() - started:6.1f} s  {case.__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
