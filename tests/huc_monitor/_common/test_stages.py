from __future__ import annotations

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor._common.stages import begin_stage, listening
from huc_monitor.recalibration.choosing import find_recalibration


def test_stages_reach_the_nearest_listener_and_nobody_after_it():
    outer, inner = [], []
    with listening(outer.append):
        begin_stage("one")
        with listening(inner.append):
            begin_stage("two")
        begin_stage("three")
    begin_stage("four")
    assert (outer, inner) == (["one", "three"], ["two"])


def test_a_listener_is_forgotten_after_an_error():
    heard = []
    with pytest.raises(ZeroDivisionError, match="division"), listening(heard.append):
        _ = 1 / 0
    begin_stage("later")
    assert heard == []


def test_every_candidate_of_a_recalibration_is_a_stage():
    tree = hm.LabelTree.from_nested({"sick": ["flu", "coma"], "well": None})
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 600)
    y = rng.integers(0, 3, 600)
    heard = []
    with listening(heard.append):
        find_recalibration(
            p, y, tree=tree, utilities=[hm.TopK(1)], candidates=("temperature", "huc_boost")
        )
    assert heard[:2] == ["fitting temperature (1 of 2)", "fitting huc_boost (2 of 2)"]
    assert "comparing" in heard[2]
