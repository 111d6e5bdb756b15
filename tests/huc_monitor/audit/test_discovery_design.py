"""Discovery in rows that depend on each other, and in labels that were chosen."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.audit.discovery.halves import divide
from huc_monitor.cli import app

TREE = hm.LabelTree.from_nested({"billing": ["refund", "charge"], "other": ["late", "lost"]})
PAY = hm.Payoff("billing", {"refund": 1.0, "charge": -1.0})


def draw(n, seed, *, swap=0.0):
    """Draw calibrated rows; in a part of channel=app, refund and charge trade places."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {name: rng.choice(["app", "web", "phone"], n) for name in ("channel", "x")}
    )
    p = rng.dirichlet(np.ones(4), n)
    swapped = (frame["channel"] == "app") & (rng.random(n) < swap)
    truth = np.where(swapped.to_numpy()[:, None], p[:, [1, 0, 2, 3]], p)
    y = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 3)
    return p, y, frame


def search(p, y, frame, **more):
    return hm.discover(p, y, tree=TREE, utilities=[PAY], features=frame, **more)


def choose(p, y, seed):
    """Keep labels by chance, those that surprise more often; give the rows and their chances."""
    rng = np.random.default_rng(seed)
    chance = np.where(p[np.arange(len(y)), y] < 0.3, 0.9, 0.3)
    kept = np.flatnonzero(rng.random(len(y)) < chance)
    return kept, chance[kept]


@pytest.mark.parametrize("seed", range(3))
def test_labels_chosen_by_the_outcome_are_no_finding_where_their_chances_are_given(seed):
    p, y, frame = draw(6000, seed)
    kept, chance = choose(p, y, seed)
    rows = p[kept], y[kept], frame.iloc[kept]
    assert search(*rows).certified
    assert not search(*rows, label_probability=chance).certified


def test_a_fault_is_found_among_chosen_labels_with_the_moment_of_all_rows():
    p, y, frame = draw(20_000, 0, swap=0.8)
    kept, chance = choose(p, y, 0)
    (found, *_) = search(p[kept], y[kept], frame.iloc[kept], label_probability=chance).certified
    assert "channel=app" in found.name
    everywhere = hm.audit(p, y, tree=TREE, utilities=[PAY], bounds=None)
    (rows,) = hm.decompose(p, y, tree=TREE, utilities=[PAY])
    inside = (frame["channel"] == "app").to_numpy().copy()
    slot = [TREE.branches[v] for v in rows.relevant].index(found.node)
    terms = np.where(rows.path_slots[rows.labels] == slot, rows.contributions, 0.0).sum(axis=1)
    if found.score_range != "any":
        low = rows.scores <= np.median(rows.scores[kept])
        inside &= low if found.score_range == "low" else ~low
    assert found.lower - 0.01 < terms[inside].mean() * inside.mean() < found.upper + 0.01
    assert everywhere.n == 20_000


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_were_repeated_certify_nothing_where_they_are_one_cluster(seed):
    once = 500
    p, y, frame = draw(once, seed)
    again = np.repeat(np.arange(once), 20)
    rows = p[again], y[again], frame.iloc[again]
    assert search(*rows, min_share=0.02).certified, "copies look like evidence"
    assert not search(*rows, min_share=0.02, clusters=again).certified


def test_a_cluster_is_searched_or_certifies_as_a_whole():
    keys = np.random.default_rng(0).integers(0, 40, 1000)
    first, second = divide(1000, keys, 0)
    assert sorted([*first, *second]) == list(range(1000))
    assert not set(keys[first]) & set(keys[second])
    assert 400 < first.size <= 500


