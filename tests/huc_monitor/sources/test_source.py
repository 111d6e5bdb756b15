from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from support.scans import profile

import huc_monitor as hm
from huc_monitor.sources import (
    Columns,
    DuckTable,
    FrameTable,
    LabelTable,
    Partition,
    PredictionSource,
    SQLTable,
    TableSource,
    TooManyBadRowsError,
    concatenate,
)
from huc_monitor.sources._table import Chunk

START, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
TREE = hm.LabelTree.from_nested({"a": ["a1", "a2"], "b": None})
KINDS = ("frame", "parquet", "csv", "duckdb", "sqlite", "postgres")


def rows(n: int = 100, **columns) -> pd.DataFrame:
    times = pd.Timestamp(START) + pd.to_timedelta(np.arange(n), unit="min")
    given = {"id": np.arange(n), "at": times, "p_b": 0.5, "p_a1": 0.2, "p_a2": 0.3, "y": "b"}
    return pd.DataFrame({**given, **columns})


def open_frame(frame: pd.DataFrame, *, tree: hm.LabelTree = TREE, labels=None, **options):
    names = {"time": "at", "probabilities": "p_{leaf}", "id": "id"}
    names |= {"label": None if labels else "y"} | options.pop("columns", {})
    return TableSource(
        FrameTable(frame), tree=tree, columns=Columns(**names), labels=labels, **options
    )


def test_a_table_source_keeps_the_contract_of_a_prediction_source():
    assert isinstance(open_frame(rows()), PredictionSource)


def test_one_unknown_label_is_set_aside_and_counted():
    frame = rows()
    frame.loc[7, "y"] = "c"
    window = open_frame(frame).labelled(START, END)
    assert (window.n, window.n_labelled, window.n_quarantined) == (99, 100, 1)
    assert dict(window.bad_reasons) == {"unknown label": 1}
    (bad,) = window.bad_rows
    assert (bad.id, bad.reason) == (7, "unknown label 'c'")
    assert bad.time == START + timedelta(minutes=7)
    assert 7 not in window.ids.tolist()


def test_too_many_unknown_labels_are_an_error_that_shows_the_first():
    frame = rows()
    frame.loc[:5, "y"] = "c"
    message = r"6 of 100 rows .*, more than 0.05 .* \(6 unknown label\)\. First: id 0, .* label 'c'"
    with pytest.raises(TooManyBadRowsError, match=message):
        open_frame(frame).labelled(START, END)
    assert open_frame(frame, max_bad_share=0.06).labelled(START, END).n == 94


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([np.nan, 0.5, 0.5], "bad probabilities: nan for 'a1'"),
        ([0.5, -0.5, 1.0], "bad probabilities: -0.5 for 'a2'"),
        ([0.5, 0.5, np.inf], "bad probabilities: inf for 'b'"),
        ([0.5, 0.2, 0.2], "bad probabilities: they sum to 0.9"),
    ],
)
def test_bad_probabilities_are_set_aside_with_the_reason(row, reason):
    frame = rows()
    frame.loc[3, ["p_a1", "p_a2", "p_b"]] = row
    source = open_frame(frame)
    for data in (source.labelled(START, END), source.predictions(START, END)):
        assert data.n == 99
        assert [bad.reason for bad in data.bad_rows] == [reason]


def test_only_the_first_few_bad_rows_are_kept_as_examples():
    frame = rows()
    frame.loc[:19, "y"] = "c"
    window = open_frame(frame, max_bad_share=1).labelled(START, END)
    assert window.n_quarantined == 20
    assert [bad.id for bad in window.bad_rows] == [0, 1, 2, 3, 4]


def test_a_cell_that_is_no_number_does_not_end_the_read_of_a_csv_file(make_table):
    frame = rows(p_b=["x"] + ["0.5"] * 99)
    table = make_table("csv", frame, "at")
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    window = TableSource(table, tree=TREE, columns=columns).labelled(START, END)
    assert (window.n, window.n_quarantined) == (99, 1)


def test_rounded_probabilities_are_rescaled_within_the_sum_tolerance():
    frame = rows(p_a1=0.3333, p_a2=0.3333, p_b=0.3333)
    with pytest.raises(TooManyBadRowsError, match=r"they sum to 0.9999"):
        open_frame(frame).labelled(START, END)
    window = open_frame(frame, sum_tolerance=1e-3).labelled(START, END)
    np.testing.assert_allclose(window.probabilities, 1 / 3)
    hm.audit(window.probabilities, window.labels, tree=TREE, utilities=[hm.TopK(1)])


def test_exact_probabilities_are_left_alone_to_the_last_bit():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100)
    frame = rows(p_a1=p[:, 0], p_a2=p[:, 1], p_b=p[:, 2])
    window = open_frame(frame, sum_tolerance=1e-3).labelled(START, END)
    assert (window.probabilities == p).all()


