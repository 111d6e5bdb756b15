"""How forecasts do on real streams whose inputs move, and where the concept moves.

``python tests/bench/forecasts.py DATA_FOLDER [windows per stream] [seed]`` prints, for MASSIVE and
NSL-KDD with real models: how often the realised mean utility lies within the bound, the bound's
mean half width, and the mean absolute error of the forecast, of the raw mean score, and (for
accuracy) of CBPE: probabilities calibrated class by class with isotonic regression, normalised,
and the mean of the predicted class's, as NannyML does; calibrated on the reference as there, and
on all rows that the forecast saw. All rows of one trial are different rows: a reference of 1,500,
eight audited windows of 500 that have moved further and further, as a monitor keeps them, and the
window of 500. They move by resampling with exp(slope * z), z being an input (words, bytes, ...) or
the model's confidence. Behind the means: by how much the forecast's error is below CBPE's on the
same windows (mean difference, with its standard error), and what a forecast that knows the mean
utility of every score and predicted leaf would miss by, for chance in the window's own outcomes.

``python tests/bench/forecasts.py simulate [windows]`` does the same in made-up worlds, where what
follows from score and predicted leaf does not change, and leaves err by themselves and move: with
predicted leaves, and with the range of score alone.

``python tests/bench/forecasts.py count [level]`` counts exactly how often bounds miss where all
scores are alike and an outcome is right or wrong: of all error rates from 0.00001 to 0.5, the one
at which they miss most, its misses, and there the mean half width before bounds are cut off at the
values that the utility can have.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from pathlib import Path

import numpy as np
from real_streams import load

import huc_monitor as hm
from huc_monitor.audit.forecast import ScoreGaps
from huc_monitor.tree.labels import LeafCodes

N_REFERENCE, N_WINDOW, N_PAST = 1_500, 500, 8
# Leaves, by how much they err by themselves, by how much their shares move (both as sd).
WORLDS = ((3, 0, 0), (3, 0.1, 1), (30, 0, 0), (30, 0.1, 1), (30, 0.2, 1.5))


def cbpe(p, reference, codes):
    """Return CBPE's estimate of accuracy."""
    from sklearn.isotonic import IsotonicRegression

    calibrated = np.empty_like(p)
    for leaf in range(p.shape[1]):
        truth = codes == leaf
        if not truth.any():
            calibrated[:, leaf] = p[:, leaf]
            continue
        fit = IsotonicRegression(out_of_bounds="clip").fit(reference[:, leaf], truth)
        calibrated[:, leaf] = fit.predict(p[:, leaf])
    total = calibrated.sum(axis=1, keepdims=True)
    calibrated = np.divide(calibrated, total, out=p.copy(), where=total > 0)
    return calibrated[np.arange(len(p)), p.argmax(axis=1)].mean()


def covariates(stream):
    """Standardised things by which windows are resampled."""
    found = [np.argsort(np.argsort(stream.probabilities.max(axis=1)))]
    for name in stream.features:
        values = stream.features[name]
        codes = values.astype("category").cat.codes if values.dtype == object else values
        found.append(np.argsort(np.argsort(codes.to_numpy(), kind="stable")))
    return [(rank - rank.mean()) / rank.std() for rank in found]


def draw(rng, free, z, slope, size):
    """Choose rows by exponential tilting, without replacement."""
    weight = np.exp(slope * z[free])
    return rng.choice(free, size, replace=False, p=weight / weight.sum())


def trial(stream, codes, z, slope, rng, *, concept=False):
    """Return one line per utility: inside, half width, and errors."""
    free = rng.permutation(len(codes))
    reference, free = free[:N_REFERENCE], free[N_REFERENCE:]
    drawn = []
    for part in np.arange(N_PAST + 1) / N_PAST:
        drawn.append(draw(rng, free, z, slope * part, N_WINDOW))
        free = np.setdiff1d(free, drawn[-1])
    *past, window = drawn
    audited, p = np.concatenate([reference, *past]), stream.probabilities
    labels = codes[window]
    if concept:  # a fifth of the window's labels go to another leaf, whatever the score
        moved = rng.random(N_WINDOW) < 0.2
        labels = np.where(moved, rng.integers(0, stream.tree.n_leaves, N_WINDOW), labels)
    found = hm.forecast(
        p[window],
        p[audited],
        LeafCodes(codes[audited]),
        tree=stream.tree,
        utilities=stream.utilities,
    )
    rows = []
    for item, utility in zip(found, stream.utilities, strict=True):
        values = utility.values(p[window], tree=stream.tree)
        truth = values[np.arange(N_WINDOW), labels].mean()
        done = item.judged(truth - item.score, N_WINDOW)
        others = [np.nan, np.nan]
        if utility.name == "top1":
            others = [
                abs(cbpe(p[window], p[rows_], codes[rows_]) - truth)
                for rows_ in (reference, audited)
            ]
        rows.append(
            [
                done.inside,
                (done.upper - done.lower) / 2,
                abs(done.value - truth),
                abs(done.score - truth),
                *others,
                math.sqrt(2 / math.pi * done.variance / N_WINDOW),
            ]
        )
    return np.array(rows, dtype=float)


