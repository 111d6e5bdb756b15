from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from huc_monitor._common.threads import n_threads, run_tasks


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    monkeypatch.setenv("HUC_NUM_THREADS", "3")


def test_results_come_in_the_order_of_the_tasks():
    assert list(run_tasks(lambda a, b: a * b, [(k, 2) for k in range(50)])) == [
        2 * k for k in range(50)
    ]


def test_tasks_run_side_by_side():
    together = threading.Barrier(3, timeout=30)
    assert sorted(run_tasks(lambda _: together.wait(), [(k,) for k in range(3)])) == [0, 1, 2]


def test_a_task_may_run_tasks_of_its_own():
    def outer(k):
        return sum(run_tasks(lambda j: j + k, [(j,) for j in range(4)]))

    assert list(run_tasks(outer, [(k,) for k in range(8)])) == [6 + 4 * k for k in range(8)]


def test_the_first_error_in_order_is_raised_and_later_tasks_are_not_begun():
    begun = []

    def work(k):
        begun.append(k)
        if k in {3, 4}:
            message = f"task {k}"
            raise ValueError(message)

    with pytest.raises(ValueError, match="task 3"):
        list(run_tasks(work, [(k,) for k in range(1000)]))
    assert len(begun) < 100
    assert list(run_tasks(lambda k: k, [(k,) for k in range(5)])) == [0, 1, 2, 3, 4]


def test_no_tasks_give_no_results():
    assert list(run_tasks(lambda: 1, [])) == []


FORKING = """
import multiprocessing
from huc_monitor._common.threads import run_tasks

def total():
    return sum(run_tasks(lambda k: k, [(k,) for k in range(10)]))

assert total() == 45
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.apply_async(total).get(timeout=60))
"""


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs a safe fork")
def test_a_forked_process_starts_threads_of_its_own():
    # In a process of its own: what other tests left running must not be forked.
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "45\n"


def test_the_number_of_threads_is_the_one_asked_for(monkeypatch):
    assert n_threads() == 3
    monkeypatch.setenv("HUC_NUM_THREADS", "many")
    assert n_threads() >= 1
