from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.sources import Columns, LabelTable, TableSource

# Names that are text wherever they end up: in SQL, in patterns, in parameters.
WEIRD = 'y"; DROP TABLE log; --'
LEAVES = ("none", "100%s", WEIRD, "zürich: a.b")
KINDS = ("frame", "parquet", "hive", "csv", "duckdb", "sqlite", "postgres")
DAY = datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC)
COLUMNS = {
    "time": "ts",
    "probabilities": "p_{leaf}",
    "id": "id",
    "model_version": "version",
    "features": (WEIRD,),
}


@pytest.fixture(scope="session")
def tree() -> hm.LabelTree:
    return hm.LabelTree.from_nested({"mild": [LEAVES[0], LEAVES[1]], "bad": [LEAVES[2], LEAVES[3]]})


def make_log(n: int = 240, *, seed: int = 0) -> pd.DataFrame:
    """Predictions every 18 minutes over three days, some of them at the same time."""
    rng = np.random.default_rng(seed)
    minutes = np.sort(rng.integers(0, 3 * 24 * 60, n))
    times = pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(minutes, unit="min")
    raw = rng.dirichlet(np.ones(len(LEAVES)), n)
    # Not the order of the tree: columns are found by name.
    columns = {f"p_{leaf}": raw[:, k] for k, leaf in reversed(list(enumerate(LEAVES)))}
    label = np.array(LEAVES, dtype=object)[rng.integers(0, len(LEAVES), n)]
    label[rng.random(n) < 0.25] = None
    return pd.DataFrame(
        {
            "id": np.arange(n) + 1_000,
            "ts": times,
            **columns,
            WEIRD: rng.integers(20, 90, n),
            "version": np.where(minutes < 2_000, "1", "2"),
            "label": label,
            "unused": rng.random(n),
        }
    )


def make_labels(log: pd.DataFrame) -> pd.DataFrame:
    """The log's labels one day later, and corrections of every tenth, half an hour after that."""
    known = log[log["label"].notna()]
    first = pd.DataFrame(
        {
            "key": known["id"],
            "y": known["label"],
            "seen": known["ts"] + pd.Timedelta(days=1),
        }
    )
    again = first.iloc[::10].assign(
        y=LEAVES[0], seen=lambda frame: frame["seen"] + pd.Timedelta(minutes=30)
    )
    return pd.concat([again, first], ignore_index=True)


