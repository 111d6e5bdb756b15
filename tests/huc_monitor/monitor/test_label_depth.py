"""A monitor whose labels stop at any depth: audits, hints, drift and the report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.reporting import render_report
from huc_monitor.sources import Columns, FrameTable, TableSource

START = datetime(2026, 2, 1, tzinfo=UTC)
TREE = hm.LabelTree.from_nested({"a": {"a1": ["p", "q"], "a2": ["r", "s"]}, "b": ["u", "v"]})


def log(n_days=5, n=600):
    """From the third day on "p" happens more often than predicted; half of the labels stop."""
    rng = np.random.default_rng(2)
    frames = []
    for number in range(n_days):
        p = rng.dirichlet(np.ones(TREE.n_leaves), n)
        truth = p.copy()
        truth[:, 0] *= 4.0 if number >= 2 else 1.0
        truth /= truth.sum(axis=1, keepdims=True)
        codes = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1)
        labels = np.array(TREE.leaves, dtype=object)[np.minimum(codes, TREE.n_leaves - 1)]
        for i in np.flatnonzero(rng.random(n) < 0.5):
            labels[i] = TREE.ancestors(labels[i])[-1]
        for i in np.flatnonzero(codes == TREE.leaf_index("v"))[3:]:
            labels[i] = "b"
        labels[:2] = "drone"
        times = [START + timedelta(days=number, minutes=i) for i in range(n)]
        frame = pd.DataFrame(p, columns=[f"p_{leaf}" for leaf in TREE.leaves])
        frames.append(frame.assign(at=times, id=np.arange(n) + n * number, y=labels))
    return pd.concat(frames, ignore_index=True)


def check(frame):
    columns = Columns(time="at", id="id", label="y", probabilities="p_{leaf}")
    monitor = hm.Monitor(
        source=TableSource(FrameTable(frame), tree=TREE, columns=columns),
        windows=hm.TimeWindows(length="1d"),
        tree=TREE,
        utilities=[hm.Payoff("pay", {"p": 1.0, "v": 0.5})],
        policy=hm.Policy(tolerance=hm.Tolerance(value=0.02)),
    )
    return monitor, monitor.check(now=START + timedelta(days=5))


@pytest.fixture(scope="module")
def watched():
    return check(log())


def test_alerts_name_the_branch_and_records_say_what_labels_see(watched):
    monitor, result = watched
    assert "a1" in {alert.node for alert in monitor.alerts}
    last = result.records[-1]
    seen = {entry["node"]: entry["label_coverage"] for entry in last.audit["candidates"]}
    assert seen["root"] == seen["a"] == 1
    assert 0.3 < seen["a1"] < 0.7
    assert any("of the labels stop above the leaves" in note for note in last.notes)


def test_unknown_labels_are_told_by_name(watched):
    _, result = watched
    said = "Labels that are no node of the tree: 'drone' (2 rows). New leaf? Put it into the "
    assert any(note.startswith(said) for note in result.records[-1].notes)
    assert result.message.text.count("New leaf?") == 1, "once, of however many windows"


def test_a_label_in_another_spelling_is_told_with_the_node_it_means():
    frame = log(n_days=1)
    _, result = check(frame.assign(y=frame["y"].replace("drone", " U")))
    said = "Labels that are no node of the tree: ' U' (2 rows). Did you mean 'u'? Only the spelling"
    assert any(note.startswith(said) for note in result.records[-1].notes)


def test_the_report_shows_coverage(watched):
    monitor, _ = watched
    page = render_report(monitor.records(), tree=TREE)
    assert "Least label coverage of a branch" in page
    assert "New leaf?" in page


def test_shares_of_children_count_labels_that_stop_below_them(watched):
    _, result = watched
    shares = result.records[-1].frequencies["root"]
    frame = log().iloc[-600:]
    known = frame["y"].map(lambda y: y in {"b", "u", "v"})
    usable = frame["y"] != "drone"
    assert shares["b"]["observed"] == pytest.approx(known[usable].mean())
