"""Fit path and replay against whole-array numpy that shares no code with the kernels."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.recalibration import HUCBoost, UCBoost, _base


class Dense:
    """The algorithms of the paper, one candidate at a time, on (n, K) arrays."""

    def __init__(self, tree, utilities, groups, p, y, weights):
        self.tree, self.utilities, self.groups = tree, utilities, groups
        self.p, self.y = p.copy(), y
        self.weights = np.ones(len(y)) if weights is None else weights
        self.children = {v: [self.leaves(child) for child in self.forks(v)] for v in tree.branches}

    def forks(self, node):
        children = self.tree.children(node)
        return children if len(children) > 1 else self.forks(children[0])

    def leaves(self, node):
        return [self.tree.leaf_index(leaf) for leaf in self.tree.leaves_under(node)]

    def below(self, node):
        return [leaf for child in self.children[node] for leaf in child]

    def parts(self, utility, p):
        values = VALUES[type(utility)](utility, p, self.tree)
        return values, (p * values).sum(axis=1)

    def delta(self, node, p, values):
        means = [(p[:, c] * values[:, c]).sum(1) / p[:, c].sum(1) for c in self.children[node]]
        return np.stack(means, axis=1)

    def contributions(self, node, p, values):
        below = self.below(node)
        means = self.delta(node, p, values)
        own = (p[:, below] * values[:, below]).sum(1) / p[:, below].sum(1)
        out = np.zeros(len(p))
        for j, child in enumerate(self.children[node]):
            inside = np.isin(self.y, child)
            out[inside] = (means[:, j] - own)[inside]
        return out

    def moments(self):
        """Largest absolute moment of every (utility, subgroup, node), node None being UC."""
        table = {}
        for utility in self.utilities:
            values, score = self.parts(utility, self.p)
            order = np.argsort(score, kind="stable")
            blocks = np.cumsum(np.diff(score[order], prepend=-np.inf) > 1e-12) - 1
            total = values[np.arange(len(self.y)), self.y] - score
            columns = {None: total}
            for node in self.tree.branches:
                columns[node] = self.contributions(node, self.p, values)
            for name, c in self.groups.items():
                for node, column in columns.items():
                    size = self.largest(blocks, (c * column * self.weights)[order])
                    table[utility.name, name, node] = size / self.weights.sum()
        return table

    def largest(self, blocks, values):
        """Largest absolute sum over adjacent blocks: the largest difference of two prefixes."""
        return np.ptp(np.append(0.0, np.cumsum(np.bincount(blocks, weights=values))))

    def inside(self, update, p):
        utility = next(u for u in self.utilities if u.name == update.utility)
        values, score = self.parts(utility, p)
        low, high = update.interval_low - 1e-12, update.interval_high + 1e-12
        return utility, values, score, (score >= low) & (score <= high)

    def moment_and_curvature(self, update):
        _, values, score, inside = self.inside(update, self.p)
        c = self.groups[update.subgroup] * inside
        w = self.weights / self.weights.sum()
        if update.node is None:
            column = values[np.arange(len(self.y)), self.y] - score
            spread, reached = np.ptp(c[:, None] * values, axis=1), np.ones(len(self.y))
        else:
            column = self.contributions(update.node, self.p, values)
            spread = np.ptp(c[:, None] * self.delta(update.node, self.p, values), axis=1)
            reached = np.isin(self.y, self.below(update.node))
        return (w * c * column).sum(), 0.25 * (w * reached * spread**2).sum()

    def step(self, update, p, c):
        """Probabilities after an update; the softmax of logits, written out."""
        _, values, score, inside = self.inside(update, p)
        c = c * inside
        out = p.copy()
        if update.node is None:
            logits = np.log(p) + update.step * c[:, None] * (values - score[:, None])
            out = np.exp(logits - logits.max(axis=1, keepdims=True))
            return out / out.sum(axis=1, keepdims=True)
        children = self.children[update.node]
        q = np.stack([p[:, child].sum(1) for child in children], axis=1)
        reach = q.sum(axis=1, keepdims=True)
        logits = np.log(q / reach) + update.step * c[:, None] * self.delta(update.node, p, values)
        new = np.exp(logits - logits.max(axis=1, keepdims=True))
        new *= reach / new.sum(axis=1, keepdims=True)
        for j, child in enumerate(children):
            out[:, child] *= (new[:, j] / q[:, j])[:, None]
        return out

    def log_loss(self):
        losses = -np.log(self.p[np.arange(len(self.y)), self.y])
        return (self.weights * losses).sum() / self.weights.sum()


def payoff_values(utility, p, tree):
    row = np.array([utility.payoffs[leaf] for leaf in tree.leaves])
    return np.tile(row, (len(p), 1))


def binary_values(utility, p, tree):
    active = np.isin(tree.leaves, utility.active).astype(float)
    d = np.isin(tree.leaves, utility.favours) - utility.threshold * active
    return np.where((p @ d >= 0)[:, None], d, -d)


def level_values(utility, p, tree):
    groups = tree.level_codes(utility.level)
    mass = np.stack([p[:, groups == g].sum(1) for g in range(groups.max() + 1)], axis=1)
    return (groups[None, :] == mass.argmax(1)[:, None]).astype(float)


def greedy_values(utility, p, tree):
    out = np.zeros_like(p)
    for i, row in enumerate(p):
        node = tree.root
        while tree.depth(node) < utility.level and node not in tree.leaves:
            below = {
                child: sum(row[tree.leaf_index(leaf)] for leaf in tree.leaves_under(child))
                for child in tree.children(node)
            }
            node = max(below, key=below.get)
        for leaf in tree.leaves_under(node):
            out[i, tree.leaf_index(leaf)] = 1.0
    return out


def selective_values(utility, p, tree):
    groups = tree.level_codes(utility.level)
    mass = np.stack([p[:, groups == g].sum(1) for g in range(groups.max() + 1)], axis=1)
    chosen = mass.argmax(1)
    out = np.zeros_like(p)
    for i, g in enumerate(chosen):
        inside = groups == g
        leaf = int(np.argmax(np.where(inside, p[i], -1.0)))
        if mass[i, g] < utility.group_threshold:
            out[i] = utility.abstain
        elif p[i, leaf] / mass[i, g] < utility.leaf_threshold:
            out[i] = np.where(inside, utility.group_right, utility.group_wrong)
        else:
            out[i] = np.where(inside, utility.leaf_sibling, utility.leaf_wrong)
            out[i, leaf] = utility.leaf_right
    return out


def top_values(utility, p, _tree):
    ranks = np.argsort(np.argsort(-p, axis=1, kind="stable"), axis=1)
    return (ranks < utility.k).astype(float)


def brier(p):
    return p - 0.5 * (p * p).sum(axis=1, keepdims=True)


VALUES = {
    hm.Payoff: payoff_values,
    hm.BinaryAction: binary_values,
    hm.LevelCorrectness: level_values,
    hm.GreedyPathCorrectness: greedy_values,
    hm.SelectiveReport: selective_values,
    hm.TopK: top_values,
    hm.CustomUtility: lambda utility, p, tree: brier(p),  # noqa: ARG005
}


def random_tree(rng):
    names = iter(f"y{i}" for i in range(100))
    nodes = iter(f"v{i}" for i in range(100))

    def grow(depth):
        if depth == 3 or (depth > 0 and rng.random() < 0.4):
            return None
        return [grow(depth + 1) for _ in range(rng.integers(1 if depth else 2, 4))]

    def name(part):
        if part is None:
            return next(names), None
        return next(nodes), dict(map(name, part))

    while True:
        shape = grow(0)
        leaves = json.dumps(shape).count("null")
        if 3 <= leaves <= 9:
            return hm.LabelTree.from_nested(name(shape)[1])


def random_utilities(rng, tree):
    leaves = list(tree.leaves)
    active = [leaf for leaf in leaves if rng.random() < 0.8] or leaves
    level = int(rng.integers(1, tree.height + 1))
    pool = [
        hm.Payoff("pay", dict(zip(leaves, rng.uniform(-1, 1, len(leaves)), strict=True))),
        hm.BinaryAction("act", active=active, favours=active[::2], threshold=0.35),
        hm.LevelCorrectness(level=level),
        hm.GreedyPathCorrectness(level=level),
        hm.SelectiveReport(group_threshold=0.4, leaf_threshold=0.6, level=1),
        hm.TopK(2),
        hm.CustomUtility("brier", brier),
    ]
    return [pool[i] for i in sorted(rng.choice(len(pool), size=3, replace=False))]


def random_instance(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    n = int(rng.integers(25, 60))
    p = rng.dirichlet(np.full(tree.n_leaves, 0.8), n) * 0.999 + 0.001 / tree.n_leaves
    p[1::5] = p[0]  # ties, some of which updates will break
    truth = rng.dirichlet(np.ones(tree.n_leaves))
    y = rng.choice(tree.n_leaves, size=n, p=truth)
    features = pd.DataFrame({"x": rng.random(n), "w": rng.uniform(-1, 1, n)})
    real = seed % 2 == 0
    subgroups = hm.Subgroups.from_reference(
        features, {"x": "median"}, weights={"w": "w"} if real else None
    )
    weights = rng.uniform(0.5, 2, n) if seed % 3 == 0 else None
    return rng, tree, random_utilities(rng, tree), subgroups, features, p, y, weights


def booster(seed, tree, utilities, subgroups):
    shared = {"tree": tree, "utilities": utilities, "subgroups": subgroups, "interior": 0.0}
    if seed % 4 == 0:
        return UCBoost(**shared, max_updates=8, tolerance=0.005)
    return HUCBoost(
        **shared,
        mode="paper",
        step=0.05 if seed % 4 == 1 else "adaptive",
        traversal="largest" if seed % 4 == 2 else "passes",
        max_updates=8,
        tolerance=0.005,
    )


def scope(boost, table, update):
    """Candidates the update was the largest of."""
    if isinstance(boost, UCBoost):
        return [size for (_, _, node), size in table.items() if node is None]
    if boost.traversal == "largest":
        return [size for (_, _, node), size in table.items() if node is not None]
    return [size for (_, _, node), size in table.items() if node == update.node]


@pytest.mark.seconds
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_fit_and_replay_equal_dense_numpy_update_by_update(first, monkeypatch):
    windows = []

    def keep(*args, **kwargs):
        windows.append(make(*args, **kwargs))
        return windows[-1]

    make = _base.BoostWindow
    monkeypatch.setattr(_base, "BoostWindow", keep)
    made = 0
    for seed in range(first, first + 20):
        rng, tree, utilities, subgroups, features, p, y, weights = random_instance(seed)
        boost = booster(seed, tree, utilities, subgroups)
        boost.fit(p, y, features=features, weights=weights)
        groups = dict(
            zip(subgroups.names, map(np.asarray, subgroups.weights(features, len(p))), strict=True)
        )
        dense = Dense(tree, utilities, groups, p, y, weights)
        data = boost.to_dict()
        fresh = rng.dirichlet(np.ones(tree.n_leaves), 40)
        fresh_x = pd.DataFrame({"x": rng.random(40), "w": rng.uniform(-1, 1, 40)})
        fresh_groups = dict(zip(subgroups.names, subgroups.weights(fresh_x, 40), strict=True))
        fresh_dense = fresh.copy()
        for t, update in enumerate(boost.updates_):
            line = boost.history_.iloc[t + 1]
            moment, curvature = dense.moment_and_curvature(update)
            assert moment == pytest.approx(line["moment"], abs=1e-9)
            assert abs(moment) >= max(scope(boost, dense.moments(), update)) - 1e-9
            if boost.step == "adaptive":
                assert update.step == pytest.approx(moment / curvature, rel=1e-7)
            else:
                assert update.step == pytest.approx(np.sign(moment) * boost.step)
            dense.p = dense.step(update, dense.p, groups[update.subgroup])
            fresh_dense = dense.step(update, fresh_dense, fresh_groups[update.subgroup])
            part = type(boost).from_dict(data | {"updates": data["updates"][: t + 1]})
            np.testing.assert_allclose(
                part.predict_proba(p, features=features), dense.p, rtol=0, atol=1e-9
            )
            np.testing.assert_allclose(
                part.predict_proba(fresh, features=fresh_x), fresh_dense, rtol=0, atol=1e-9
            )
            table = dense.moments()
            huc = max(size for (_, _, node), size in table.items() if node is not None)
            uc = max(size for (_, _, node), size in table.items() if node is None)
            assert line["huc"] == pytest.approx(huc, abs=1e-9)
            assert line["uc"] == pytest.approx(uc, abs=1e-9)
            assert line["log_loss"] == pytest.approx(dense.log_loss(), abs=1e-9)
            made += 1
        if len(boost.updates_) < boost.max_updates:
            kind = "uc" if isinstance(boost, UCBoost) else "huc"
            assert boost.history_[kind].iloc[-1] <= boost.tolerance + 1e-9
        # The closed ends of intervals are training scores: not a bit may differ.
        replayed = boost.predict_proba(p, features=features)
        assert np.array_equal(replayed, windows[-1].leaf_probabilities())
        assert boost.checks_.hold
    assert made > 50


def test_labels_above_the_leaves_teach_the_branches_above_them_and_no_others():
    rng = np.random.default_rng(8)
    tree = hm.LabelTree.from_nested({"a": ["x", "y"], "b": ["u", "v"]})
    p = rng.dirichlet(np.ones(4), 3_000)
    truth = p.copy()
    truth[:, [0, 2]] *= 3.0
    truth /= truth.sum(axis=1, keepdims=True)
    leaves = (rng.random(3_000)[:, None] > truth.cumsum(axis=1)).sum(axis=1)
    labels = np.array(tree.leaves, dtype=object)[leaves]
    labels[leaves >= 2] = "b"
    pay = hm.Payoff("pay", {"x": 1, "u": 1})
    boost = HUCBoost(tree=tree, utilities=[pay], initial=None, tolerance=0.01).fit(p, labels)
    assert {update.node for update in boost.updates_} <= {"root", "a"}
    assert any(update.node == "a" for update in boost.updates_)
    coarse = np.where(leaves >= 2, p[:, 2:].sum(axis=1), p[np.arange(3_000), leaves % 4])
    assert boost.history_["log_loss"].iloc[0] == pytest.approx(-np.log(coarse).mean())
    q = boost.predict_proba(p)
    # Under "b" nothing was taught, so the split there is as it was.
    np.testing.assert_allclose(q[:, 2] * p[:, 3], q[:, 3] * p[:, 2], atol=1e-9)
    before, after = (hm.audit(x, labels, tree=tree, utilities=[pay]).huc for x in (p, q))
    assert after < before / 2
