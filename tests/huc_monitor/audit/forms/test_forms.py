"""Every form of the same predictions, in Python, in files and on the command line."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
import yaml
from support.prediction_forms import TREE, UTILITIES, all_forms, node_scores, predictions
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.audit.sparse_rows import SparseRows
from huc_monitor.cli import app
from huc_monitor.config import parse_config
from huc_monitor.tree.labels import LeafCodes

CASES = {case.name: case for case in all_forms()}
P, Y = predictions(120)


def audit(rows, labels=tuple(Y)):
    labels = labels if isinstance(labels, LeafCodes) else list(labels)
    return hm.audit(rows, labels, tree=TREE, utilities=UTILITIES, n_draws=50)


DENSE = audit(P).to_dict()


@pytest.mark.parametrize("name", CASES)
def test_a_form_read_in_python_is_the_matrix_where_nothing_was_lost(name):
    case = CASES[name]
    found = audit(hm.read_predictions(case.frame, tree=TREE, **case.words))
    if case.lossless:
        assert found.to_dict() == DENSE
    elif "top-k" in name:
        assert 0.01 < found.unlogged < 0.5
        assert "of the predicted mass was not logged" in found.notes[0]
    else:
        assert found.huc == pytest.approx(DENSE["huc"], abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_form_read_by_a_configuration_is_the_form_read_in_python(name, tmp_path):
    import pyarrow.parquet as pq

    case = CASES[name]
    pq.write_table(case.table, tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    document = {
        "version": 1,
        "model": "m",
        "tree": "tree.json",
        "source": {"log": {"path": "log.parquet"}},
        "windows": {"length": "1d"},
        "columns": {"time": "at", "id": "id", "label": "y", "probabilities": case.words},
    }
    config = parse_config(yaml.safe_dump(document), folder=tmp_path)
    day = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    data = config.open_source().labelled(*day)
    assert isinstance(data.probabilities, SparseRows) == ("top-k" in name)
    found = audit(data.probabilities, LeafCodes(data.labels))
    wanted = audit(hm.read_predictions(case.frame, tree=TREE, **case.words))
    assert found.to_dict() == wanted.to_dict()


@pytest.mark.parametrize("name", CASES)
def test_a_form_read_by_the_command_line_is_the_form_read_in_python(name, tmp_path):
    import pyarrow.parquet as pq

    case = CASES[name]
    pq.write_table(case.table, tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    arguments = [
        "audit",
        str(tmp_path / "log.parquet"),
        "--tree",
        str(tmp_path / "tree.json"),
        "--label",
        "y",
        "--form",
        json.dumps(case.words),
        "--bounds",
        "sharp",
        "--json",
    ]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    rows = hm.read_predictions(case.frame, tree=TREE, **case.words)
    wanted = hm.audit(rows, Y, tree=TREE, bounds="sharp", familiar=True)
    assert json.loads(answer.output)["audit"] == json.loads(json.dumps(wanted.to_dict()))


def test_maps_that_leave_out_zeros_are_the_matrix_with_zeros():
    p, y = predictions(200, zeros=True)
    maps = [
        {leaf: float(value) for leaf, value in zip(TREE.leaves, row, strict=True) if value > 0}
        for row in p
    ]
    found = audit(maps, y)
    assert found.interiorized
    assert found.to_dict() == audit(p, y).to_dict()


def test_a_list_of_maps_and_logits_are_taken_by_audit_itself():
    maps = [dict(zip(TREE.leaves, row, strict=True)) for row in P.tolist()]
    assert audit(maps).to_dict() == DENSE
    found = hm.audit(np.log(P) + 3.0, Y, tree=TREE, utilities=UTILITIES, logits=True, n_draws=50)
    assert found.huc == pytest.approx(DENSE["huc"], abs=1e-9)


def masked():
    p, y = predictions(120, zeros=True)
    with np.errstate(divide="ignore"):
        return p, y, np.log(p) + 3.0


@pytest.mark.parametrize("form", ["columns", "list", "json", "map"])
def test_a_logit_of_minus_infinity_is_probability_0_in_every_form(form, tmp_path):
    p, y, logits = masked()
    rows = [dict(zip(TREE.leaves, row, strict=True)) for row in logits.tolist()]
    found = [
        hm.audit(given, y, tree=TREE, utilities=UTILITIES, logits=True, n_draws=50)
        for given in (logits, pd.DataFrame(logits, columns=TREE.leaves), rows)
    ]
    if form == "columns":
        words, frame = {"pattern": "{leaf}"}, pd.DataFrame(logits, columns=TREE.leaves)
    else:
        words = {"map" if form == "map" else "list": "s"}
        values = rows if form == "map" else logits.tolist()
        frame = pd.DataFrame({"s": [json.dumps(v) for v in values] if form == "json" else values})
    words["scale"] = "logits"
    found.append(audit(hm.read_predictions(frame, tree=TREE, **words), y))
    times = pd.date_range("2024-01-01", periods=120, freq="min", tz="UTC")
    frame.assign(at=times, y=y).to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    document = {
        "version": 1,
        "model": "m",
        "tree": "tree.json",
        "source": {"log": {"path": "log.parquet"}},
        "windows": {"length": "1d"},
        "columns": {"time": "at", "label": "y", "probabilities": words},
    }
    source = parse_config(yaml.safe_dump(document), folder=tmp_path).open_source()
    day = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    data = source.labelled(*day)
    found.append(audit(data.probabilities, LeafCodes(data.labels)))
    dense = audit(p, y)
    for one in found:
        assert one.n == 120
        assert one.huc == pytest.approx(dense.huc, abs=1e-9)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.inf, "the logit inf for 'b'"),
        (np.nan, "the logit nan for 'b'"),
        (-np.inf, "no logit of all leaves is finite"),
    ],
)
def test_logits_that_say_nothing_are_refused_by_the_name_of_the_argument(bad, message):
    _, y, logits = masked()
    logits[7, slice(None) if bad < 0 else 1] = bad
    rows = [dict(zip(TREE.leaves, row, strict=True)) for row in logits.tolist()]
    for given in (logits, rows):
        with pytest.raises(
            hm.InvalidInputError, match=rf"`probabilities` must .*{message} \(row 7"
        ):
            hm.audit(given, y, tree=TREE, utilities=UTILITIES, logits=True)


def test_the_completed_prediction_is_what_is_audited():
    best = np.argsort(-P, axis=1)[:, :2]
    kept = np.take_along_axis(P, best, axis=1)
    filled = np.repeat((1 - kept.sum(axis=1, keepdims=True)) / 5, 7, axis=1)
    np.put_along_axis(filled, best, kept, axis=1)
    found = audit(hm.TopKPredictions(best, kept, rest="uniform"))
    wanted = audit(filled)
    np.testing.assert_allclose(
        found.to_frame(all_columns=True)["moment"],
        wanted.to_frame(all_columns=True)["moment"],
        atol=1e-12,
    )
    assert found.unlogged == pytest.approx(float(1 - kept.sum(axis=1).mean()))


def test_one_named_leaf_gets_the_rest_whether_it_was_logged_or_not():
    rows = hm.TopKPredictions([["a", "g"], ["b"]], [[0.5, 0.2], [0.6]], rest={"leaf": "g"})
    dense = rows.read(TREE, "p").dense()
    np.testing.assert_allclose(dense[0], [0.5, 0, 0, 0, 0, 0, 0.5])
    np.testing.assert_allclose(dense[1], [0, 0.6, 0, 0, 0, 0, 0.4])


def test_the_uc_of_the_likeliest_leaf_is_exact_and_said_to_be():
    best = np.argsort(-P, axis=1)[:, :4]
    kept = np.take_along_axis(P, best, axis=1)
    top = hm.TopKPredictions(best, kept, rest="uniform")
    utilities = [hm.LevelCorrectness(level=3), hm.TopK(2), hm.LevelCorrectness(level=1)]
    shared = {"tree": TREE, "utilities": utilities, "bounds": None}
    found, full = hm.audit(top, Y, **shared), hm.audit(P, Y, **shared)
    exact = found.notes[0].partition("UC of ")[2]
    assert "level3" in exact
    assert "level1" not in exact
    for name in exact.rstrip(".").split(", "):
        mine, whole = (
            result.uc_frame().set_index("utility").loc[name, "moment"] for result in (found, full)
        )
        assert mine == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize(
    ("classes", "scores", "more", "message"),
    [
        (["a", "z"], [0.5, 0.1], {}, r"unknown class 'z' in 'scores' \(row 1\)"),
        (["a", "a"], [0.5, 0.1], {}, r"'a' more than once \(row 1\)"),
        (["a", "b"], [0.5, -0.1], {}, r"-0.1 for 'b' \(row 1\)"),
        (["a", "b"], [0.5, float("nan")], {}, r"nan for 'b' \(row 1\)"),
        (["a", "b"], [0.9, 0.2], {}, r"they sum to 1.1 \(row 1\)"),
        (["a", "b"], [0.5, 0.2], {"rest": None}, r"sum to 0.7, and no `rest` says .* \(row 1\)"),
        (["a", "b"], None, {}, r"holds no list \(row 1\)"),
        (["a"], [0.5, 0.2], {}, r"holds no list \(row 1\)"),
        (["a", "b"], [1.0, 2.0], {"scale": "logits", "rest": None}, r"2 of 7 classes, and logits"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(classes, scores, more, message):
    fine = dict(zip(TREE.leaves, [1.0, *[0.0] * 6], strict=True))
    rows = hm.TopKPredictions(
        [list(fine), classes], [list(fine.values()), scores], **{"rest": "uniform"} | more
    )
    with pytest.raises(hm.InvalidInputError, match=message):
        audit(rows, ["a", "a"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"map": "s", "list": "s"}, "exactly one of pattern, columns, list, pairs, map"),
        ({"map": "s", "scale": "logits", "rest": "uniform"}, "must not have `rest` with logits"),
        ({"list": "s", "rest": "uniform"}, "must have `rest` only with"),
        ({"pairs": "s", "class_column": "c"}, "must have `class_column` only with `list`"),
        ({"map": "s", "rest": "reference"}, "'reference' is for monitors"),
        ({"map": "s", "rest": {"leaf": "z"}}, "'z'"),
        ({"map": "nothing"}, "must have the column 'nothing'"),
        ({"map": "s", "scale": "percent"}, "scale"),
    ],
)
def test_words_that_make_no_sense_are_refused(words, message):
    frame = pd.DataFrame({"s": [{"a": 1.0}], "c": [["a"]]})
    with pytest.raises(hm.HUCError, match=message):
        hm.read_predictions(frame, tree=TREE, **words)


@pytest.mark.parametrize("rest", ["unif", 3, {"lef": "a"}, {"a": "much"}, ["a"], {"leaf": ""}])
def test_a_rule_for_the_rest_that_is_none_is_told_the_choices(rest):
    message = "`rest` must be 'uniform', 'reference', {'leaf': name} or shares by leaf; got "
    with pytest.raises(hm.InvalidInputError, match=f"^{re.escape(f'{message}{rest!r}')}[.]$"):
        audit(hm.TopKPredictions([["a"]] * 120, [[0.7]] * 120, rest=rest))
    with pytest.raises(hm.InvalidInputError, match=re.escape(f"`rest` {message[7:]}")):
        hm.read_predictions(pd.DataFrame({"s": ["{}"]}), tree=TREE, map="s", rest=rest)


def test_groups_of_node_scores_that_do_not_sum_to_one_are_named():
    scores = node_scores(P, "branches")
    scores["near"] = scores["near"] * 1.5
    frame = pd.DataFrame({f"q_{name}": one for name, one in scores.items()})
    with pytest.raises(hm.InvalidInputError, match=r"probabilities of the children of 'right' sum"):
        hm.read_predictions(frame, tree=TREE, pattern="q_{leaf}", of="branches")


def test_short_floats_are_rescaled_alike_in_every_form():
    short = P.astype(np.float16)
    lists = pd.DataFrame({"s": list(short), "c": [list(TREE.leaves)] * len(short)})
    dense = audit(short).to_dict()
    assert audit(hm.read_predictions(lists, tree=TREE, list="s")).to_dict() == dense
    both = hm.read_predictions(lists, tree=TREE, list="s", class_column="c")
    assert audit(both).to_dict() == dense


@pytest.mark.parametrize("name", ["top-k lists", "JSON map"])
def test_a_window_larger_than_memory_is_audited_as_it_was_logged(name, tmp_path):
    import pyarrow.parquet as pq

    from huc_monitor.audit.options import AuditOptions
    from huc_monitor.sources import Columns, DuckTable
    from huc_monitor.sources.large import LargeSource

    case = CASES[name]
    pq.write_table(case.table, tmp_path / "log.parquet")
    source = LargeSource(
        DuckTable.files(tmp_path / "log.parquet"),
        tree=TREE,
        columns=Columns(
            time="at", id="id", label="y", probabilities=hm.PredictionColumns(**case.words)
        ),
        most_rows=20,
    )
    found = source.audit(
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 2, tzinfo=UTC),
        as_of=None,
        utilities=UTILITIES,
        subgroups=hm.Subgroups.whole(),
        options=AuditOptions(n_draws=50),
    )
    wanted = audit(hm.read_predictions(case.frame, tree=TREE, **case.words))
    assert list(found.candidates.moment) == list(wanted.candidates.moment)
    assert found.notes == wanted.notes


def test_json_text_in_a_csv_file_is_read_as_in_a_parquet_file(tmp_path):
    case = CASES["JSON map"]
    case.frame.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    arguments = ["audit", str(tmp_path / "log.csv"), "--tree", str(tmp_path / "tree.json")]
    arguments += ["--label", "y", "--form", "{map: s}", "--bounds", "sharp", "--json"]
    answer = CliRunner().invoke(app, arguments)
    wanted = hm.audit(P, Y, tree=TREE, bounds="sharp", familiar=True)
    assert json.loads(answer.output)["audit"] == json.loads(json.dumps(wanted.to_dict()))
