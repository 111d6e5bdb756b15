"""Every form of the same predictions in an Evidently report."""

from __future__ import annotations

import pytest
from support.prediction_forms import TREE, UTILITIES, all_forms

import huc_monitor as hm

pytest.importorskip("evidently", reason="needs evidently")

from huc_evidently import HUCPreset

CASES = {case.name: case for case in all_forms()}


@pytest.mark.parametrize("name", CASES)
def test_a_form_in_a_report_is_the_form_read_in_python(name):
    case = CASES[name]
    shared = {"tree": TREE, "utilities": UTILITIES, "n_draws": 50}
    where = hm.PredictionColumns(**case.words)
    preset = HUCPreset(target="y", probabilities=where, tolerance=0.02, **shared)
    found = preset._question.ask(case.frame)
    rows = hm.read_predictions(case.frame, tree=TREE, **case.words)
    wanted = hm.audit(rows, list(case.frame["y"]), **shared)
    assert found.to_dict() == wanted.to_dict()


def test_the_rule_of_monitors_is_refused_with_a_reason():
    case = CASES["top-k lists"]
    where = hm.PredictionColumns(**case.words | {"rest": "reference"})
    preset = HUCPreset(tree=TREE, utilities=UTILITIES, target="y", probabilities=where)
    with pytest.raises(hm.InvalidInputError, match="'reference' is for monitors"):
        preset._question.ask(case.frame)


def test_labels_at_inner_nodes_in_a_report_are_counted_as_in_an_audit():
    case = CASES["top-k lists"]
    shared = {"tree": TREE, "utilities": UTILITIES, "n_draws": 50}
    names = case.frame["y"].tolist()
    labels = [TREE.parent(name) if k % 3 == 0 else name for k, name in enumerate(names)]
    frame = case.frame.assign(y=labels)
    where = hm.PredictionColumns(**case.words)
    preset = HUCPreset(target="y", probabilities=where, tolerance=0.02, **shared)
    found = preset._question.ask(frame)
    wanted = hm.audit(hm.read_predictions(frame, tree=TREE, **case.words), labels, **shared)
    assert (wanted.to_frame()["label_coverage"] < 1).any()
    assert found.to_dict() == wanted.to_dict()