def test_a_leaf_that_the_log_does_not_know_is_an_error_when_the_source_is_opened():
    grown = hm.LabelTree.from_nested({"a": ["a1", "a2", "a3"], "b": None})
    message = r"for every leaf; 3 of 4 columns match `p_{leaf}`; missing: a3\."
    with pytest.raises(hm.UnknownNameError, match=message):
        open_frame(rows(), tree=grown)


@pytest.mark.parametrize("pattern", ["{leaf}", "prob_{leaf}", "{leaf}_score", "p({leaf})"])
def test_what_stands_around_the_leaves_names_is_found_out(pattern):
    names = {f"p_{leaf}": pattern.replace("{leaf}", leaf) for leaf in ("a1", "a2", "b")}
    source = TableSource(
        FrameTable(rows().rename(columns=names)),
        tree=TREE,
        columns=Columns(time="at", label="y"),
    )
    expected = open_frame(rows()).labelled(START, END)
    assert (source.labelled(START, END).probabilities == expected.probabilities).all()


def test_two_patterns_are_told_and_none_is_taken():
    frame = rows()
    both = frame.assign(**{f"base_{leaf}": frame[f"p_{leaf}"] for leaf in ("a1", "a2", "b")})
    with pytest.raises(hm.UnknownNameError, match=r"several patterns fit: p_{leaf}, base_{leaf}"):
        TableSource(FrameTable(both), tree=TREE, columns=Columns(time="at", label="y"))


def test_a_column_of_lists_is_proposed_where_leaves_have_no_columns(tmp_path):
    path = tmp_path / "log.parquet"
    pd.DataFrame({"at": ["2024-01-01"], "y": ["b"], "p": [[0.25, 0.25, 0.5]]}).to_parquet(path)
    with pytest.raises(hm.UnknownNameError, match=r"0 of 3 .* The column 'p' holds lists"):
        TableSource(DuckTable.files(path), tree=TREE, columns=Columns(time="at", label="y"))


@pytest.mark.parametrize("kind", ["f2", "f4"])
@pytest.mark.parametrize("form", ["frame", "parquet", "lists"])
def test_short_floats_may_miss_one_by_their_own_rounding(kind, form, tmp_path):
    n_leaves = 400 if kind == "f4" else 30
    if kind == "f2" and form != "frame":
        return  # Parquet files of two-byte floats are not read by DuckDB
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_leaves), 200).astype(kind)
    p[0] *= 1 + p.dtype.type(4 * np.finfo(kind).eps)
    tree = hm.LabelTree.flat([f"c{k}" for k in range(n_leaves)])
    frame = pd.DataFrame(p, columns=list(tree.leaves)).assign(at="2024-01-01", y="c0")
    columns = Columns(time="at", label="y")
    if form == "lists":
        frame = frame[["at", "y"]].assign(p=list(p))
        columns = Columns(time="at", label="y", list_column="p")
    table = FrameTable(frame)
    if form != "frame":
        frame.to_parquet(tmp_path / "log.parquet")
        table = DuckTable.files(tmp_path / "log.parquet")
    source = TableSource(table, tree=tree, columns=columns, max_bad_share=0.0)
    read = source.labelled(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    assert np.abs(read.probabilities.sum(axis=1) - 1).max() < 1e-6


def test_a_leaf_removed_from_the_tree_is_named_when_rows_no_longer_sum_to_one():
    pruned = hm.LabelTree.flat(["a1", "b"])
    message = r"sum to 0.7.* The log also has 'p_a2': is a leaf missing from the tree\? See tree_ch"
    with pytest.raises(TooManyBadRowsError, match=message):
        open_frame(rows(), tree=pruned).labelled(START, END)


def test_a_window_in_which_the_model_version_changes_says_so_and_is_not_split():
    frame = rows(v=[3] * 60 + [4] * 39 + [None])
    window = open_frame(frame, columns={"model_version": "v"}).labelled(START, END)
    assert window.n == 100
    assert window.versions == {"3": 60, "4": 39, "": 1}
    old = window.take(window.model_versions == "3")
    assert (old.n, len(old.features), old.labels.shape) == (60, 60, (60,))
    assert old.versions == {"3": 60}
    assert (window.version, old.version) == (None, "3"), "nearly all rows make it a version's"
    assert open_frame(frame).labelled(START, END).versions == {}


def test_columns_can_be_named_one_by_one():
    mapping = {"b": "p_b", "a1": "p_a1", "a2": "p_a2"}
    window = open_frame(rows(), columns={"probabilities": mapping}).labelled(START, END)
    assert window.probabilities[0].tolist() == [0.2, 0.3, 0.5]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"probabilities": "p_leaf"}, r"must be a pattern with \{leaf\} in it"),
        ({"probabilities": {"a1": "p_a1", "b": "p_b"}}, "it misses 'a2'"),
        ({"probabilities": {"a1": "x", "a2": "x", "b": "x", "c": "x"}}, "it has 'c'"),
        ({"list_column": "p", "classes": ["a1", "b"]}, "'a2' among the differences"),
        ({"list_column": "p", "classes": ["a1", "b", "b"]}, "`classes` must name every leaf"),
        ({"list_column": "p"}, r"must have the column 'p' \(the list of probabilities\)"),
        ({"time": "when"}, r"must have the column 'when' \(the time\)"),
        ({"features": ["age"]}, r"must have the column 'age' \(a feature"),
        ({"time_zone": "Mars/Base"}, "`time_zone` must be an IANA time zone; got 'Mars/Base'"),
        ({"time_unit": "min"}, "`time_unit` must be 's', 'ms', 'us' or 'ns'; got 'min'"),
        ({"label": None}, "got neither"),
        ({"label": "p_b"}, r"'p_b' once; it is the label and the probability of the leaf 'b'"),
        ({"features": ["p_a1"]}, "it is a feature of the subgroups and the probability of"),
        ({"id": "p", "list_column": "p"}, "it is the id and the list of probabilities"),
    ],
)
def test_wrong_columns_are_named_when_the_source_is_opened(columns, message):
    with pytest.raises(hm.InvalidInputError, match=message):
        open_frame(rows(), columns=columns)


