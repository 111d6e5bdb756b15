"""A monitor that lives through a renamed branch, a split leaf and an added branch."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.cli import app
from huc_monitor.errors import HUCError
from huc_monitor.reporting import draw_pictures, render_report

START = datetime(2026, 2, 1, tzinfo=UTC)
OLD = hm.LabelTree.from_nested({"drinks": ["tea", "juice"], "tools": ["phone", "saw"]})
NEW = hm.LabelTree.from_nested(
    {
        "beverages": ["tea", "juice"],
        "tools": {"phone": ["mobile", "landline"], "saw": None},
        "garden": ["rake", "hose"],
    }
)
CHANGES = """
versions:
  - tree: old.json
    until: 2026-02-07
    renamed: {drinks: beverages}
    split: {phone: [mobile, landline]}
    added: [garden]
"""
CONFIG = """
version: 1
model: shop
tree: TREE
source:
  log: {path: log, union_by_name: true}
columns: {time: at, id: id, label: y, probabilities: "p_{leaf}"}
utilities: [{type: Payoff, name: pay, payoffs: {tea: 1}}]
windows: {length: 1d, min_labelled: 50}
reference: {start: 2026-02-01, end: 2026-02-03}
tolerance: 0.02
state: state
"""


def day(tree, number, rng, n=800):
    """One day's log: tea is served far more often than predicted."""
    p = rng.dirichlet(np.ones(tree.n_leaves), n)
    truth = p.copy()
    truth[:, tree.leaf_index("tea")] *= 3.0
    truth /= truth.sum(axis=1, keepdims=True)
    codes = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1)
    frame = pd.DataFrame(p, columns=[f"p_{leaf}" for leaf in tree.leaves])
    times = [START + timedelta(days=number, seconds=60 * i) for i in range(n)]
    names = np.array(tree.leaves)[np.minimum(codes, tree.n_leaves - 1)]
    return frame.assign(at=times, id=[f"{number}-{i}" for i in range(n)], y=names)


def write_days(folder, tree, numbers, rng):
    (folder / "log").mkdir(exist_ok=True)
    for number in numbers:
        day(tree, number, rng).to_parquet(folder / "log" / f"{number:02d}.parquet")


def configure(folder, tree, *, changes=False):
    text = CONFIG.replace("TREE", tree)
    if changes:
        text = text.replace("source:", "tree_changes: changes.yaml\nsource:", 1)
    (folder / "huc.yaml").write_text(text)


def check(folder, until):
    monitor = hm.open_monitor(folder / "huc.yaml")
    result = monitor.check(now=START + timedelta(days=until))
    return monitor, result


@pytest.fixture
def story(tmp_path):
    rng = np.random.default_rng(5)
    (tmp_path / "old.json").write_text(json.dumps(OLD.to_dict()))
    (tmp_path / "new.json").write_text(json.dumps(NEW.to_dict()))
    (tmp_path / "changes.yaml").write_text(CHANGES)
    write_days(tmp_path, OLD, range(6), rng)
    configure(tmp_path, "old.json")
    before = check(tmp_path, 6)
    write_days(tmp_path, NEW, range(6, 10), rng)
    configure(tmp_path, "new.json", changes=True)
    return tmp_path, before


def test_no_window_and_no_open_alert_is_lost(story):
    folder, (old, first) = story
    opened = {alert.candidate for alert in old.alerts}
    assert any(node == "drinks" for _, _, node in opened)
    monitor, second = check(folder, 10)
    assert monitor.identity == old.identity
    ordinals = [record.ordinal for record in monitor.records()]
    assert sorted(set(ordinals)) == list(range(1, 11))
    assert len(ordinals) == len(set(ordinals))
    assert [record.ordinal for record in second.records] == [7, 8, 9, 10]
    after = {alert.candidate: alert for alert in monitor.alerts}
    for utility, subgroup, node in opened:
        moved = {"drinks": "beverages"}.get(node, node)
        assert (utility, subgroup, moved) in after
        assert after[utility, subgroup, moved].first_seen == next(
            a.first_seen for a in first.alerts if a.candidate == (utility, subgroup, node)
        )
    change = second.records[0].tree_change
    assert change["renamed"] == {"drinks": "beverages"}
    assert "beverages" not in change["not_comparable"]
    assert all(record.tree_change is None for record in second.records[1:])
    assert "open alerts go on under the names of the new tree" in second.message.text