def between(log: pd.DataFrame, start: datetime, end: datetime) -> pd.DataFrame:
    rows = log[(log["ts"] >= start) & (log["ts"] < end)]
    return rows.sort_values(["ts", "id"]).reset_index(drop=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_holds_the_labelled_rows_of_its_range_in_the_order_of_the_tree(
    kind, tree, make_table
):
    log = make_log()
    source = TableSource(
        make_table(kind, log, "ts"), tree=tree, columns=Columns(**COLUMNS, label="label")
    )
    window = source.labelled(*DAY)
    rows = between(log, *DAY)
    expected = rows[rows["label"].notna()]
    np.testing.assert_array_equal(
        window.probabilities, expected[[f"p_{leaf}" for leaf in tree.leaves]].to_numpy()
    )
    np.testing.assert_array_equal(window.labels, tree.encode(expected["label"].tolist()))
    assert window.ids.tolist() == expected["id"].tolist()
    assert window.times.tolist() == [t.to_pydatetime().replace(tzinfo=None) for t in expected["ts"]]
    assert window.features.columns.tolist() == [WEIRD]
    assert window.features[WEIRD].tolist() == expected[WEIRD].tolist()
    assert window.model_versions.tolist() == expected["version"].tolist()
    assert (window.n_predictions, window.n_labelled) == (len(rows), len(expected))
    assert window.coverage == len(expected) / len(rows)
    assert window.n_quarantined == 0


@pytest.mark.parametrize("kind", KINDS)
def test_counts_ranges_and_advances_agree_with_a_sorted_list_of_times(kind, tree, make_table):
    log = make_log()
    source = TableSource(
        make_table(kind, log, "ts"), tree=tree, columns=Columns(**COLUMNS, label="label")
    )
    extent = source.time_range()
    assert (extent.first, extent.last) == (log["ts"].min(), log["ts"].max())
    rows = between(log, *DAY)
    counts = source.counts(*DAY)
    assert (counts.n_predictions, counts.n_labelled) == (len(rows), rows["label"].notna().sum())
    times = sorted(log["ts"][log["ts"] >= DAY[0]])
    for n_rows in (1, 7, 50, len(times) - 1):
        end = source.advance(DAY[0], n_rows)
        assert end == min((t for t in times if t > times[n_rows - 1]), default=None)
        assert source.counts(DAY[0], end).n_predictions >= n_rows
    assert source.advance(DAY[0], len(times)) is None
    assert source.advance(DAY[0], len(times) + 5) is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_range_is_an_empty_window(kind, tree, make_table):
    source = TableSource(
        make_table(kind, make_log(), "ts"), tree=tree, columns=Columns(**COLUMNS, label="label")
    )
    later = DAY[0] + timedelta(days=300), DAY[1] + timedelta(days=300)
    window = source.labelled(*later)
    assert window.probabilities.shape == (0, tree.n_leaves)
    assert window.labels.dtype == np.int64
    assert window.times.dtype == np.dtype("datetime64[us]")
    assert (window.n, window.n_predictions, window.coverage) == (0, 0, 0.0)
    assert window.features.columns.tolist() == [WEIRD]
    assert source.predictions(*later).n == 0
    assert source.counts(*later).n_predictions == 0


@pytest.mark.parametrize(
    ("kind", "label_kind"),
    [*((kind, kind) for kind in KINDS), ("hive", "postgres"), ("csv", "frame"), ("sqlite", "csv")],
)
def test_late_labels_are_joined_by_id_as_far_as_they_were_known(kind, label_kind, tree, make_table):
    log = make_log()
    labels = make_labels(log)
    source = TableSource(
        make_table(kind, log.drop(columns="label"), "ts"),
        tree=tree,
        columns=Columns(**COLUMNS),
        labels=LabelTable(
            table=make_table(label_kind, labels, "seen"), id="key", label="y", time="seen"
        ),
    )
    rows = between(log, *DAY)
    for hours in (12, 24, 36, 100):
        as_of = DAY[0] + timedelta(hours=hours)
        known: dict[int, str] = {}
        when: dict[int, pd.Timestamp] = {}
        for key, label, seen in sorted(labels.itertuples(index=False), key=lambda row: row[2]):
            if seen <= as_of and key in set(rows["id"]):
                known[key], when[key] = label, seen
        window = source.labelled(*DAY, as_of=as_of)
        assert window.ids.tolist() == [key for key in rows["id"] if key in known]
        assert window.labels.tolist() == tree.encode([known[k] for k in window.ids]).tolist()
        assert [pd.Timestamp(t, tz="UTC") for t in window.label_times] == [
            when[key] for key in window.ids
        ]
        assert window.as_of == as_of
        assert window.counts == source.counts(*DAY, as_of=as_of)
        assert window.latest_label == max(when.values(), default=None)
        n_seen = ((labels["seen"] <= as_of) & labels["key"].isin(rows["id"])).sum()
        assert window.n_duplicate_labels == n_seen - len(known)


@pytest.mark.parametrize("kind", ["frame", "parquet", "duckdb", "postgres", "sqlite"])
def test_one_column_of_lists_follows_the_order_of_its_classes(kind, tree, make_table):
    log = make_log(60)
    classes = sorted(LEAVES)
    lists = log[[f"p_{leaf}" for leaf in classes]].to_numpy().tolist()
    lists[5] = lists[5][:-1]
    lists[6] = None
    values = [str(row) if row else None for row in lists] if kind == "sqlite" else lists
    frame = log[["ts", "label", "id"]].assign(p=pd.Series(values, dtype=object))
    frame["label"] = "none"
    if kind == "postgres":
        import sqlalchemy as sa

        dtype = sa.ARRAY(sa.Float(53))
        original = frame.to_sql
        object.__setattr__(frame, "to_sql", lambda *a, **k: original(*a, **k, dtype={"p": dtype}))
    source = TableSource(
        make_table(kind, frame, "ts"),
        tree=tree,
        columns=Columns(time="ts", list_column="p", classes=classes, label="label", id="id"),
    )
    start, end = log["ts"].min(), log["ts"].max() + pd.Timedelta(seconds=1)
    window = source.labelled(start, end)
    good = log.drop(index=[5, 6]).sort_values(["ts", "id"])
    np.testing.assert_array_equal(
        window.probabilities, good[[f"p_{leaf}" for leaf in tree.leaves]].to_numpy()
    )
    assert window.n_quarantined == 2
    assert [row.reason for row in window.bad_rows] == [
        "bad probabilities: expected a list of 4 numbers, got 3",
        "bad probabilities: expected a list of 4 numbers, got none",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_there_for_drift_whether_labelled_or_not(kind, tree, make_table):
    log = make_log()
    source = TableSource(
        make_table(kind, log, "ts"), tree=tree, columns=Columns(**COLUMNS, label="label")
    )
    data = source.predictions(*DAY)
    assert data.ids.tolist() == between(log, *DAY)["id"].tolist()
    assert not hasattr(data, "labels")