def test_a_prediction_that_comes_again_counts_once():
    frame = rows()
    again = pd.concat([frame, frame.iloc[:30], frame.iloc[:3].assign(at=frame["at"].max())])
    window = open_frame(again).labelled(START, END)
    assert (window.n, window.n_duplicate_ids, window.n_quarantined) == (100, 33, 0)
    assert window.n_labelled == 133
    once = open_frame(frame).labelled(START, END)
    assert (window.times == once.times).all()
    assert open_frame(again).predictions(START, END).n == 100


def test_of_different_predictions_under_one_id_the_first_by_time_is_kept():
    frame = rows()
    other = frame.iloc[[7]].assign(at=frame["at"][50], p_b=0.1, p_a2=0.7)
    window = open_frame(pd.concat([other, frame])).labelled(START, END)
    assert (window.n, window.n_duplicate_ids) == (100, 0)
    assert dict(window.bad_reasons) == {"repeated id with another prediction": 1}
    assert window.probabilities[7].tolist() == [0.2, 0.3, 0.5]
    assert [(bad.id, bad.time.minute) for bad in window.bad_rows] == [(7, 50)]


def test_an_id_that_names_no_prediction_is_an_error_that_says_so():
    frame = rows(id=np.arange(100) % 10, p_b=np.linspace(0, 0.5, 100))
    frame["p_a1"] = 0.7 - frame["p_b"]
    with pytest.raises(TooManyBadRowsError, match=r"`columns\.id` must name one prediction each"):
        open_frame(frame).labelled(START, END)


def test_different_labels_of_one_id_in_the_log_set_all_its_rows_aside():
    frame = rows()
    again = pd.concat([frame, frame.iloc[[3, 4]].assign(y=["a1", "b"])])
    window = open_frame(again).labelled(START, END)
    assert dict(window.bad_reasons) == {"conflicting labels": 2}
    assert (window.n, window.n_duplicate_ids) == (99, 1)
    assert 3 not in window.ids.tolist()


def test_rows_without_an_id_are_never_the_same():
    frame = rows(id=[None] * 100)
    assert open_frame(frame).labelled(START, END).n == 100


def test_two_columns_of_one_name_are_refused_and_a_number_in_a_name_is_not(tmp_path):
    def write(names):
        columns = [pa.array([0.1]), pa.array([[{"b": 1, "c": 2}]]), pa.array([0.2])]
        pq.write_table(pa.Table.from_arrays(columns, names=names), tmp_path / "log.parquet")
        text = ",".join(names) + "\n0.1,x,0.2\n"
        (tmp_path / "log.csv").write_text(text, "utf-8")

    for kind in ("parquet", "csv"):
        write(["b", "nested", "b_1"])
        assert list(DuckTable.files(tmp_path / f"log.{kind}").columns()) == ["b", "nested", "b_1"]
        write(["b", "nested", "b"])
        with pytest.raises(hm.InvalidInputError, match="distinct columns; got 'b' more than once"):
            DuckTable.files(tmp_path / f"log.{kind}").columns()


def test_an_empty_text_is_no_id():
    frame = rows(id=[""] * 3 + [f"i{k}" for k in range(97)])
    window = open_frame(frame).labelled(START, END)
    assert (window.n, window.n_duplicate_ids) == (100, 0)


