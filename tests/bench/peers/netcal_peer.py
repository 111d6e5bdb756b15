"""netcal: temperature and vector scaling by maximum likelihood."""

from __future__ import annotations

from functools import partial

import numpy as np
from netcal.scaling import LogisticCalibration, TemperatureScaling


def recalibrate(known, new, kind):
    method = kind()
    method.fit(known.probabilities, known.codes)
    found = np.asarray(method.transform(new.probabilities))
    return found / found.sum(axis=1, keepdims=True)


RECALIBRATORS = {
    "temperature": partial(recalibrate, kind=TemperatureScaling),
    "vector": partial(recalibrate, kind=LogisticCalibration),
}
