"""Windows larger than a memory limit against the audit in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.sparse_rows import as_dense
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.config import parse_config
from huc_monitor.detection.history import rounded
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor import Monitor
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, LabelTable, TableSource
from huc_monitor.sources.large import LargeSource, Rows, audit_pieces, bytes_of, compare_pieces

pytestmark = pytest.mark.seconds

TREE = hm.LabelTree.from_nested({"left": {"a": None, "b": None, "e": None}, "right": ["c", "d"]})
UTILITIES = [
    hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25}),
    hm.LevelCorrectness(level=1),
]


def window(n, *, seed=0, distinct=None):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 1.5), n)[rng.integers(0, distinct or n, n)]
    frame = pd.DataFrame({"g": rng.choice(["x", "y"], n), "w": rng.uniform(-1, 1, n)})
    return p, rng.integers(0, 5, n), frame


def reader(p, labels, frame, weights=None, *, size=997):
    def read():
        for lo in range(0, len(p), size):
            part = slice(lo, lo + size)
            features = frame.iloc[part].reset_index(drop=True)
            yield Rows(p[part], labels[part], features, None if weights is None else weights[part])

    return read


def groups_of(frame):
    return hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})


@pytest.mark.parametrize("distinct", [None, 500, 3])
@pytest.mark.parametrize("bounds", ["sharp", "bootstrap"])
def test_a_window_from_disk_gives_the_audit_in_memory(bounds, distinct):
    p, labels, frame = window(20_000, distinct=distinct)
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups_of(frame), "n_draws": 64}
    # Runs of a thousand rows: the least that the limit can ask for.
    found = audit_pieces(reader(p, labels, frame), bounds=bounds, memory_limit="1MB", **options)
    expected = hm.audit(p, labels, features=frame, bounds=bounds, **options)
    pd.testing.assert_frame_equal(
        found.to_frame(all_columns=True), expected.to_frame(all_columns=True), rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(found.candidates.moment, expected.candidates.moment)
    pd.testing.assert_frame_equal(found.uc_frame(), expected.uc_frame(), rtol=0, atol=0)


def test_weights_and_zero_probabilities_are_those_of_the_audit_in_memory():
    p, labels, frame = window(3_000)
    p[-1] = [0, 0, 0, 0, 1]
    weights = np.random.default_rng(1).integers(0, 3, len(p))
    weights[997:1994] = 0  # a whole piece that does not count
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups_of(frame), "n_draws": 64}
    found = audit_pieces(reader(p, labels, frame, weights), memory_limit="1MB", **options)
    expected = hm.audit(p, labels, features=frame, weights=weights, **options)
    assert found.interiorized
    assert expected.interiorized
    pd.testing.assert_frame_equal(
        found.to_frame(all_columns=True), expected.to_frame(all_columns=True), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("distinct", [None, 40])
def test_windows_from_disk_give_the_comparisons_in_memory(distinct, tmp_path):
    parts = [window(n, seed=k, distinct=distinct) for k, n in enumerate((6_000, 3_000, 2_000))]
    plan = AuditPlan.of(
        tree=TREE, utilities=UTILITIES, subgroups=groups_of(parts[0][2]), n_draws=64
    )
    read = []

    def counted(k, rows):
        return lambda: (read.append(k), rows())[1]

    reads = [counted(k, reader(*part)) for k, part in enumerate(parts)]
    found = compare_pieces(reads, plan=plan, pools=(1, 2), memory_limit="1MB", folder=tmp_path)
    assert sorted(read) == [0, 1, 2]  # every row once, whatever is pooled
    made = [
        rounded(make_sample(check_predictions(p, tree=TREE), y, plan, features=frame))
        for p, y, frame in parts
    ]
    for k, one in enumerate(found, 1):
        expected = compare_samples(made[0], Sample.join(made[1 : k + 1]), plan)
        pd.testing.assert_frame_equal(
            one.to_frame(all_columns=True), expected.to_frame(all_columns=True), rtol=0, atol=1e-13
        )
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_on_disk(tmp_path):
    p, labels, frame = window(100)
    read = reader(p, labels, frame)
    audit_pieces(read, tree=TREE, utilities=UTILITIES, bounds=None, folder=tmp_path)
    bad = [Rows(p, labels), Rows(-p, labels)]
    with pytest.raises(InvalidInputError, match="must be at least 0"):
        audit_pieces(lambda: bad, tree=TREE, utilities=UTILITIES, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_changes_its_mind_is_refused():
    p, labels, _ = window(100)
    turns = iter([[Rows(p, labels)], [Rows(p[:90], labels[:90])]])
    with pytest.raises(InvalidInputError, match="same rows each time; got 100 rows, then 90"):
        audit_pieces(lambda: next(turns), tree=TREE, utilities=UTILITIES, bounds=None)


def test_weights_of_some_pieces_only_are_refused():
    p, labels, _ = window(100)
    some = [Rows(p, labels), Rows(p, labels, weights=np.full(100, 2.0))]
    with pytest.raises(InvalidInputError, match="given for all pieces, or for none"):
        audit_pieces(lambda: some, tree=TREE, utilities=UTILITIES, bounds=None)


def test_a_window_without_rows_is_refused():
    with pytest.raises(InvalidInputError, match="at least one row of positive weight"):
        audit_pieces(list, tree=TREE, utilities=UTILITIES)


@pytest.mark.parametrize("size", ["", "12 apples", "-1GB", "0"])
def test_a_limit_that_is_no_size_is_refused(size):
    with pytest.raises(InvalidInputError, match="must be a size such as '512MB'"):
        bytes_of(size)


LARGE = """
import json, resource, sys
import numpy as np
import huc_monitor as hm
from huc_monitor.sources.large import Rows, audit_pieces