@pytest.mark.parametrize("n_parts", [1, 3])
def test_a_window_too_large_to_hold_counts_each_prediction_once(monkeypatch, n_parts):
    from huc_monitor.sources import _repeats
    from huc_monitor.sources.large import LargeSource

    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], size=100)
    labels = np.array(TREE.leaves)[[rng.choice(3, p=q) for q in p]]
    frame = rows(p_a1=p[:, 0], p_a2=p[:, 1], p_b=p[:, 2], y=labels)
    again = pd.concat([frame.iloc[:30], frame, frame.iloc[[40]].assign(y="b", p_b=p[41, 2])])
    monkeypatch.setattr(_repeats, "_MOST_HASHES", -(-131 // n_parts))
    names = {"time": "at", "probabilities": "p_{leaf}", "id": "id", "label": "y"}
    source = LargeSource(
        FrameTable(again), tree=TREE, columns=Columns(**names), most_rows=10, sum_tolerance=2.0
    )
    utilities = [hm.TopK(1)]
    found = source.audit(
        START,
        END,
        as_of=None,
        utilities=utilities,
        subgroups=hm.Subgroups.whole(),
        options=hm.AuditOptions(bounds=None),
    )
    held = open_frame(again, sum_tolerance=2.0).labelled(START, END)
    wanted = hm.audit(held.probabilities, held.labels, tree=TREE, utilities=utilities, bounds=None)
    assert found.n == wanted.n == held.n
    assert found.huc == pytest.approx(wanted.huc, abs=1e-12)


def test_rows_of_equal_time_are_ordered_by_id_whatever_their_order_in_the_log():
    frame = rows(at=pd.Timestamp(START))
    shuffled = frame.sample(frac=1, random_state=0)
    window = open_frame(shuffled).labelled(START, END)
    assert window.ids.tolist() == list(range(100))


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_rows_are_in_the_order_of_time_and_then_of_id(kind, is_sorted):
    rng = np.random.default_rng(0)
    at = pd.Timestamp(START) + pd.to_timedelta(rng.integers(0, 40, 100), unit="min")
    frame = rows(at=at, id=rng.permutation(100).astype(kind).astype(object))
    frame["id"] = frame["id"].infer_objects()
    frame = frame.sort_values("at") if is_sorted else frame
    window = open_frame(frame).labelled(START, END)
    assert window.ids.tolist() == frame.sort_values(["at", "id"])["id"].tolist()


def test_ids_of_different_types_in_one_log_stay_what_they_are(monkeypatch):
    frame = rows(id=pd.Series([*range(50), *map(str, range(50))], dtype=object))

    def halves(self, *_):
        yield from (Chunk(self.frame[:50].infer_objects()), Chunk(self.frame[50:]))

    monkeypatch.setattr(FrameTable, "scan", halves)
    window = open_frame(frame).labelled(START, END)
    assert window.ids.tolist() == frame["id"].tolist()


def test_reading_leaves_the_frame_as_it_was():
    frame = rows()
    before = frame.copy(deep=True)
    open_frame(frame, sum_tolerance=0.1).labelled(START, END)
    pd.testing.assert_frame_equal(frame, before)


LATE = pd.Timestamp(START) + pd.Timedelta(hours=30)


def late(table: pd.DataFrame) -> LabelTable:
    return LabelTable(table=FrameTable(table), id="key", label="y", time="seen")


def test_different_labels_of_equal_times_are_set_aside_whatever_their_order():
    labels = pd.DataFrame({"key": [1, 1, 2, 2, 1], "y": ["a2", "b", "b", "b", "a1"], "seen": LATE})
    for order in ([0, 1, 2, 3, 4], [1, 3, 4, 2, 0], [4, 2, 0, 1, 3]):
        source = open_frame(rows(), labels=late(labels.iloc[order]), max_bad_share=0.6)
        window = source.labelled(START, END)
        assert (window.ids.tolist(), window.labels.tolist()) == ([2], [2])
        assert dict(window.bad_reasons) == {"conflicting labels": 1}
        assert (window.n_labelled, window.n_duplicate_labels, window.n_changed_labels) == (2, 3, 0)
        assert window.counts == source.counts(START, END)


def test_a_later_label_replaces_an_earlier_one_and_is_counted_if_it_differs():
    seen = [LATE, LATE + pd.Timedelta("1h"), LATE, LATE + pd.Timedelta("1h")]
    labels = pd.DataFrame({"key": [1, 1, 2, 2], "y": ["a2", "b", "b", "b"], "seen": seen})
    window = open_frame(rows(), labels=late(labels)).labelled(START, END)
    assert (window.labels.tolist(), window.n_quarantined) == ([2, 2], 0)
    assert (window.n_duplicate_labels, window.n_changed_labels) == (2, 1)


def test_different_labels_without_a_time_are_set_aside():
    labels = pd.DataFrame({"key": [*range(100), 5], "y": ["b"] * 100 + ["a1"]})
    table = LabelTable(table=FrameTable(labels), id="key", label="y")
    window = open_frame(rows(), labels=table).labelled(START, END)
    assert (window.n, dict(window.bad_reasons)) == (99, {"conflicting labels": 1})


def test_labels_of_other_windows_and_missing_labels_do_not_count():
    labels = pd.DataFrame({"key": [5, 999, 6], "y": ["b", "b", None], "seen": LATE})
    window = open_frame(rows(), labels=late(labels)).labelled(START, END)
    assert (window.n, window.n_labelled, window.n_predictions) == (1, 1, 100)
    assert window.n_duplicate_labels == 0


def test_ids_meet_although_one_table_stores_whole_numbers_as_floats():
    labels = pd.DataFrame({"key": [5.0, 6.0, None], "y": "b", "seen": LATE})
    window = open_frame(rows(), labels=late(labels)).labelled(START, END)
    assert window.ids.tolist() == [5, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_meet_although_one_table_stores_them_as_numbers_and_the_other_as_text(kind, make_table):
    frame = rows(20).drop(columns="y")
    labels = pd.DataFrame({"key": [str(i) for i in range(5)] + ["x"], "y": "a1", "seen": LATE})
    for log, late_labels in (
        (frame, labels),
        (frame.assign(id=frame["id"].astype(str)), labels.iloc[:5].assign(key=range(5))),
    ):
        source = TableSource(
            make_table(kind, log, "at"),
            tree=TREE,
            columns=Columns(time="at", probabilities="p_{leaf}", id="id"),
            labels=LabelTable(table=make_table(kind, late_labels, "seen"), id="key", label="y"),
        )
        window = source.labelled(START, END)
        assert window.labels.tolist() == [0] * 5
        assert window.counts == source.counts(START, END)
        assert window.label_times is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_without_a_time_is_known_until_one_with_a_time_replaces_it(kind, make_table):
    frame = rows(4).drop(columns="y")
    labels = pd.DataFrame({"key": [0, 1, 2, 2], "y": ["a1", "b", "a1", "b"]})
    labels["seen"] = pd.Series([LATE, pd.NaT, pd.NaT, LATE])
    source = TableSource(
        make_table(kind, frame, "at"),
        tree=TREE,
        columns=Columns(time="at", probabilities="p_{leaf}", id="id"),
        labels=LabelTable(table=make_table(kind, labels, "seen"), id="key", label="y", time="seen"),
    )
    early = source.labelled(START, END, as_of=LATE - timedelta(days=1))
    assert (early.ids.tolist(), early.labels.tolist()) == ([1, 2], [2, 0])
    late = source.labelled(START, END, as_of=LATE)
    assert (late.ids.tolist(), late.labels.tolist()) == ([0, 1, 2], [0, 2, 2])
    assert late.counts == source.counts(START, END, as_of=LATE)


@pytest.mark.parametrize(
    ("leaves", "values", "codes"),
    [
        (["x", "y"], ["x", "y"], [0, 1]),
        (["x", "y"], [0, 1], [0, 1]),
        (["x", "y"], [0.0, 1.0], [0, 1]),
        (["x", "y"], ["0", "1"], [0, 1]),
        (["1", "0"], [0, 1], [1, 0]),
        (["1", "0"], ["0", "1"], [1, 0]),
        (["x", "y"], [np.int8(1), np.float32(0)], [1, 0]),
    ],
)
def test_whole_numbers_are_names_where_leaves_have_such_names_and_codes_elsewhere(
    leaves, values, codes
):
    at = pd.Timestamp(START)
    frame = pd.DataFrame({"at": at, leaves[0]: 0.5, leaves[1]: 0.5, "label": values})
    columns = Columns(time="at", label="label")
    source = TableSource(FrameTable(frame), tree=hm.LabelTree.flat(leaves), columns=columns)
    assert source.labelled(START, END).labels.tolist() == codes


@pytest.mark.parametrize("value", [2, -1, 0.5, True, "2", "", ("x", "w"), b"x"])
def test_what_is_no_leaf_and_no_code_is_an_unknown_label(value):
    frame = pd.DataFrame({"at": [pd.Timestamp(START)], "x": 0.5, "z": 0.5})
    frame["y"] = pd.Series([value], dtype=object)
    source = TableSource(
        FrameTable(frame),
        tree=hm.LabelTree.flat(["x", "z"]),
        columns=Columns(time="at", label="y"),
        max_bad_share=1,
    )
    assert dict(source.labelled(START, END).bad_reasons) == {"unknown label": 1}


def test_codes_are_positions_in_the_classes_of_a_list_column():
    frame = pd.DataFrame({"at": pd.Timestamp(START), "p": [[0.1, 0.2, 0.7]] * 3, "y": [0, 1, 2]})
    columns = Columns(time="at", list_column="p", classes=["b", "a2", "a1"], label="y")
    window = TableSource(FrameTable(frame), tree=TREE, columns=columns).labelled(START, END)
    assert window.probabilities[0].tolist() == [0.7, 0.2, 0.1]
    assert window.labels.tolist() == [2, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("day", "hours"), [("2024-03-31", 23), ("2024-10-27", 25)])
def test_wall_times_on_the_day_the_clocks_change_are_read_in_their_zone(
    kind, day, hours, make_table
):
    berlin = ZoneInfo("Europe/Berlin")
    day = datetime.fromisoformat(day)
    wall = [day - timedelta(hours=12) + timedelta(minutes=30 * i) for i in range(96)]
    frame = rows(96, at=pd.Series(wall))
    columns = Columns(
        time="at", probabilities="p_{leaf}", label="y", id="id", time_zone="Europe/Berlin"
    )
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    start = day.replace(tzinfo=berlin)
    end = (day + timedelta(days=1)).replace(tzinfo=berlin)
    assert end.astimezone(UTC) - start.astimezone(UTC) == timedelta(hours=hours)
    window = source.labelled(start, end)
    # Every wall time of the day is there once, also those that the clocks skip or repeat.
    assert window.ids.tolist() == list(range(24, 72))
    assert window.n_predictions == source.counts(start, end).n_predictions == 48
    moments = window.times
    assert (np.diff(moments) >= np.timedelta64(0, "us")).all()
    # Cutting the day anywhere loses nothing and doubles nothing.
    for minutes in range(75, 60 * hours, 285):
        cut = start.astimezone(UTC) + timedelta(minutes=minutes)
        parts = source.counts(start, cut).n_predictions, source.counts(cut, end).n_predictions
        assert sum(parts) == 48
        assert parts[0] == (moments < np.datetime64(cut.replace(tzinfo=None))).sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("ns", 10**9)])
def test_times_can_be_numbers_since_1970(kind, unit, per_second, make_table):
    seconds = int(START.timestamp()) + 60 * np.arange(100)
    frame = rows(at=seconds * per_second)
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id", time_unit=unit)
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    assert source.time_range().first == START
    window = source.labelled(START + timedelta(minutes=10), START + timedelta(minutes=20))
    assert window.ids.tolist() == list(range(10, 20))
    assert source.advance(START, 10) == START + timedelta(minutes=10)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_time_are_counted(kind, make_table):
    frame = rows()
    frame.loc[[3, 40], "at"] = pd.NaT
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    extent = source.time_range()
    assert (extent.first, extent.n_untimed) == (START, 2)
    assert source.labelled(START, END).n == 98


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "sqlite"])
@pytest.mark.parametrize("odd", ["soon", "02.01.2024 00:00"])
def test_a_text_that_is_no_time_is_counted_and_hides_no_other_row(kind, odd, make_table):
    frame = rows()
    frame["at"] = frame["at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    frame.loc[7, "at"] = odd
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    extent = source.time_range()
    assert (extent.first, extent.last) == (START, START + timedelta(minutes=99))
    assert extent.n_untimed == 1
    assert source.labelled(START, END).n == 99


@pytest.mark.parametrize("kind", ["frame", "parquet", "csv", "sqlite"])
def test_a_column_without_any_time_is_no_empty_log(kind, make_table):
    frame = rows()
    frame["at"] = frame["at"].dt.strftime("%d.%m.%Y %H:%M")
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    with pytest.raises(hm.InvalidInputError, match=r"(none of the 100 rows|ISO times).*'at'"):
        source.time_range()


@pytest.mark.parametrize("kind", ["frame", "parquet", "sqlite"])
def test_a_unit_that_makes_times_endless_is_refused(kind, make_table):
    frame = rows(at=1000 * (int(START.timestamp()) + 60 * np.arange(100)))
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id", time_unit="s")
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    with pytest.raises(hm.InvalidInputError, match=r"got 55969-.* Check `time_unit`"):
        source.time_range()


@pytest.mark.parametrize("kind", ["frame", "parquet", "postgres"])
def test_a_unit_changes_nothing_about_times_that_are_no_numbers(kind, make_table):
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id", time_unit="ms")
    source = TableSource(make_table(kind, rows(), "at"), tree=TREE, columns=columns)
    assert source.time_range().first == START
    assert source.labelled(START, END).times[0] == np.datetime64("2024-01-01")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_without_a_unit_are_refused(kind, make_table):
    frame = rows(at=range(100))
    columns = Columns(time="at", probabilities="p_{leaf}", label="y")
    source = TableSource(make_table(kind, frame, "at"), tree=TREE, columns=columns)
    with pytest.raises(hm.InvalidInputError, match=r"`time_unit` must be given .* column 'at'"):
        source.counts(START, END)


@pytest.mark.parametrize(
    ("form", "matches"),
    [
        ("%Y-%m-%d", False),
        ("%Y-%m-%d %H:%M", True),
        ("%Y-%m-%d %H:%M:%S", True),
        ("%Y-%m-%dT%H:%M:%S.%f", True),
        ("%Y-%m-%dT%H:%M:%SZ", True),
        ("%Y-%m-%d %H:%M:%S.%f+00:00", True),
    ],
)
def test_texts_in_one_iso_form_are_times_in_sqlite(form, matches, make_table):
    frame = rows()
    frame["at"] = frame["at"].dt.strftime(form)
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(make_table("sqlite", frame, "at"), tree=TREE, columns=columns)
    ids = source.labelled(START, START + timedelta(minutes=10, microseconds=1)).ids.tolist()
    assert ids == (list(range(11)) if matches else list(range(100)))


def test_texts_with_another_offset_cannot_be_compared_and_are_refused(make_table):
    frame = rows(at="2024-01-01T00:00:00+02:00")
    columns = Columns(time="at", probabilities="p_{leaf}", label="y")
    source = TableSource(make_table("sqlite", frame, "at"), tree=TREE, columns=columns)
    with pytest.raises(hm.InvalidInputError, match=r"must hold ISO times .* got '2024-01-01T00:00"):
        source.counts(START, END)


@pytest.mark.parametrize("ends", [("Z", "+02:00"), ("", "Z"), ("", "-05:00"), ("+00:00", "")])
def test_texts_of_several_offsets_in_one_column_are_refused(ends, make_table):
    frame = rows()
    offset = np.where(np.arange(100) < 50, *ends)
    frame["at"] = frame["at"].dt.strftime("%Y-%m-%dT%H:%M:%S") + offset
    columns = Columns(time="at", probabilities="p_{leaf}", label="y")
    source = TableSource(make_table("sqlite", frame, "at"), tree=TREE, columns=columns)
    with pytest.raises(
        hm.InvalidInputError, match=r"must have one offset in all rows .* got '2024"
    ):
        source.time_range()


def test_declared_times_of_sqlite_are_compared_as_they_are_stored(tmp_path):
    url = f"sqlite:///{tmp_path / 'log.db'}"
    engine = sa.create_engine(url)
    frame = rows()
    frame["at"] = frame["at"].dt.tz_localize(None)
    frame.to_sql("log", engine, index=False)  # declares DATETIME, stores text
    engine.dispose()
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(SQLTable(url, "log"), tree=TREE, columns=columns)
    assert source.labelled(START, START + timedelta(minutes=3)).ids.tolist() == [0, 1, 2]


def test_a_window_reads_its_own_partition_and_the_needed_columns_only(make_table):
    frame = rows(3 * 24 * 60, at=pd.date_range(START, periods=3 * 24 * 60, freq="min"), junk="x")
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    source = TableSource(make_table("hive", frame, "at"), tree=TREE, columns=columns)
    found = profile(source, START + timedelta(days=1), END + timedelta(days=1))
    assert (found.n_files_read, found.n_files) == (1, 3)
    assert found.n_rows_read == 24 * 60
    assert "junk" not in found.plan
    assert set(found.columns) == {"at", "p_a1", "p_a2", "p_b", "y", "id"}


def test_without_a_promise_about_folders_no_row_is_lost(make_table, tmp_path):
    frame = rows(3 * 24 * 60, at=pd.date_range(START, periods=3 * 24 * 60, freq="min"))
    make_table("hive", frame, "at")
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    table = DuckTable.files(tmp_path / "hive1")
    source = TableSource(table, tree=TREE, columns=columns)
    start, end = START + timedelta(hours=20), START + timedelta(hours=28)
    assert source.labelled(start, end).ids.tolist() == list(range(1200, 1680))
    kolkata = DuckTable.files(tmp_path / "hive1", partition=Partition(columns={"day": "%Y-%m-%d"}))
    source = TableSource(kolkata, tree=TREE, columns=columns)
    assert source.labelled(start, end).ids.tolist() == list(range(1200, 1680))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: DuckTable.files(path / "no.parquet").columns(),
            "no.parquet' could not be read: there is no such file",
        ),
        (
            lambda path: (path / "log.txt").touch() or DuckTable.files(path / "log.txt"),
            "`path` must end in one of .parquet",
        ),
        (
            lambda path: (path / "labels").mkdir() or DuckTable.files(path / "label"),
            r"must be a file or folder; there is no '.*label'\. Did you mean 'labels'\?",
        ),
        (lambda path: DuckTable.database(path / "no.duckdb", "t"), "must be an existing file"),
        (lambda _: SQLTable("nonsense", "t").columns(), "its URL cannot be parsed"),
        (lambda path: SQLTable(f"sqlite:///{path}/x.db", "t").columns(), "got 't'"),
        (lambda _: FrameTable([1]), "must be a DataFrame; got list"),
        (lambda _: FrameTable(pd.DataFrame([[1, 2]], columns=["a", "a"])), "got 'a' more than"),
    ],
)
def test_tables_that_are_not_there_are_named(make, message, tmp_path):
    with pytest.raises(hm.InvalidInputError, match=message):
        make(tmp_path)