def test_history_is_comparable_and_the_report_shows_where_the_tree_changed(story):
    folder, _ = story
    monitor, _ = check(folder, 10)
    records = monitor.records()
    page = render_report(records, tree=NEW)
    text = re.sub(r"</?span[^>]*>", "", page)  # dates are kept whole by a span
    assert "A new version of the tree counts from 2026-02-07" in text
    assert "drinks is now beverages" in text
    (head,) = re.findall(r'<table class="heat"><thead>(.*?)</thead>', page)
    assert re.findall(r"02-(\d+)<small[^>]*>new tree", head) == ["07"]
    pictures = draw_pictures(records, tree=NEW)
    heat = pictures["heat_map"].to_svg()
    assert "new tree" in heat
    assert "new tree" in pictures["timeline"].to_svg()
    assert "beverages" in heat
    assert "drinks" not in heat
    moments = [
        entry["moment"]
        for record in records
        for entry in record.audit["candidates"]
        if entry["node"] in {"drinks", "beverages"} and entry["utility"] == "pay"
    ]
    assert len(moments) == 10
    assert all(moment > 0.02 for moment in moments)


def test_a_branch_that_chooses_among_other_things_now_is_not_told_as_changed(story):
    folder, _ = story
    monitor, second = check(folder, 10)
    assert second.records[0].tree_change["not_comparable"] == ["root"]
    tested = [record.change for record in second.records if record.change is not None]
    assert tested
    told = {item.node for change in tested for item in change.changes}
    assert not told & {"root", "phone", "garden"}
    changes = monitor.changes
    assert changes.incomparable(START) == {"root", "phone", "garden"}
    assert changes.incomparable(datetime(2026, 2, 8, tzinfo=UTC)) == frozenset()


def test_the_default_utilities_of_a_grown_tree_are_those_of_the_same_monitor(story):
    folder, _ = story
    text = (folder / "huc.yaml").read_text().replace("utilities:", "# utilities:")
    (folder / "huc.yaml").write_text(text)
    new = hm.open_monitor(folder / "huc.yaml")
    configure(folder, "old.json")
    text = (folder / "huc.yaml").read_text().replace("utilities:", "# utilities:")
    (folder / "huc.yaml").write_text(text)
    old = hm.open_monitor(folder / "huc.yaml")
    assert len(new.utilities) > len(old.utilities)
    assert new.identity == old.identity


def test_rows_before_the_change_are_read_in_the_new_tree(story):
    folder, _ = story
    source = hm.open_monitor(folder / "huc.yaml").source
    span = START + timedelta(days=5), START + timedelta(days=7)
    data = source.labelled(*span)
    assert data.probabilities.shape == (1_600, NEW.n_leaves)
    np.testing.assert_allclose(data.probabilities.sum(axis=1), 1)
    old = day(OLD, 5, np.random.default_rng(0))
    assert len(old) == 800
    phone = NEW.n_leaves + NEW.branch_index("phone")
    before = data.times < np.datetime64("2026-02-07")
    assert (data.labels[before] == phone).sum() > 0
    assert (data.labels[~before] == phone).sum() == 0
    assert source.predictions(*span).n == 1_600
    assert source.counts(*span).n_predictions == 1_600


def test_the_cli_goes_on_and_a_tree_that_no_version_knows_is_refused(story):
    folder, _ = story
    runner = CliRunner()
    config = str(folder / "huc.yaml")
    done = runner.invoke(app, ["check", "--config", config, "--now", "2026-02-11"])
    assert done.exit_code in {0, 1}, done.output
    text = CHANGES.replace("versions:", "monitor: MONITOR\nversions:")
    text = text.replace("MONITOR", hm.open_monitor(config).identity)
    odd = hm.LabelTree.from_nested(
        {
            "beverages": ["tea", "juice"],
            "tools": {"phone": ["mobile", "landline"], "saw": None},
            "garden": ["rake", "spade"],
        }
    )
    (folder / "new.json").write_text(json.dumps(odd.to_dict()))
    (folder / "changes.yaml").write_text(text)
    with pytest.raises(HUCError, match=r"none of the earlier versions in `tree_changes`|spade"):
        hm.open_monitor(config).check(now=START + timedelta(days=10))
