"""The paper's worked examples, to 1e-12."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm

FOUR = hm.LabelTree.from_nested({"vL": ["y1", "y2"], "vR": ["y3", "y4"]}, root="v0")


def moment(result, node, utility=None, subgroup="all", column="moment"):
    frame = result.to_frame(all_columns=True)
    rows = frame[(frame.node == node) & (frame.subgroup == subgroup)]
    if utility is not None:
        rows = rows[rows.utility == utility]
    (value,) = rows[column]
    return value


def test_errors_of_opposite_sign_cancel_in_uc_and_not_in_huc():
    pay = hm.Payoff("u", {"y1": -1, "y2": 1, "y3": 1, "y4": 1})
    labels = ["y1"] * 2 + ["y3"] * 3 + ["y4"] * 3
    result = hm.audit(np.full((8, 4), 0.25), labels, tree=FOUR, utilities=[pay], bounds="theorem")
    assert result.uc == pytest.approx(0, abs=1e-12)
    assert result.huc == pytest.approx(1 / 4, abs=1e-12)
    assert moment(result, "v0") == pytest.approx(1 / 4, abs=1e-12)
    assert moment(result, "vL") == pytest.approx(-1 / 4, abs=1e-12)
    assert "vR" not in set(result.to_frame(all_columns=True).node)
    assert (result.worst.interval_low, result.worst.interval_high) == (0.5, 0.5)


def test_the_largest_branch_error_need_not_be_the_largest_utility_error():
    labels = ["y1"] + ["y2"] * 9 + ["y3"] * 4 + ["y4"] * 6
    result = hm.audit(
        np.full((20, 4), 0.25),
        labels,
        tree=FOUR,
        utilities=[hm.SubtreeIndicator(node="y4")],
        bounds="theorem",
    )
    assert moment(result, "v0") == pytest.approx(0, abs=1e-12)
    assert moment(result, "vR") == pytest.approx(1 / 20, abs=1e-12)
    assert set(result.to_frame(all_columns=True).node) == {"v0", "vR"}
    assert result.uc == pytest.approx(1 / 20, abs=1e-12)


def two_groups(p_a, p_b, eta_a, eta_b, leaves):
    """Rows for every (group, label), weighted by their probability."""
    p = np.vstack([np.tile(p_a, (4, 1)), np.tile(p_b, (4, 1))])
    weights = np.concatenate([eta_a, eta_b]) / 2
    features = pd.DataFrame({"group": ["a"] * 4 + ["b"] * 4})
    return p, list(leaves) * 2, weights, features


def test_one_predicted_utility_cell_compares_branches_in_the_same_population():
    p, labels, weights, _ = two_groups(
        [1 / 2, 1 / 10, 3 / 20, 1 / 4],
        [1 / 5, 3 / 10, 1 / 4, 1 / 4],
        [5 / 12, 1 / 12, 3 / 16, 5 / 16],
        [1 / 5, 3 / 10, 3 / 10, 1 / 5],
        FOUR.leaves,
    )
    result = hm.audit(
        p,
        labels,
        weights=weights,
        tree=FOUR,
        utilities=[hm.SubtreeIndicator(node="y4")],
        bounds="theorem",
    )
    assert moment(result, "v0") == pytest.approx(1 / 32, abs=1e-12)
    assert moment(result, "vR") == pytest.approx(-1 / 40, abs=1e-12)
    assert "vL" not in set(result.to_frame(all_columns=True).node)
    assert moment(result, "vR", column="interval_low") == 0.25
    assert moment(result, "vR", column="interval_high") == 0.25
    (row,) = result.uc_frame().itertuples()
    assert row.moment == pytest.approx(1 / 32 - 1 / 40, abs=1e-12)


def test_marginal_calibration_says_nothing_about_branches_given_their_parent():
    tree = hm.LabelTree.from_nested({"D": ["e", "f"], "O": ["o1", "o2"]})
    p, labels, weights, features = two_groups(
        [1 / 4, 1 / 4, 2 / 5, 1 / 10],
        [1 / 4, 1 / 4, 1 / 10, 2 / 5],
        [3 / 8, 1 / 8, 2 / 5, 1 / 10],
        [1 / 8, 3 / 8, 1 / 10, 2 / 5],
        tree.leaves,
    )
    indicators = [hm.SubtreeIndicator(node=name) for name in ("D", *tree.leaves)]
    whole = hm.audit(p, labels, weights=weights, tree=tree, utilities=indicators, bounds="theorem")
    assert whole.uc == pytest.approx(0, abs=1e-12)
    groups = hm.Subgroups.from_reference(features, {"group": "each"})
    split = hm.audit(
        p,
        labels,
        weights=weights,
        tree=tree,
        utilities=indicators,
        subgroups=groups,
        features=features,
        bounds="theorem",
    )
    # Group a takes D -> e with probability 3/4 where 1/2 is predicted; D is reached half the time.
    inside = moment(split, "D", "in_e", "group=a", "moment_in_subgroup")
    assert inside == pytest.approx(1 / 2 * (3 / 4 - 1 / 2), abs=1e-12)
    assert moment(split, "D", "in_e", "group=b") == pytest.approx(-1 / 16, abs=1e-12)
    assert moment(split, "root", "in_D", "group=a") == pytest.approx(0, abs=1e-12)


TOY = hm.LabelTree.from_nested(
    {
        "noninf": ["y1", "y2"],
        "spread": {
            "site": {"upper": ["y3", "y4"], "lower": ["y5", "y6"]},
            "shock": ["y7", "y8"],
        },
    },
    root="cause",
)
TOY_DECISIONS = [
    hm.BinaryAction("d1", active=["shock"], favours=["y8"], threshold=0.4),
    hm.BinaryAction("d2", active=["cause"], favours=["y2", "lower", "shock"], threshold=0.5),
    hm.BinaryAction("d3", active=["cause"], favours=["y4", "y6", "shock"], threshold=0.4),
]


def names(tree, utility):
    return {tree.branches[v] for v in utility.relevant_branches(tree)}


def test_the_toy_decisions_have_three_four_and_five_relevant_nodes():
    sets = [names(TOY, utility) for utility in TOY_DECISIONS]
    assert [len(found) for found in sets] == [3, 4, 5]
    assert sets[0] == {"cause", "spread", "shock"}
    assert sets[1] == {"cause", "noninf", "spread", "site"}
    assert set.union(*sets) == set(TOY.branches)


def test_an_action_tie_in_the_toy_acts():
    # p(S) - tau p(D) is exactly zero for the second decision: half the mass favours acting.
    values = TOY_DECISIONS[1].values([[0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0, 0]], tree=TOY)
    assert values[0, 1] == 0.5


SUPPORT2 = hm.LabelTree.from_nested({"v1": {"v2": ["y1", "y2"], "v3": ["y3", "y4"]}, "y5": None})


@pytest.mark.parametrize("threshold", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(
    ("active", "favours", "expected"),
    [
        (["root"], ["y5"], {"root"}),
        (["v2"], ["y2"], {"root", "v1", "v2"}),
        (["v3"], ["y4"], {"root", "v1", "v3"}),
    ],
)
def test_support2_decisions_have_the_papers_relevant_nodes(active, favours, expected, threshold):
    utility = hm.BinaryAction("d", active=active, favours=favours, threshold=threshold)
    assert names(SUPPORT2, utility) == expected


def test_a_root_tie_selects_the_first_child():
    tree = hm.LabelTree.from_nested({"normal": None, "attack": ["dos", "probe"]})
    tied = [[0.5, 0.25, 0.25]]
    assert hm.GreedyPathCorrectness(level=1).values(tied, tree=tree).tolist() == [[1, 0, 0]]
    assert hm.GreedyPathCorrectness(level=2).values(tied, tree=tree).tolist() == [[1, 0, 0]]
    assert hm.TopK(1).values([[0.3, 0.3, 0.4]], tree=tree).tolist() == [[0, 0, 1]]
    assert hm.GreedyPathCorrectness(level=2).values([[0.3, 0.35, 0.35]], tree=tree).tolist() == [
        [0, 1, 0]
    ]


def test_the_post_processing_guarantee_counts_relevant_branches_above_the_cut():
    labels = ["y1"] * 2 + ["y3"] * 3 + ["y4"] * 3
    pay = hm.Payoff("u", {"y1": -1, "y2": 1, "y3": 1, "y4": 1})
    result = hm.audit(np.full((8, 4), 0.25), labels, tree=FOUR, utilities=[pay], bounds="theorem")
    assert result.guarantee("u") == pytest.approx(2 * 2 * 0.25)
    assert result.guarantee("u", ["v0"]) == pytest.approx(2 * 1 * 0.25)
    assert result.guarantee("u", ["v0", "vR"]) == pytest.approx(2 * 1 * 0.25)
    assert result.guarantee("u", []) == 0
    with pytest.raises(hm.InvalidInputError, match="'vL' is there without 'v0'"):
        result.guarantee("u", ["vL"])
    with pytest.raises(hm.UnknownNameError, match="must be one of u"):
        result.guarantee("w")