@pytest.mark.parametrize("n", [60, 600])  # of the bytes; within the first rows that are looked at
def test_a_csv_file_that_is_still_being_written_is_asked_about(n, tmp_path):
    text = rows(50).to_csv(index=False)
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text(text[: text.index("\n") + n])
    with pytest.raises(hm.InvalidInputError, match=r"last line of b.csv is not complete: is it st"):
        DuckTable.files(tmp_path / "*.csv").columns()


def test_an_unknown_table_of_a_duckdb_file_is_answered_with_those_there(make_table, tmp_path):
    make_table("duckdb", rows(), "at")
    with pytest.raises(hm.InvalidInputError, match=r"got 'logs'. There are: 'log'"):
        DuckTable.database(tmp_path / "duckdb1", "logs")


def test_a_password_is_never_shown():
    url = "postgresql+psycopg://me:hunter2@/db?host=/nowhere"
    for text in (repr(SQLTable(url, "log")), SQLTable(url, "log").name):
        assert "hunter2" not in text
    with pytest.raises(hm.InvalidInputError, match="SQL table 'log' could not be read") as caught:
        SQLTable(url, "log").columns()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_adjacent_ranges_join_into_one_window():
    frame = rows(v="1")
    frame.loc[[3, 90], "y"] = "c"
    source = open_frame(frame, columns={"model_version": "v"})
    middle = START + timedelta(minutes=50)
    whole = source.labelled(START, END)
    joined = concatenate([source.labelled(START, middle), source.labelled(middle, END)])
    assert joined.ids.tolist() == whole.ids.tolist()
    assert (joined.probabilities == whole.probabilities).all()
    assert joined.counts == whole.counts
    assert (joined.bad_rows, joined.n_quarantined) == (whole.bad_rows, 2)
    assert joined.versions == whole.versions
    assert (joined.start, joined.end) == (START, END)
    with pytest.raises(hm.InvalidInputError, match="must follow one another without a gap"):
        concatenate([source.labelled(middle, END), source.labelled(START, middle)])
    with pytest.raises(hm.InvalidInputError, match="must hold at least one range"):
        concatenate([])


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (END, START, "`end` must not be before `start`"),
        (START.replace(tzinfo=None), END, "`start` must be a datetime with a time zone"),
    ],
)
def test_a_range_needs_an_order_and_a_zone(start, end, message):
    with pytest.raises(hm.InvalidInputError, match=message):
        open_frame(rows()).labelled(start, end)


