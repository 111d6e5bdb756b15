"""mcgrad: multicalibration of "the likeliest class is right", and one-against-the-rest repairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from mcgrad.methods import MCGrad
from mcgrad.metrics import MulticalibrationError
from peer import fastest


def error(frame):
    return MulticalibrationError(frame, "right", "score", categorical_segment_columns=["group"])


def detect(stream):
    answers = []
    for day in stream.days:
        found = error(day.frame()[["right", "score", "group"]])
        answers.append((found.mce_pvalue < 0.01, float(found.mce_sigma), []))
    return answers


def recalibrate(known, new):
    found = np.empty_like(new.probabilities)
    for k in range(len(known.classes)):
        fit = pd.DataFrame({"p": known.probabilities[:, k], "y": known.codes == k})
        fit["group"] = known.group
        ask = pd.DataFrame({"p": new.probabilities[:, k], "group": new.group})
        if not fit["y"].any():
            found[:, k] = ask["p"]
            continue
        model = MCGrad().fit(fit, "p", "y", categorical_feature_column_names=["group"])
        found[:, k] = model.predict(ask, "p", categorical_feature_column_names=["group"])
    return found / found.sum(axis=1, keepdims=True)


def discover(frame, p):  # noqa: ARG001 - called like the others
    frame = frame.assign(y=(frame["y"] < 2).astype(int))
    texts = [name for name in frame if name.startswith("text")]
    numbers = [name for name in frame if name.startswith("number")]
    found = MulticalibrationError(frame, "y", "score", categorical_segment_columns=texts,
                                  numerical_segment_columns=numbers)  # fmt: skip
    if found.mce_pvalue >= 0.05:
        return []
    worst = int(np.argmax(found.segments_ecce_sigma))
    masks = found._segments[0]  # the library shows sizes of errors, and whose only in here
    rows = np.zeros(len(frame), dtype=bool)
    rows[found.df["index"].to_numpy()] = masks.reshape(-1, masks.shape[2])[worst]
    return [rows]


DETECTORS = {"multicalibration error": detect}
SEGMENTERS = {"worst segment": discover}
RECALIBRATORS = {"one class against the rest": recalibrate}


def speed(n):
    """One score, a hundred or so segments: seconds for each of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"score": rng.random(n)})
    frame["right"] = (rng.random(n) < frame["score"]).astype(int)
    names = ["a", "b", "c"]
    for name in names:
        frame[name] = rng.choice(list("uvw"), n)

    def measure():
        found = MulticalibrationError(frame, "right", "score", categorical_segment_columns=names)
        found.mce, found.mce_pvalue  # noqa: B018 - computed when asked for
        return found

    seconds, found = fastest(measure)
    segments = len(found.segments_ecce)
    each = seconds / segments
    return {"calibration": seconds, "candidates": segments, "calibration_per_candidate": each}
