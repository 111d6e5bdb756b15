"""The paper's constants: rows that make HUC-Boost accurate, and the noise on its start."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError

FOLDER = Path(__file__).parents[2] / "examples" / "paper" / "experiments"


def load(name):
    spec = importlib.util.spec_from_file_location(f"paper_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


InitialModel, n_star = (getattr(load("sample_size"), name) for name in ("InitialModel", "n_star"))
perturbed, noise_width = (
    getattr(load("perturbation"), name) for name in ("perturbed", "noise_width")
)

INITIAL = {
    "fixed": InitialModel.fixed(initial_loss=1.5),
    "temperature": InitialModel.temperature(
        smallest_probability=0.01, largest_parameter=3.0, initial_loss=1.5
    ),
    "vector": InitialModel.vector(
        n_leaves=5, smallest_probability=0.01, largest_parameter=3.0, initial_loss=1.5
    ),
    "dirichlet": InitialModel.dirichlet(n_leaves=5, smallest_probability=0.01, regularization=0.5),
}


def test_the_constants_of_every_initial_model_are_those_of_the_paper():
    log100, log5 = math.log(100), math.log(5)
    shown = {
        kind: (model.dimension, model.initial_loss, model.parameter_bound, model.lipschitz)
        for kind, model in INITIAL.items()
    }
    assert shown == {
        "fixed": (0, 1.5, 0.0, 0.0),
        "temperature": (1, 1.5, 3.0, pytest.approx(log100)),
        "vector": (10, 1.5, 3.0, pytest.approx(log100 + 1)),
        "dirichlet": (
            30,
            log5,
            pytest.approx(math.sqrt(4 * log5)),
            pytest.approx(1 + 5 * log100),
        ),
    }


def test_updates_noise_and_price_are_worked_by_hand():
    # accuracy 0.5: ceil(4 * 1.5 / 0.25) = 24 updates, and four more for a learned start.
    assert INITIAL["fixed"].max_updates(0.5) == 24
    assert INITIAL["vector"].max_updates(0.5) == 28
    assert INITIAL["fixed"].log_density_ratio(0.5) == 0
    assert INITIAL["fixed"].noise_width(0.5) == 0
    # a = 0.25 / (2 log 100) = 0.027143; log(1 + 3 / a) = log 111.52.
    assert INITIAL["temperature"].noise_width(0.5) == pytest.approx(0.0271434, rel=1e-5)
    assert INITIAL["temperature"].log_density_ratio(0.5) == pytest.approx(math.log(111.524), 1e-5)


@pytest.mark.parametrize("kind", INITIAL)
@pytest.mark.parametrize("accuracy", [0.05, 0.3, 1.0])
def test_n_star_satisfies_the_condition_it_makes_explicit(kind, accuracy):
    initial = INITIAL[kind]
    n = n_star(accuracy, initial=initial, n_candidates=84, confidence_level=0.9)
    terms = (
        initial.log_density_ratio(accuracy)
        + (initial.max_updates(accuracy) + 1) * math.log(2 * 84 * (2 * n + 1) ** 2)
        + math.log(10)
    )
    assert n >= 512 / accuracy**2 * terms
    assert n <= 8 * 512 / accuracy**2 * terms


def test_a_learned_start_costs_more_the_more_it_learns():
    kinds = ("fixed", "temperature", "vector", "dirichlet")
    rows = [n_star(0.1, initial=INITIAL[kind], n_candidates=84) for kind in kinds[:3]]
    assert rows == sorted(rows)
    assert n_star(0.1, initial=INITIAL["dirichlet"], n_candidates=84) > rows[0]


def test_bad_constants_are_refused():
    with pytest.raises(InvalidInputError, match="`accuracy` must lie in"):
        n_star(0.0, initial=INITIAL["fixed"], n_candidates=3)
    with pytest.raises(InvalidInputError, match="`smallest_probability` must lie strictly"):
        InitialModel.dirichlet(n_leaves=5, smallest_probability=0.0, regularization=1.0)
    with pytest.raises(InvalidInputError, match="`initial_loss` must be a positive number"):
        InitialModel.fixed(initial_loss=-1.0)


def draw(n, k, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(k), n)
    return p, np.array([rng.choice(k, p=row) for row in p])


@pytest.mark.parametrize(
    ("cls", "constant"),
    [
        (hm.TemperatureScaling, np.log(1e6)),
        (hm.VectorScaling, np.log(1e6) + 1),
        (hm.DirichletScaling, 1 + 3 * np.log(1e6)),
    ],
)
def test_the_perturbation_has_the_width_of_the_theorem(cls, constant):
    scaling = cls(q_min=1e-6).fit(*draw(200, 3))
    width = 0.1**2 / (2 * constant)
    before = scaling.theta_.copy()
    moved = perturbed(scaling, 0.1, rng=np.random.default_rng(0))
    assert noise_width(scaling, 0.1) == pytest.approx(width)
    noise = moved.theta_ - scaling.theta_
    assert (np.abs(noise) <= width).all()
    assert np.abs(noise).max() > width / 100
    again = perturbed(scaling, 0.1, rng=np.random.default_rng(0))
    assert np.array_equal(again.theta_, moved.theta_)
    assert np.array_equal(scaling.theta_, before)


@pytest.mark.parametrize("cls", [hm.TemperatureScaling, hm.VectorScaling, hm.DirichletScaling])
def test_the_perturbation_raises_the_log_loss_by_at_most_epsilon_squared(cls):
    p, labels = draw(200, 3)
    scaling = cls(q_min=1e-6).fit(p, labels)

    def log_loss(model):
        return -np.log(model.predict_proba(p)[np.arange(200), labels]).mean()

    for seed in range(20):
        moved = perturbed(scaling, 0.3, rng=np.random.default_rng(seed))
        assert log_loss(moved) - log_loss(scaling) <= 0.3**2


@pytest.mark.parametrize("epsilon", [0, -0.1, 1.5, float("nan")])
def test_an_epsilon_outside_its_range_is_refused(epsilon):
    scaling = hm.VectorScaling().fit(*draw(50, 3))
    with pytest.raises(InvalidInputError, match=r"`epsilon` must lie in \(0, 1\]"):
        perturbed(scaling, epsilon, rng=np.random.default_rng(0))