def test_an_empty_log_has_no_time_range(make_table):
    for kind in ("frame", "parquet", "sqlite"):
        empty = rows().iloc[:0]
        columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
        source = TableSource(make_table(kind, empty, "at"), tree=TREE, columns=columns)
        assert source.time_range() is None
        assert source.labelled(START, END).n == 0
        assert source.advance(START, 1) is None


def test_labels_at_any_depth_paths_and_spellings_are_read_and_strange_ones_counted_by_name():
    frame = rows(n=100)
    frame["y"] = [*(["a", "a/a2", '["a1", "a2"]', "Beta", "b"] * 20)[:97], "zeta", "zeta", "eta"]
    source = open_frame(frame, label_mapping={"Beta": "b"})
    window = source.labelled(START, END)
    branch = TREE.n_leaves + TREE.branch_index("a")
    assert window.labels[:5].tolist() == [branch, 1, branch, 2, 2]
    assert dict(window.unknown_labels) == {"zeta": 2, "eta": 1}
    message = r"no node of the tree: 'zeta' \(2 rows\), 'eta' .*New leaf\? Put it into the tree, or"
    with pytest.raises(TooManyBadRowsError, match=message):
        open_frame(frame, label_mapping={"Beta": "b"}, max_bad_share=0.0).labelled(START, END)


