"""An audit result as JSON, and read back."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest
from support.random_cases import random_rows, random_tree, random_utilities

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError


def audited(seed=3, bounds="bootstrap", **more):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    p, labels, frame = random_rows(rng, tree)
    pay = dict.fromkeys(tree.leaves, -40.0) | {tree.leaves[0]: 100.0}
    utilities = [
        *random_utilities(rng, tree),
        hm.Payoff("pay", pay, scale=100.0, units="EUR"),
        hm.Payoff("flat", dict.fromkeys(tree.leaves, 0.5)),
    ]
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})
    options = {"tree": tree, "utilities": utilities, "subgroups": groups, "features": frame}
    return hm.audit(p, labels, bounds=bounds, n_draws=64, **options, **more)


@pytest.mark.parametrize("bounds", [None, "theorem", "sharp", "bootstrap"])
@pytest.mark.parametrize("seed", range(8))
def test_a_result_comes_back_from_json_to_the_last_bit(seed, bounds):
    result = audited(seed, bounds)
    text = json.dumps(result.to_dict(), allow_nan=False)
    found = hm.AuditResult.from_dict(json.loads(text))
    assert json.dumps(found.to_dict(), allow_nan=False) == text
    pd.testing.assert_frame_equal(
        found.to_frame(all_columns=True), result.to_frame(all_columns=True), rtol=0, atol=0
    )
    pd.testing.assert_frame_equal(found.uc_frame(), result.uc_frame(), rtol=0, atol=0)
    assert repr(found) == repr(result)
    assert repr(found.worst) == repr(result.worst)
    assert found.violations(0.01).equals(result.violations(0.01))


def test_a_result_without_any_candidate_comes_back():
    tree = hm.LabelTree.flat(["a", "b"])
    flat = [hm.Payoff("flat", {"a": 0.5, "b": 0.5})]
    result = hm.audit([[0.5, 0.5]] * 4, list("abab"), tree=tree, utilities=flat)
    found = hm.AuditResult.from_dict(result.to_dict())
    assert (found.huc, found.candidates.n, found.to_dict()) == (0.0, 0, result.to_dict())


def test_records_of_a_version_without_detectable_moments_are_read():
    plain = audited().to_dict()
    old = copy.deepcopy(plain)
    for row in old["candidates"]:
        del row["detectable"]
    assert hm.AuditResult.from_dict(old).to_dict() == plain


def test_what_was_read_back_says_what_it_does_not_know():
    found = hm.AuditResult.from_dict(audited().to_dict())
    for name in ("tree", "utilities", "subgroups"):
        with pytest.raises(InvalidInputError, match=f"`{name}` must be known for this"):
            getattr(found, name)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda d: d.update(schema_version=2), "schema_version 1; got 2"),
        (lambda d: d.pop("confidence_level"), "'confidence_level' is missing"),
        (lambda d: d.pop("totals"), "'totals' is missing"),
        (lambda d: d["candidates"][1].pop("moment"), r"`data\['candidates'\]` .* 'moment'"),
        (lambda d: d["candidates"][1].update(radius="x"), r"`data\['candidates'\]` .* 'radius'"),
        (lambda d: d.update(totals=3), r"`data\['totals'\]` must be records with 'utility'"),
    ],
)
def test_damaged_data_is_refused_by_the_name_of_the_field(damage, match):
    plain = audited().to_dict()
    damage(plain)
    with pytest.raises(InvalidInputError, match=match):
        hm.AuditResult.from_dict(plain)


def test_a_utility_that_no_branch_can_change_is_told():
    tree = hm.LabelTree.flat(["a", "b"])
    utilities = [hm.Payoff("c", {"root": 0.3}), hm.TopK(2), hm.TopK(1)]
    result = hm.audit([[0.5, 0.5]] * 4, ["a"] * 4, tree=tree, utilities=utilities)
    assert result.notes == tuple(
        f"No branch of this tree can change the utility {name!r}: nothing was audited for it."
        for name in ("c", "top2")
    )
