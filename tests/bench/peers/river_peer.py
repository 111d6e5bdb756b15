"""River: ADWIN on the loss of every row."""

from __future__ import annotations

import numpy as np
from peer import fastest
from river import drift


def detect(stream):
    detector = drift.ADWIN()
    for wrong in ~stream.reference.right:
        detector.update(float(wrong))
    answers = []
    for day in stream.days:
        alarm = False
        for wrong in ~day.right:
            detector.update(float(wrong))
            alarm |= detector.drift_detected
        answers.append((alarm, None, []))
    return answers


DETECTORS = {"ADWIN on the loss": detect}


def speed(n):
    """Updates row by row."""
    wrong = np.random.default_rng(0).random(n) < 0.2

    def update():
        detector = drift.ADWIN()
        for one in wrong:
            detector.update(float(one))

    return {"sequential": fastest(update)[0]}
