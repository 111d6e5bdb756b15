"""Rows of one utility as records of a fixed size: what an engine writes, sorts and sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor.audit.decomposition import relevant_paths
from huc_monitor.audit.runs.pieces import PiecePlan, ScoredRows
from huc_monitor.subgroups import Memberships

Records = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The layout of one utility's rows.

    A record holds the score, the label, one contribution per branch on the longest path, a bit per
    subgroup that is an indicator (the whole population needs none), a number per real-valued one,
    and the row's weight and id where the audit needs them. Where several samples are compared it
    also holds the sample's number, and contributions in 32 bits. Its size is what a row costs to
    move.
    """

    dtype: np.dtype[Any]
    real: tuple[bool, ...]

    @classmethod
    def of(
        cls,
        audit: PiecePlan,
        utility: int,
        *,
        weighted: bool,
        sampled: bool = False,
        chosen: bool = False,
    ) -> Packing:
        """Lay out rows; they may have weights of their own, and be of several samples.

        ``chosen`` says that labels were chosen with known probability.
        """
        real = audit.real
        _, paths = relevant_paths(audit.tree, audit.utilities[utility])
        width = int(np.diff(paths.ptr).max(initial=0))
        n_real = sum(real)
        n_bytes = -(-(len(real) - n_real) // 8)
        n_codes = paths.ptr.size - 1
        label = "<u1" if n_codes <= 1 << 8 else "<u2" if n_codes <= 1 << 16 else "<u4"
        number = "<f4" if sampled else "<i8"
        fields: list[Any] = [("score", "<f8"), ("label", label), ("values", number, (width,))]
        fields += [("bits", "u1", (n_bytes,)), ("real", "<f8", (n_real,))]
        fields += [("repeats", "<f8")] * (weighted or chosen)
        fields += [("id", "<i8")] * (audit.n_draws > 0)
        fields += [("sample", "<u2")] * sampled + [("times", "<f8")] * chosen
        return cls(np.dtype(fields), real)

    @property
    def bytes_per_row(self) -> int:
        """Size of a record."""
        return self.dtype.itemsize

    def pack(self, rows: ScoredRows) -> Records:
        """Write rows as records."""
        records = np.empty(rows.scores.size, dtype=self.dtype)
        records["score"], records["label"], records["values"] = (
            rows.scores,
            rows.labels,
            rows.values,
        )
        records["bits"] = rows.weights.to_bytes()
        records["real"] = rows.weights.values.T
        more = (("repeats", rows.repeats), ("id", rows.ids), ("sample", rows.samples))
        for name, values in (*more, ("times", rows.times)):
            if name in (self.dtype.names or ()):
                records[name] = values
        return records

    def unpack(self, records: Records) -> ScoredRows:
        """Read records back."""
        names = self.dtype.names or ()
        more: Any = (("repeats", np.float64), ("id", np.int64), ("sample", np.int64))
        more = (*more, ("times", np.float64))
        return ScoredRows(
            np.ascontiguousarray(records["score"]),
            records["label"].astype(np.int64),
            np.ascontiguousarray(records["values"]),
            Memberships.from_bytes(records["bits"], self.real, records["real"].T),
            *(
                records[name].astype(kind) if name in names else np.empty(0, dtype=kind)
                for name, kind in more
            ),
        )
