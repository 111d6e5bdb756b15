from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.planning import largest_moment
from huc_monitor.recalibration.choosing import find_recalibration

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
UTILITIES = [hm.LevelCorrectness(level=1)]


def rows(n=60, index=None):
    rng = np.random.default_rng(0)
    p = pd.DataFrame(rng.dirichlet(np.ones(3), n), columns=TREE.leaves, index=index)
    labels = pd.Series(np.array(TREE.leaves)[rng.integers(0, 3, n)], index=index)
    return p, labels


def audit(p, labels, **more):
    return hm.audit(p, labels, tree=TREE, utilities=UTILITIES, bounds=None, **more)


ENTRIES = {
    "audit": audit,
    "decompose": lambda p, y: hm.decompose(p, y, tree=TREE, utilities=UTILITIES),
    "boost": lambda p, y: hm.HUCBoost(tree=TREE, utilities=UTILITIES).fit(p, y),
    "scaling": lambda p, y: hm.TemperatureScaling().fit(p, y, tree=TREE),
    "detector": lambda p, y: hm.EDetector(
        tree=TREE, utilities=UTILITIES, tolerance=0.02, average_run_length=100
    ).update(p, y),
    "compare": lambda p, y: hm.compare((p, y), (p, y), tree=TREE, utilities=UTILITIES),
    "find_recalibration": lambda p, y: find_recalibration(p, y, tree=TREE, utilities=UTILITIES),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_labels_in_another_order_than_predictions_are_refused(entry):
    p, labels = rows(index=[f"case {k}" for k in range(60)])
    with pytest.raises(hm.InvalidInputError, match="`labels` must be in the order of `prob"):
        ENTRIES[entry](p, labels.iloc[::-1])


@pytest.mark.parametrize("name", ["weights", "features", "clusters", "label_probability"])
def test_what_else_is_given_for_rows_in_another_order_is_refused(name):
    p, labels = rows(index=[f"case {k}" for k in range(60)])
    given = pd.Series(np.ones(60), index=p.index, name="w")[::-1]
    given = given.to_frame() if name == "features" else given
    detector = hm.EDetector(tree=TREE, utilities=UTILITIES, tolerance=0.02, average_run_length=100)
    sides, task = ((p, labels), (p, labels)), {"tree": TREE, "utilities": UTILITIES}
    other = "set_axis.probabilities.index." if name == "features" else "to_numpy.."
    remedies = f"Use {name}.loc.probabilities.index., or {name}.{other} if rows match"
    with pytest.raises(hm.InvalidInputError, match=remedies):
        audit(p, labels, **{name: given})
    by_position = given.set_axis(p.index) if name == "features" else given.to_numpy()
    audit(p, labels, **{name: by_position})  # the other remedy
    with pytest.raises(hm.InvalidInputError, match=f"`{name}` must be in the order of"):
        hm.compare(*sides, **task, paired=True, **{name: given})
    with pytest.raises(hm.InvalidInputError, match=f"`{name}` must be in the order of"):
        hm.compare(*sides, **task, **{name: (given[::-1], given)})
    if name != "weights":
        with pytest.raises(hm.InvalidInputError, match=f"`{name}` must be in the order of"):
            detector.update(p, labels, **{name: given})


CANDIDATE = ("level1", "all", "root")
OTHERS = {
    "forecast": lambda p, y, more: hm.forecast(p.to_numpy(), p, y, tree=TREE, **more),
    "find_recalibration": lambda p, y, more: find_recalibration(
        p, y, tree=TREE, utilities=UTILITIES, **more
    ),
    "plan_labels": lambda p, _, more: hm.plan_labels(p, tree=TREE, budget=10, **more),
    "fit_proxy_odds": lambda p, y, more: hm.fit_proxy_odds(p, y, tree=TREE, **more),
    "simulate_alarm": lambda p, _, more: hm.simulate_alarm(
        p, candidate=CANDIDATE, size=0.1, tree=TREE, utilities=UTILITIES, tolerance=0.02, **more
    ),
    "largest_moment": lambda p, _, more: largest_moment(
        p, candidate=CANDIDATE, tree=TREE, utilities=UTILITIES, **more
    ),
}


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        *(("forecast", name) for name in ("clusters", "label_probability")),
        *(
            ("find_recalibration", name)
            for name in ("features", "clusters", "label_probability", "current")
        ),
        *(("plan_labels", name) for name in ("features", "proxy")),
        ("fit_proxy_odds", "proxy"),
        ("simulate_alarm", "features"),
        ("largest_moment", "features"),
    ],
)
def test_other_entries_refuse_rows_in_another_order(entry, name):
    p, labels = rows(index=[f"case {k}" for k in range(60)])
    given = {"features": labels.to_frame("x"), "proxy": labels, "current": p}
    given = given.get(name, pd.Series(np.ones(60), index=p.index))
    with pytest.raises(hm.InvalidInputError, match=f"`{name}` must be in the order of"):
        OTHERS[entry](p, labels, {name: given.iloc[::-1]})


@pytest.mark.parametrize("shuffled", ["labels", "probabilities"])
def test_a_shuffled_default_index_is_told_and_matched_by_position(shuffled):
    p, labels = rows()
    by_position = audit(p.to_numpy(), labels.iloc[::-1].to_numpy()).huc
    if shuffled == "labels":
        given = p, labels.iloc[::-1]
    else:
        given = p.set_axis(p.index[::-1]).set_axis(np.arange(60)[::-1]), labels[::-1].to_numpy()
        given = given[0], pd.Series(given[1])
    with pytest.warns(hm.HUCWarning, match="another order"):
        assert audit(*given).huc == by_position


@pytest.mark.parametrize(
    "index", [range(7, 67), [0] * 60, [f"other {k}" for k in range(60)], np.arange(60)]
)
def test_indexes_of_other_rows_say_nothing(index):
    p, labels = rows()
    assert audit(p.set_axis(index), labels).huc == audit(p.to_numpy(), labels.to_numpy()).huc


def test_masked_predictions_are_refused():
    p, labels = rows()
    mask = np.zeros(p.shape, dtype=bool)
    mask[4, 1] = True
    with pytest.raises(hm.InvalidInputError, match="`probabilities` must not be masked; row 4 is"):
        audit(np.ma.masked_array(p.to_numpy(), mask), labels)
    unmasked = np.ma.masked_array(p.to_numpy(), mask=False)
    assert audit(unmasked, labels).huc == audit(p, labels).huc


@pytest.mark.parametrize(
    ("given", "said"),
    [("LION", "Did you mean 'lion'"), (" lion ", "Did you mean 'lion'")],
)
def test_a_label_in_other_letters_is_answered_with_the_leaf(given, said):
    p, labels = rows()
    with pytest.raises(hm.InvalidInputError, match=said):
        audit(p, labels.replace("lion", given))


def test_a_label_in_another_unicode_form_is_told_to_be_one():
    tree = hm.LabelTree.flat(["caf\u00e9", "bar"])
    with pytest.raises(hm.InvalidInputError, match="another Unicode form: normalise both to NFC"):
        hm.audit([[0.5, 0.5]], ["cafe\u0301"], tree=tree)
