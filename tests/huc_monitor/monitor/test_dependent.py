"""A monitor of rows that depend on each other, and of labels that were chosen."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml

import huc_monitor as hm
from huc_monitor.config.opening import open_monitor

TREE = hm.LabelTree.from_nested({"left": list("ab"), "right": list("cd")})
DAYS, ROWS = 6, 400


@pytest.fixture
def folder(tmp_path):
    """Calibrated days of twenty users each, who ask one thing and hear one answer."""
    rng = np.random.default_rng(5)
    n = DAYS * ROWS
    user = np.arange(n) // 20
    p = rng.dirichlet(np.ones(4), user.max() + 1)[user]
    level = np.where(rng.random(n) < 0.9, rng.random(user.max() + 1)[user], rng.random(n))
    y = (p.cumsum(axis=1) < level[:, None]).sum(axis=1).clip(0, 3)
    frame = pd.DataFrame(p, columns=list(TREE.leaves))
    frame["id"], frame["user"] = np.arange(n), [f"u{k}" for k in user]
    frame["at"] = pd.date_range("2024-01-01", periods=n, freq=f"{86400 // ROWS}s", tz="UTC")
    right = p.argmax(axis=1) == y
    frame["chosen"] = np.where(right, 0.3, 1.0)
    kept = rng.random(n) < frame["chosen"]
    frame["y"] = [TREE.leaves[k] for k in y]
    frame["some"] = frame["y"].where(kept)
    frame.to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    return tmp_path


def check(folder, columns, **more):
    document = {
        "model": "m",
        "tree": "tree.json",
        "source": {"log": {"path": "log.parquet"}},
        "columns": {"time": "at", "id": "id", "label": "y", **columns},
        "windows": {"length": "1d"},
        "reference": {"start": "2024-01-01", "end": "2024-01-03"},
        "tolerance": 0.02,
        "audit": {"n_draws": 200},
        **more,
    }
    path = folder / "huc.yaml"
    path.write_text(yaml.safe_dump(document))
    return open_monitor(path).check(pd.Timestamp("2024-01-08", tz="UTC").to_pydatetime()).records


def alerts(records):
    return sum(record.level == "critical" for record in records)


def surely_changed(records):
    return sum(bool(record.change and record.change.changes) for record in records)


@pytest.mark.seconds
def test_without_clusters_users_look_like_errors_and_with_them_they_do_not(folder):
    naive = check(folder, {}, state="naive")
    found = check(folder, {"cluster": "user"}, state="clusters")
    assert alerts(naive) + surely_changed(naive) >= 3
    assert alerts(found) + surely_changed(found) == 0
    assert any("400 rows in 20 clusters: as good as" in note for note in found[-1].notes)
    assert found[-1].result.design.n_clusters == 20
    assert len(found[-1].change.pools) == 2


def test_blocks_of_time_do_as_well(folder):
    found = check(folder, {}, clusters={"block": "72m"}, state="blocks")
    assert alerts(found) + surely_changed(found) == 0
    assert found[-1].result.design.n_clusters == 20


def test_labels_chosen_by_error_are_put_right_by_their_probability(folder):
    naive = check(folder, {"label": "some", "cluster": "user"}, state="naive")
    mended = check(
        folder, {"label": "some", "cluster": "user", "label_probability": "chosen"}, state="mended"
    )
    assert mended[-1].result.huc < naive[-1].result.huc
    assert alerts(mended) + surely_changed(mended) == 0
    assert mended[-1].result.design.min_label_probability == pytest.approx(0.3)
    assert naive[-1].result.design.min_label_probability is None


@pytest.mark.seconds
def test_a_window_larger_than_memory_counts_clusters_as_one_in_hand(folder):
    columns = {"cluster": "user", "label_probability": "chosen", "label": "some"}
    whole = check(folder, columns, state="whole")
    large = check(folder, columns, state="large", large={"most_rows": 100})
    for one, other in zip(whole, large, strict=True):
        np.testing.assert_allclose(one.result.radii, other.result.radii, rtol=1e-7)
        assert one.result.design.n_clusters == other.result.design.n_clusters
