"""Past windows, kept small, so that pooled windows read and decompose every row once.

A row is kept as its score and contributions under every utility, its label, its predicted leaf and
its subgroups: with two utilities and four relevant levels about 50 bytes. Sixteen windows of 50,000
rows take 40 MB. Contributions are rounded to 32 bits as they enter, so that a window read back from
bytes gives the same numbers as one that never left memory; moments move by less than 1e-7.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from huc_monitor._common.arrays import arrays_from_bytes, arrays_to_bytes
from huc_monitor.audit.decomposition import UtilityRows, relevant_paths
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.two_samples import Sample
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Ints


def rounded(sample: Sample) -> Sample:
    """Return the sample as it is after a way through bytes."""
    rows = (
        dataclasses.replace(row, contributions=row.contributions.astype(np.float32).astype(float))
        for row in sample.rows
    )
    return dataclasses.replace(sample, rows=tuple(rows))


def sample_to_bytes(sample: Sample) -> bytes:
    """Write a sample as plain arrays."""
    groups = sample.groups
    labels = sample.rows[0].labels
    arrays: dict[str, Any] = {
        "n": labels.size,
        "labels": _small(labels),
        "repeats": groups.repeats,
        "unit": groups.unit,
        "evenly": groups.evenly,
    }
    for name in ("times", "clusters"):
        if getattr(groups, name).size:
            arrays[name] = getattr(groups, name)
    if sample.unforeseen.size:
        arrays["unforeseen"] = sample.unforeseen
    if sample.likeliest.size:
        arrays["likeliest"] = _small(sample.likeliest)
    for c, weights in enumerate(groups.weights):
        indicator = weights.dtype == np.uint8
        arrays[f"weights{c}"] = np.packbits(weights != 0) if indicator else weights
    for u, row in enumerate(sample.rows):
        arrays[f"scores{u}"] = row.scores
        arrays[f"contributions{u}"] = row.contributions.astype(np.float32)
    return arrays_to_bytes(arrays)


def sample_from_bytes(data: bytes, plan: AuditPlan) -> Sample:
    """Read what `sample_to_bytes` wrote, for the plan by which it was decomposed."""
    arrays = arrays_from_bytes(data)
    n = int(arrays["n"])
    counts = [sum(name.startswith(kind) for name in arrays) for kind in ("weights", "scores")]
    if counts != [len(plan.subgroups), len(plan.utilities)]:
        msg = (
            f"`data` must hold {len(plan.subgroups)} subgroups and {len(plan.utilities)} "
            f"utilities; got {counts[0]} and {counts[1]}. Windows of other settings are not "
            "comparable: start a new history."
        )
        raise InvalidInputError(msg)
    labels = arrays["labels"].astype(np.int64)
    rows = []
    for u, utility in enumerate(plan.utilities):
        relevant, paths = relevant_paths(plan.tree, utility)
        contributions = arrays[f"contributions{u}"].astype(np.float64)
        scores = arrays[f"scores{u}"]
        rows.append(UtilityRows(plan.tree, utility, relevant, scores, contributions, labels, paths))
    weights = []
    for c in range(counts[0]):
        found = arrays[f"weights{c}"]
        weights.append(np.unpackbits(found, count=n) if found.dtype == np.uint8 else found)
    groups = Groups.counted(weights, arrays["repeats"], float(arrays["unit"]))
    given: dict[str, Any] = {n: arrays[n] for n in ("times", "clusters") if n in arrays}
    if "evenly" in arrays:
        given["evenly"] = float(arrays["evenly"])
    unforeseen = arrays.get("unforeseen", np.empty(0))
    likeliest = arrays.get("likeliest", np.empty(0)).astype(np.int64)
    return Sample(tuple(rows), dataclasses.replace(groups, **given), unforeseen, likeliest)


def knows_chances(data: bytes) -> bool:
    """Whether kept rows say how their labels were chosen; those of earlier versions may not."""
    return not {"times", "evenly"}.isdisjoint(arrays_from_bytes(data))


def _small(codes: Ints) -> np.ndarray[Any, Any]:
    """Codes in as few bytes as the largest takes."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


class ChangeHistory:
    """The newest windows of a monitor, oldest first, by name.

    A host that must survive a restart stores ``to_bytes(name)`` once per window, and hands it
    back with ``read(name, data)``.

    Parameters
    ----------
    plan : AuditPlan
        That of the change test.
    n_windows : int, default 16
        How many are kept: the largest pool, or more to date older onsets.
    """

    def __init__(self, plan: AuditPlan, n_windows: int = 16) -> None:
        if n_windows < 1:
            msg = f"`n_windows` must be at least 1; got {n_windows}."
            raise InvalidInputError(msg)
        self._plan = plan
        self._n_windows = n_windows
        self._samples: dict[str, Sample] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the windows that are kept, oldest first."""
        return tuple(self._samples)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Their rows, oldest first, as `ChangeTest.look` takes them."""
        return tuple(self._samples.values())

    def add(self, name: str, sample: Sample) -> None:
        """Keep a window, and forget the oldest beyond the limit; a known name is replaced."""
        self._keep(name, rounded(sample))

    def _keep(self, name: str, sample: Sample) -> None:
        self._samples[name] = sample
        for old in self.names[: -self._n_windows]:
            del self._samples[old]

    def to_bytes(self, name: str) -> bytes:
        """One window as plain arrays."""
        return sample_to_bytes(self._samples[name])

    def read(self, name: str, data: bytes) -> None:
        """Keep a window that `to_bytes` wrote."""
        self._keep(name, sample_from_bytes(data, self._plan))
