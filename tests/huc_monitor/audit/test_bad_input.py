"""Bad input gets an error that names the argument, the place and a remedy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import huc_monitor as hm

TREE = hm.LabelTree.from_nested({"sick": ["flu", "coma"], "well": None})
P = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.6, 0.2, 0.2]])
LABELS = ["flu", "coma", "well"]
FRAME = pd.DataFrame({"age": [30, 70, 81], "sex": ["f", "m", "f"]})
TOP = hm.TopK(1)


def audit(p=P, labels=LABELS, utilities=(TOP,), **given):
    return hm.audit(p, labels, **({"tree": TREE, "utilities": list(utilities)} | given))


def changed(row, column, value):
    p = P.copy()
    p[row, column] = value
    return p


def named(**columns):
    return pd.DataFrame(P, columns=list(TREE.leaves)).assign(**columns)


AGES = hm.Subgroups.from_reference(FRAME, {"age": [65]})
TILT = hm.Subgroups.from_reference(pd.DataFrame({"w": [0.5]}), weights={"tilt": "w"})

BAD = {
    "nan": (
        lambda: audit(changed(1, 2, np.nan)),
        r"`probabilities` must be finite; got nan \(row 1, column 'well'\). Drop",
    ),
    "infinity": (
        lambda: audit(changed(0, 0, np.inf)),
        r"must be finite; got inf \(row 0, column 'flu'\)",
    ),
    "minus infinity": (
        lambda: audit(changed(0, 1, -np.inf)),
        r"must be finite; got -inf \(row 0, column 'coma'\)",
    ),
    "negative": (
        lambda: audit(changed(2, 1, -0.2)),
        r"must be at least 0; got -0.2 \(row 2, column 'coma'\). Pass probabilities, not logits",
    ),
    "bad sum": (
        lambda: audit(changed(1, 0, 0.2)),
        r"rows that sum to 1 within 1e-6; got 1.1 \(row 1\). Apply softmax",
    ),
    "subgroups as a table": (
        lambda: audit(subgroups={"sex": "each"}, features=FRAME),
        r"`subgroups` must be Subgroups; got dict. Make them with Subgroups.from_reference",
    ),
    "percent": (lambda: audit(P * 100), r"sum to 1 within 1e-6; got 100 \(row 0\)"),
    "logits": (lambda: audit(np.log(P)), r"must be at least 0; got -1.6.* \(row 0, column 'flu'\)"),
    "too few columns": (
        lambda: audit(P[:, :2]),
        r"one column per leaf \(3: 'flu', 'coma', 'well'\); got 2 columns. Pass a DataFrame",
    ),
    "too many columns": (lambda: audit(np.hstack([P, P])), "one column per leaf .* got 6 columns"),
    "one dimension": (
        lambda: audit(P[0], ["flu"]),
        r"two dimensions \(rows, leaves\); got shape \(3,\). Reshape",
    ),
    "three dimensions": (
        lambda: audit(P[None], ["flu"]),
        r"two dimensions .* got shape \(1, 3, 3\)",
    ),
    "no rows": (lambda: audit(P[:0], []), "at least one row; got an empty window"),
    "object dtype": (lambda: audit(P.astype(object)), "must be numbers; got dtype object. Convert"),
    "text": (lambda: audit(P.astype(str)), "must be numbers; got dtype <U"),
    "booleans": (lambda: audit(np.eye(3, dtype=bool)), "must be numbers; got dtype bool"),
    "complex": (lambda: audit(P.astype(complex)), "must be numbers; got dtype complex128"),
    "a class that the tree lacks": (
        lambda: audit(named(flu=named()["flu"] / 2, cold=named()["flu"] / 2)),
        r"sum to 1 within 1e-6; got .* \(row 0\)",
    ),
    "columns without names": (
        lambda: audit(pd.DataFrame(P)),
        r"a column for every leaf; .* is missing \(3 in all\). Columns: '0', '1', '2'",
    ),
    "a query that was not run": (
        lambda: audit(pl.LazyFrame(named().to_dict("list"))),
        r"must hold its rows in memory; got a .*LazyFrame. Collect it first",
    ),
    "a tree of another kind": (
        lambda: hm.audit(P, LABELS, tree=3),
        "`tree` must be a LabelTree or the path of a tree file; got int",
    ),
    "missing class column": (
        lambda: audit(named().drop(columns="coma")),
        r"a column for every leaf; 'coma' is missing \(1 in all\). Columns: 'flu', 'well'",
    ),
    "duplicate columns": (
        lambda: audit(named().iloc[:, [0, 1, 2, 2]]),
        "distinct columns; got 'well' more than once",
    ),
    "text column": (
        lambda: audit(named(flu=["a", "b", "c"])),
        r"must be numbers; got dtype .*\(column 'flu'\)",
    ),
    "missing cell": (
        lambda: audit(named(flu=[0.2, None, 0.6])),
        r"must be finite; got nan \(row 1, column 'flu'\)",
    ),
    "unseen label": (
        lambda: audit(labels=["flu", "comma", "well"]),
        r"`labels` must be .* got 'comma' \(row 1\). Did you mean 'coma'",
    ),
    "path of no node as label": (
        lambda: audit(labels=["flu", "well/sick", "well"]),
        r"`labels` must be .* got 'well/sick' \(row 1\)",
    ),
    "missing label": (lambda: audit(labels=["flu", None, "well"]), r"`labels` must .*\(row 1\)"),
    "nan label": (lambda: audit(labels=["flu", np.nan, "well"]), r"`labels` must .*\(row 1\)"),
    "label code too large": (lambda: audit(labels=[0, 3, 1]), r"`labels` must .* got 3 \(row 1\)"),
    "negative label code": (lambda: audit(labels=[0, -1, 1]), r"`labels` must .* got -1 \(row 1\)"),
    "broken labels": (lambda: audit(labels=[0.0, 1.5, 2.0]), "`labels` must "),
    "boolean labels": (lambda: audit(labels=[True, False, True]), "`labels` must "),
    "too few labels": (
        lambda: audit(labels=LABELS[:2]),
        r"`labels` must have one entry per row \(3\); got 2",
    ),
    "two-dimensional labels": (lambda: audit(labels=np.eye(3)), "`labels` must "),
    "infinite weight": (
        lambda: audit(weights=[1, np.inf, 1]),
        r"`weights` must be finite and at least 0; got inf \(row 1\). Drop",
    ),
    "negative weight": (
        lambda: audit(weights=[1, 1, -1]),
        r"finite and at least 0; got -1.0 \(row 2\)",
    ),
    "nan weight": (
        lambda: audit(weights=[np.nan, 1, 1]),
        r"finite and at least 0; got nan \(row 0\)",
    ),
    "zero weights": (lambda: audit(weights=[0, 0, 0]), "`weights` must have a positive sum"),
    "too few weights": (
        lambda: audit(weights=[1, 1]),
        r"one number per row \(3\); got shape \(2,\)",
    ),
    "text weights": (lambda: audit(weights=["a", "b", "c"]), "one number per row .* dtype <U1"),
    "no utility": (lambda: audit(utilities=[]), "`utilities` must be a non-empty list"),
    "a dictionary as utility": (
        lambda: audit(utilities=[{"type": "TopK"}]),
        r"must hold Utility objects; got .* \(position 0\). Use Utility.from_dict",
    ),
    "two utilities of one name": (
        lambda: audit(utilities=[TOP, hm.TopK(1)]),
        "distinct names; got 'top1' twice. Pass `name=`",
    ),
    "k above the leaves": (
        lambda: audit(utilities=[hm.TopK(4)]),
        r"`k` must be at most the number of leaves \(3\); got 4",
    ),
    "level below the tree": (
        lambda: audit(utilities=[hm.LevelCorrectness(level=3)]),
        "level.* got 3",
    ),
    "unknown node in a utility": (
        lambda: audit(utilities=[hm.SubtreeIndicator(node="cold")]),
        "`node` must name nodes or leaves of the tree.*'cold'",
    ),
    "favours outside active": (
        lambda: audit(utilities=[hm.BinaryAction("b", active=["flu"], favours=["coma"])]),
        "`favours` must lie inside `active`; got 'coma' .* Add it",
    ),
    "payoff out of range": (
        lambda: hm.Payoff("pay", {"flu": 3}),
        r"between -1 and 1; got 3 \(utility 'pay', label 'flu'\). Set `scale`",
    ),
    "payoff not a number": (
        lambda: hm.Payoff("pay", {"flu": "much"}),
        "must be numbers .* got 'much'",
    ),
    "no payoffs": (lambda: hm.Payoff("pay", {}), "`payoffs` must name at least one leaf"),
    "utility without a name": (
        lambda: hm.Payoff("", {"flu": 1}),
        "`name` must be a non-empty string",
    ),
    "zero scale": (lambda: hm.TopK(1, scale=0), "`scale` must be a positive number; got 0"),
    "zero k": (lambda: hm.TopK(0), "`k` must be a positive whole number; got 0"),
    "root level": (
        lambda: hm.LevelCorrectness(level=0),
        r"`level` must be at least 1 \(the root is level 0\); got 0",
    ),
    "threshold out of range": (
        lambda: hm.SelectiveReport(1.5, 0.5),
        "`group_threshold` must lie between 0 and 1; got 1.5",
    ),
    "names as one string": (
        lambda: hm.BinaryAction("b", active="flu"),
        r"`active` must be a list of names; got the string 'flu'. Write \['flu'\]",
    ),
    "unknown family": (
        lambda: hm.Utility.from_dict({"type": "Topk"}),
        "`type` must be a utility family; got 'Topk'. Choose one of: ActionPayoff",
    ),
    "unknown setting": (
        lambda: hm.Utility.from_dict({"type": "TopK", "kk": 1}),
        "`kk` is not a setting of TopK; choose among: k, name",
    ),
    "missing setting": (
        lambda: hm.Utility.from_dict({"type": "TopK"}),
        "`TopK` needs the settings k",
    ),
    "custom value out of range": (
        lambda: audit(utilities=[hm.CustomUtility("big", lambda p: 9 * p)]),
        r"utility 'big' must return values between -1 and 1; got 1.8.* \(row 0, column 'flu'\)",
    ),
    "custom value of wrong shape": (
        lambda: audit(utilities=[hm.CustomUtility("flat", lambda p: p[:, 0])]),
        r"utility 'flat' must return shape \(3, 3\); got \(3,\)",
    ),
    "unregistered custom utility": (
        lambda: hm.Utility.from_dict({"type": "CustomUtility", "name": "gone"}),
        r"'gone' is not registered .* Call CustomUtility.register",
    ),
    "features missing": (lambda: audit(subgroups=AGES), "features"),
    "feature column missing": (lambda: audit(subgroups=AGES, features=FRAME[["sex"]]), "'age'"),
    "features too short": (lambda: audit(subgroups=AGES, features=FRAME.iloc[:2]), "3"),
    "group weight out of range": (
        lambda: audit(subgroups=TILT, features=pd.DataFrame({"w": [0.1, 2.0, 0.0]})),
        r"got 2.0 \(row 1",
    ),
    "confidence of one": (
        lambda: audit(confidence_level=1),
        "`confidence_level` must be less than 1; got 1",
    ),
    "confidence in percent": (
        lambda: audit(confidence_level=95),
        "`confidence_level` must be less than 1; got 95",
    ),
    "unknown bounds": (
        lambda: audit(bounds="exact"),
        "`bounds` must be 'bootstrap', 'sharp' or 'theorem'; got 'exact'",
    ),
    "one class": (
        lambda: hm.audit([[1.0]], ["a"], tree=hm.LabelTree.flat(["a"]), utilities=[TOP]),
        "a single class leaves nothing to audit",
    ),
    "negative tolerance": (
        lambda: audit().violations(-0.1),
        "`tolerance` must be a number of at least 0; got -0.1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_with_its_place(case):
    call, message = BAD[case]
    with pytest.raises(hm.InvalidInputError, match=message):
        call()


def test_at_least_fifty_mistakes_are_covered():
    assert len(BAD) >= 50