def simulate(n_windows=300, seed=9):
    """Print how often bounds hold in made-up worlds, with and without predicted leaves."""
    for n_past, n_new in ((100, 500), (300, 300), (1_000, 500), (1_000, 5_000), (5_000, 20_000)):
        for n_leaves, effect, move in WORLDS:
            rng = np.random.default_rng(seed)
            own, slope = rng.normal(size=(2, n_leaves)) * effect
            shares = rng.dirichlet(np.ones(n_leaves))

            def rows(n, a, shares, rng=rng, own=own, slope=slope):
                leaves, scores = rng.choice(len(shares), n, p=shares), rng.beta(a, 2, n)
                mean = 0.25 + 0.6 * scores + own[leaves] + slope[leaves] * (scores - 0.65)
                return scores, leaves, (rng.random(n) < mean.clip(0.02, 0.98)).astype(float)

            table = []
            for _ in range(n_windows):
                moved = shares * np.exp(move * rng.normal(size=n_leaves))
                past, leaves, y = rows(n_past, 4, shares)
                new, new_leaves, came = rows(n_new, 6 if move else 4, moved / moved.sum())
                order = np.argsort(past)
                gaps, even = (y - past)[order], np.full(n_past, 1 / n_past)
                for known, theirs in ((leaves[order], new_leaves), (leaves * 0, new_leaves * 0)):
                    audited = ScoreGaps(hm.TopK(1), 1.0, past[order], known, gaps, even)
                    found = audited.forecast(new, theirs)
                    error = abs(found.value - came.mean())
                    held = found.lower <= came.mean() <= found.upper
                    table.append([held, found.upper - found.value, error])
            mean = np.reshape(table, (n_windows, -1)).mean(axis=0)
            world = (n_past, n_new, n_leaves, effect, move)
            print(*(f"{x:>8}" for x in world), *(f"{x:>8.4f}" for x in mean), flush=True)


def count(level=0.95):
    """Print the largest share of missed windows at any error rate; no draws are made."""
    from scipy.stats import binom

    rates = np.geomspace(1e-5, 0.5, 60)
    for n_past, n_new in product((10, 30, 100, 300, 1_000, 3_000), (10, 100, 1_000, 10_000)):
        wrong = np.arange(binom.ppf(1 - 1e-9, n_past, rates[-1]) + 1)
        radii = np.array([_radius(int(k), n_past, n_new, level) for k in wrong])
        chances = binom.pmf(wrong, n_past, rates[:, None])
        most = np.floor(n_new * (wrong / n_past + radii) + 1e-9)
        least = np.ceil(n_new * (wrong / n_past - radii) - 1e-9)
        below, beyond = (binom.cdf(k, n_new, rates[:, None]) for k in (least - 1, most))
        missed = (chances * (below + 1 - beyond)).sum(axis=1)
        at = int(missed.argmax())
        found = (rates[at], missed[at], chances[at] @ radii)
        print(f"{n_past:>8}{n_new:>8}", *(f"{x:>10.5f}" for x in found))


def _radius(n_wrong, n_past, n_new, level):
    gaps = np.where(np.arange(n_past) < n_wrong, -0.9, 0.1)
    past, alike = np.full(n_past, 0.9), np.zeros(n_past, dtype=np.int64)
    audited = ScoreGaps(hm.TopK(1), 1.0, past, alike, gaps, np.full(n_past, 1 / n_past))
    return audited.forecast(np.full(n_new, 0.9), confidence_level=level).sampling


def main(folder, n_windows=100, seed=7):
    head = ("stream", "case", "utility", "windows", "inside", "half width", "forecast", "score")
    print(
        *(f"{name:>15}" for name in (*head, "CBPE ref", "CBPE same", "chance", "- ref", "- same"))
    )
    for stream in load(folder):
        codes = stream.tree.encode(stream.labels)
        inputs = covariates(stream)
        for case, concept in (("moved", False), ("concept", True)):
            tables = []
            for k in range(n_windows if not concept else n_windows // 4):
                rng = np.random.default_rng([seed, k])
                z = inputs[k % len(inputs)] * (1 if k % 2 else -1)
                slope = (0.0, 0.4, 0.8)[k % 3]
                tables.append(trial(stream, codes, z, slope, rng, concept=concept))
            table = np.stack(tables)
            for u, utility in enumerate(stream.utilities):
                mean = table[:, u].mean(axis=0)
                cells = [stream.name, case, utility.name, len(table), *(f"{x:.4f}" for x in mean)]
                for other in (4, 5):
                    less = table[:, u, 2] - table[:, u, other]
                    error = less.std() / math.sqrt(len(less))
                    cells.append(f"{less.mean():+.4f}({error:.4f})")
                print(*(f"{cell!s:>15}" for cell in cells), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "simulate":
        simulate(*map(int, sys.argv[2:]))
    elif sys.argv[1] == "count":
        count(*map(float, sys.argv[2:]))
    else:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