def test_clusters_and_label_probabilities_come_with_the_rows():
    users = [f"u{k // 4}" for k in range(100)]
    frame = rows(user=users, chosen=np.linspace(0.01, 1, 100))
    columns = {"cluster": "user", "label_probability": "chosen"}
    window = open_frame(frame, columns=columns).labelled(START, END)
    assert np.unique(window.clusters).size == 25
    np.testing.assert_allclose(window.label_probability, frame["chosen"])
    few = window.take(np.arange(8))
    assert np.unique(few.clusters).size == 2
    half = START + timedelta(minutes=50)
    source = open_frame(frame, columns=columns)
    both = concatenate([source.labelled(START, half), source.labelled(half, END)])
    np.testing.assert_array_equal(both.clusters, window.clusters)
    np.testing.assert_array_equal(both.label_probability, window.label_probability)


def test_blocks_of_time_are_clusters():
    window = open_frame(rows(), columns={"cluster_block": "30m"}).labelled(START, END)
    counts = np.unique(window.clusters, return_counts=True)[1]
    assert sorted(counts.tolist()) == [10, 30, 30, 30]
    with pytest.raises(hm.InvalidInputError, match="not both"):
        open_frame(rows(user=1), columns={"cluster_block": "30m", "cluster": "user"})


def test_rows_without_a_cluster_or_a_possible_probability_are_set_aside():
    frame = rows(user=[None, *range(99)], chosen=[0.5] * 99 + [1.5])
    columns = {"cluster": "user", "label_probability": "chosen"}
    window = open_frame(frame, columns=columns).labelled(START, END)
    assert dict(window.bad_reasons) == {"no cluster": 1, "label probability not in (0, 1]": 1}
    assert [bad.id for bad in window.bad_rows] == [0, 99]
    assert window.n == 98


@pytest.mark.parametrize("given", ["A1", " a1 ", "A1_"])
def test_labels_in_other_letters_are_answered_with_the_leaf(given):
    message = rf"'{given}' \(100 rows\)\. Did you mean 'a1'\? Only the spelling .*label_mapping"
    with pytest.raises(TooManyBadRowsError, match=message):
        open_frame(rows(y=given)).labelled(START, END)