tree = hm.LabelTree.from_nested({f"g{i}": [f"l{i}{j}" for j in range(4)] for i in range(4)})
utilities = [hm.LevelCorrectness(level=1), hm.TopK(3)]
n_pieces, size = int(sys.argv[1]), 40_000

def read():
    for k in range(n_pieces):
        rng = np.random.default_rng(k)
        p = rng.standard_exponential((size, 16), dtype=np.float32).astype(np.float64) ** 2
        p /= p.sum(axis=1, keepdims=True)
        yield Rows(p, (rng.random(size)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 15))

options = {"tree": tree, "utilities": utilities, "bounds": "sharp"}
warm = [next(read())]
audit_pieces(lambda: warm, memory_limit="128MB", **options)
del warm
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if sys.argv[2] == "pieces":
    result = audit_pieces(read, memory_limit="128MB", **options)
else:
    pieces = list(read())
    p = np.concatenate([rows.probabilities for rows in pieces])
    y = np.concatenate([rows.labels for rows in pieces])
    result = hm.audit(p, y, **options)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"grown": after - before, "result": result.to_dict()}))
"""


@pytest.mark.slow
def test_a_window_four_times_the_limit_stays_within_it():
    """512 MB of probabilities, a limit of 128 MB, each in a process of its own."""
    n_pieces = 100
    assert n_pieces * 40_000 * 16 * 8 == 4 * 128_000_000
    found, expected = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", LARGE, str(n_pieces), how],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for how in ("pieces", "memory")
    )
    assert found["result"] == expected["result"]
    assert found["grown"] < 128_000_000
    assert expected["grown"] > 512_000_000
    print(f"grown by {found['grown'] / 1e6:.0f} MB; in memory by {expected['grown'] / 1e6:.0f} MB")


def production_log(n=4_000):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(5, 1.5), n)
    log = pd.DataFrame(p, columns=[f"p_{leaf}" for leaf in TREE.leaves])
    log["at"] = pd.date_range("2024-01-01", periods=n, freq="1min", tz="UTC")
    log["id"], log["sex"] = np.arange(n), rng.choice(["f", "m"], n)
    log["y"] = np.array(TREE.leaves)[rng.integers(0, 5, n)]
    log.loc[5, "p_a"] = -1.0  # set aside in either case
    return log


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_monitor_that_cannot_hold_a_window_audits_it_all_the_same(late, by_id):
    log = production_log()
    columns = {"time": "at", "probabilities": "p_{leaf}", "features": ("sex",)}
    labels = None
    if late:
        columns["id"] = "id"
        table = FrameTable(log[["id", "y"]].iloc[::-1])
        labels = LabelTable(table=table, id="id", label="y")
    else:
        columns |= {"label": "y", "id": "id" if by_id else None}
    given = {"tree": TREE, "columns": Columns(**columns), "labels": labels}
    held = TableSource(FrameTable(log), **given)
    large = LargeSource(FrameTable(log), most_rows=300, memory_limit="1MB", **given)
    checks = [
        Monitor(
            source=source,
            windows=TimeWindows(length="1d"),
            tree=TREE,
            utilities=UTILITIES,
            subgroups=lambda frame: hm.Subgroups.from_reference(frame, {"sex": "each"}),
            # The e-detector gets a sample, which is less evidence.
            policy=hm.Policy(audit={"bounds": "sharp"}, sequential={"enabled": False}),
        ).check(now="2024-01-04T00:00Z")
        for source in (held, large)
    ]
    assert [len(check) for check in checks] == [3, 3]
    for one, other in zip(*checks, strict=True):
        assert one.audit == other.audit
        if one.change is None:
            assert other.change is None
        else:
            assert one.change.n_after == other.change.n_after
            sizes = [[item.difference for item in found.change.largest] for found in (one, other)]
            assert sizes[0] == pytest.approx(sizes[1], rel=1e-6)
        assert one.levels == other.levels
        assert (one.n_labelled, one.n_predictions) == (other.n_labelled, other.n_predictions)
        assert any("a sample of" in note for note in other.notes)
        assert not any("a sample of" in note for note in one.notes)


@pytest.mark.parametrize("most_rows", [300, 900])
def test_a_monitor_that_cannot_hold_a_window_weighs_its_labels_by_the_plan(most_rows):
    """Days two and three have plans of some 860 rows; labels of other rows are there as well."""
    log = production_log()
    rng = np.random.default_rng(4)
    chance = np.where(log["y"] == "a", 0.9, 0.5)  # by outcome: ignoring the plan would show
    chosen = (rng.random(len(log)) < chance) & (log["at"] >= "2024-01-02")
    plan = FrameTable(pd.DataFrame({"id": log["id"], "pi": chance})[chosen])
    given = {
        "tree": TREE,
        "columns": Columns(time="at", probabilities="p_{leaf}", label="y", id="id"),
        "plan": LabelTable(table=plan, id="id", label="pi"),
    }
    held = TableSource(FrameTable(log), **given)
    large = LargeSource(FrameTable(log), most_rows=most_rows, memory_limit="1MB", **given)
    checks = [
        Monitor(
            source=source,
            windows=TimeWindows(length="1d"),
            tree=TREE,
            utilities=UTILITIES,
            policy=hm.Policy(audit={"n_draws": 200}, sequential={"enabled": False}),
        ).check(now="2024-01-04T00:00Z")
        for source in (held, large)
    ]
    for k, (one, other) in enumerate(zip(*checks, strict=True)):
        pd.testing.assert_frame_equal(one.result.uc_frame(), other.result.uc_frame(), rtol=1e-12)
        assert one.result.n == other.result.n
        designs = [found.result.design for found in (one, other)]
        if k == 0:
            assert designs == [None, None]
        else:
            assert [item.min_label_probability for item in designs] == [0.5, 0.5]
            assert designs[0].n_effective == pytest.approx(designs[1].n_effective)
        if one.change is not None:
            assert one.change.n_after == pytest.approx(other.change.n_after)
            sizes = [[item.difference for item in found.change.largest] for found in (one, other)]
            assert sizes[0] == pytest.approx(sizes[1], rel=1e-6)
        whole = most_rows == 900 and k > 0
        assert any("a sample of" in note for note in other.notes) != whole
    day = datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC)
    some = large.labelled(*day)
    np.testing.assert_array_equal(some.label_probability, chance[some.ids.astype(int)])


@pytest.mark.parametrize("pruned", [False, True])
def test_a_change_is_found_in_all_rows_of_windows_that_cannot_be_held(pruned, monkeypatch):
    log = production_log(5_760)
    late = (log["at"] >= "2024-01-04") & (log["sex"] == "m") & (log["y"] == "b")
    log.loc[late, "y"] = "e"
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", features=("sex",))
    source = LargeSource(FrameTable(log), most_rows=200, tree=TREE, columns=columns)
    if pruned:
        monkeypatch.setattr(LargeSource, "compare", lambda *_, **__: None)
    monitor = Monitor(
        source=source,
        windows=TimeWindows(length="1d"),
        tree=TREE,
        utilities=UTILITIES,
        subgroups=lambda frame: hm.Subgroups.from_reference(frame, {"sex": "each"}),
        policy=hm.Policy(audit={"n_draws": 100}, change={"average_run_length": 20}),
    )
    (*_, quiet, last) = monitor.check(now="2024-01-05T00:00Z")
    assert quiet.change.changes == ()
    if pruned:
        assert last.change.n_before < 300, "the sample that was kept stands in"
        return
    assert (last.change.n_before, last.change.n_after) == (1439, (1440, 4320))
    assert last.change.changes[0].node == "left"
    assert last.change.changes[0].onset_first is not None


def test_labels_are_counted_some_ids_at_a_time(monkeypatch):
    log = production_log()
    labels = log[["id", "y"]].assign(known=log["at"] + pd.Timedelta("1h")).iloc[::3]
    table = LabelTable(table=FrameTable(labels), id="id", label="y", time="known")
    columns = Columns(time="at", probabilities="p_{leaf}", id="id")
    given = {"tree": TREE, "columns": columns, "labels": table}
    day = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC))
    asked = []
    monkeypatch.setattr("huc_monitor.sources._frame.chunk_rows", lambda _: 700)
    large = LargeSource(FrameTable(log), most_rows=10, **given)
    original = FrameTable.lookup
    monkeypatch.setattr(
        FrameTable, "lookup", lambda s, w: asked.append(len(w.among)) or original(s, w)
    )
    for as_of in (None, datetime(2024, 1, 2, tzinfo=UTC)):
        asked.clear()
        found = large.counts(*day, as_of=as_of)
        assert asked == [700, 700, 700, 700, 80]
        assert found == TableSource(FrameTable(log), **given).counts(*day, as_of=as_of)
        assert found.n_predictions == 2880
    assert found.n_labelled == 461, "known by then: of one day less an hour, every third"


def test_a_sample_is_the_same_each_time_and_speaks_of_the_whole_window():
    log = production_log()
    columns = Columns(time="at", probabilities="p_{leaf}", label="y")
    source = LargeSource(FrameTable(log), most_rows=500, tree=TREE, columns=columns)
    day = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    one, two = source.labelled(*day), source.labelled(*day)
    np.testing.assert_array_equal(one.times, two.times)
    assert one.sampled_from == one.n_labelled == 1440
    assert abs(one.n - 500) < 5 * np.sqrt(500)
    early = source.predictions(*day)
    assert (early.n_predictions, abs(early.n - 500) < 5 * np.sqrt(500)) == (1440, True)
    few = LargeSource(FrameTable(log), most_rows=1440, tree=TREE, columns=columns).labelled(*day)
    assert (few.sampled_from, few.n) == (None, 1439)


def test_a_sample_ignores_labels():
    log = production_log()
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", id="id")
    day = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    other = log.assign(y="a")
    one, two = (
        LargeSource(FrameTable(rows), most_rows=500, tree=TREE, columns=columns).labelled(*day)
        for rows in (log, other)
    )
    np.testing.assert_array_equal(one.ids, two.ids)


def test_a_sample_spreads_what_was_not_logged_as_the_whole_reference_has_it():
    log = production_log()
    likeliest = log[[f"p_{leaf}" for leaf in TREE.leaves]].set_axis(TREE.leaves, axis=1)
    log["top"] = [row.nlargest(2).to_dict() for _, row in likeliest.iterrows()]
    top = hm.PredictionColumns(map="top", rest="reference")
    columns = Columns(time="at", probabilities=top, label="y", id="id")
    day = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    given = {"tree": TREE, "columns": columns, "reference": day}
    whole = TableSource(FrameTable(log), **given).labelled(*day)
    some = LargeSource(FrameTable(log), most_rows=500, **given).labelled(*day)
    assert 0 < some.n < whole.n
    same = as_dense(whole.probabilities)[np.isin(whole.ids, some.ids)]
    np.testing.assert_array_equal(as_dense(some.probabilities), same)


def test_at_least_one_row_must_be_held():
    log = production_log(10)
    with pytest.raises(InvalidInputError, match="`most_rows` must be at least 1"):
        LargeSource(
            FrameTable(log),
            most_rows=0,
            tree=TREE,
            columns=Columns(time="at", probabilities="p_{leaf}", label="y"),
        )


CONFIG = """
model: triage
tree: tree.json
source: {log: {path: log.parquet}}
columns: {time: at, label: y, probabilities: "p_{leaf}"}
windows: {length: 1d}
tolerance: 0.02
"""


@pytest.fixture
def folder(tmp_path):
    production_log().to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    return tmp_path


def test_a_configuration_says_how_many_rows_are_held(folder):
    text = CONFIG + "large: {rows: 500, memory_limit: 64MB}\n"
    source = parse_config(text, folder=folder).open_source()
    assert isinstance(source, LargeSource)
    assert (source.most_rows, source.memory_limit) == (500, "64MB")
    span = source.time_range()
    assert source.labelled(span.first, span.last).sampled_from == 3_999
    assert type(parse_config(CONFIG, folder=folder).open_source()) is TableSource


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("large: {rows: 0}", "large.rows"),
        ("large: {memory_limit: much}", "must be a size such as 512MB; got 'much'"),
    ],
)
def test_a_limit_that_makes_no_sense_names_its_line(folder, more, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        parse_config(CONFIG + more + "\n", folder=folder)
    assert "huc.yaml:8:" in str(caught.value)