def test_bounds_are_those_of_the_sums_of_clusters():
    p, y, frame = draw(4000, 1, swap=1.0)
    keys = np.arange(4000) // 4
    best = search(p, y, frame, clusters=keys, max_segments=1).certified[0]
    (rows,) = hm.decompose(p, y, tree=TREE, utilities=[PAY])
    hashed = pd.util.hash_array(keys.astype(str).astype(object), categorize=False).view(np.int64)
    half = divide(4000, hashed, 0)[1]
    slot = [TREE.branches[v] for v in rows.relevant].index(best.node)
    at_branch = rows.path_slots[rows.labels] == slot
    terms = np.where(at_branch, rows.contributions, 0.0).sum(axis=1)[half]
    family = hm.Subgroups.from_reference(frame, predicates={"s": best.rule})
    inside = family.weights(frame, 4000)[1].astype(bool)[half]
    if best.score_range != "any":
        low = (rows.scores <= np.median(rows.scores))[half]
        inside &= low if best.score_range == "low" else ~low
    terms = terms * inside
    mean = terms.mean()
    sums = pd.Series(terms).groupby(keys[half]).sum()
    reached = pd.Series(inside & at_branch.any(axis=1)[half]).groupby(keys[half]).any().sum()
    assert best.moment == pytest.approx(mean)
    # The floor for what may happen nonetheless, of clusters as large as that of an average row.
    size = pd.Series(inside).groupby(keys[half]).sum()
    most = PAY.spreads(TREE)[rows.relevant][slot]
    floor = -np.log(0.05) * ((size**2).sum() / size.sum() * most) ** 2
    spread = np.sqrt(((sums**2).sum() + floor) / half.size - mean**2) / np.sqrt(half.size)
    assert (best.upper - best.lower) / 2 == pytest.approx(
        student.ppf(1 - 0.05 / 2, reached - 1) * spread, rel=1e-6
    )


def test_what_only_a_searched_cluster_shows_is_not_certified():
    """No certifying row was in the segment: its bounds were of width zero, and divided by."""
    p, y, frame = draw(12_000, 3)
    clusters = np.arange(12_000) % 200
    mine = clusters == 0
    frame["x"] = np.where(mine, "site 0", "elsewhere")
    p[mine], y[mine] = [0.97, 0.01, 0.01, 0.01], 1
    (segment,) = search(p, y, frame, clusters=clusters, rng=2).segments
    assert segment.n == 0
    assert segment.name == "x=site 0"
    assert segment.lower < 0.0 < segment.upper
    assert not segment.certified


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clusters": [1, 2]}, "`clusters` must be one value per row"),
        ({"label_probability": np.zeros(500)}, "`label_probability` must be above 0"),
    ],
)
def test_a_wrong_design_is_refused(wrong, message):
    with pytest.raises(hm.InvalidInputError, match=message):
        search(*draw(500, 0), **wrong)


def test_features_in_another_order_are_refused():
    p, y, frame = draw(500, 0)
    named = pd.DataFrame(p, columns=list(TREE.leaves), index=[f"row {k}" for k in range(500)])
    frame.index = named.index
    with pytest.raises(hm.InvalidInputError, match="`features` must be in the order of"):
        search(named, y, frame[::-1])


def test_the_command_reads_clusters_and_chances_from_the_log(tmp_path):
    p, y, frame = draw(6000, 0)
    kept, chance = choose(p, y, 0)
    log = frame.iloc[kept].assign(y=np.array(TREE.leaves)[y[kept]], chance=chance, user=kept // 2)
    log[list(TREE.leaves)] = p[kept]
    log.to_parquet(tmp_path / "log.parquet")
    tree = '{"billing": ["refund", "charge"], "other": ["late", "lost"]}'
    (tmp_path / "tree.json").write_text(tree)
    asked = ["discover", str(tmp_path / "log.parquet"), "--tree", str(tmp_path / "tree.json")]
    asked += ["--label", "y", "--feature", "channel", "--feature", "x"]
    assert CliRunner().invoke(app, asked).exit_code == 1
    more = ["--label-probability", "chance", "--cluster", "user"]
    done = CliRunner().invoke(app, [*asked, *more])
    assert done.exit_code == 0
    assert done.output.startswith("0 certified")


def test_rows_of_one_cluster_are_refused_and_few_clusters_are_doubted():
    p, y, frame = draw(1000, 0)
    with pytest.raises(hm.InvalidInputError, match="`clusters` must have at least two different"):
        search(p, y, frame, clusters=np.zeros(1000))
    uneven = np.where(np.arange(1000) < 900, 0, np.arange(1000))
    found = search(p, y, frame, clusters=uneven)
    assert min(found.n_searched, found.n_certifying) >= 50
    found = search(p, y, frame, clusters=np.arange(1000) % 10)
    assert any("has 5 clusters: below 20 little can be found" in note for note in found.notes)
