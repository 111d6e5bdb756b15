"""HUC, log loss, calibration error and accuracy of every repair, on rows that none learned from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from peer import SPLITS, read, splits

import huc_monitor as hm

if TYPE_CHECKING:
    from pathlib import Path


def ece(p, codes, n_bins=15):
    """Top-label calibration error in bins of equal width."""
    score, right = p.max(axis=1), p.argmax(axis=1) == codes
    bins = np.minimum((score * n_bins).astype(int), n_bins - 1)
    gaps = [abs((score - right)[bins == k].sum()) for k in range(n_bins)]
    return float(sum(gaps) / len(codes))


def judge(new, p):
    """The four figures of one repair."""
    p = np.asarray(p, dtype=float).clip(1e-9)
    p /= p.sum(axis=1, keepdims=True)
    tree = hm.LabelTree.from_nested(new.tree)
    frame = pd.DataFrame(p, columns=new.classes).reindex(columns=tree.leaves, fill_value=0.0)
    group = pd.DataFrame({"group": new.group})
    result = hm.audit(
        frame,
        new.labels,
        tree=tree,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2), hm.TopK(1)],
        subgroups=hm.Subgroups.from_reference(group, {"group": "each"}),
        features=group,
        bounds=None,
    )
    return {
        "huc": result.huc,
        "log_loss": float(-np.log(p[np.arange(len(p)), new.codes]).mean()),
        "ece": ece(p, new.codes),
        "accuracy": float((p.argmax(axis=1) == new.codes).mean()),
    }


def judge_all(tasks: Path, out: Path) -> None:
    """Write ``recalibration.json``: figures by pair, method and split."""
    found: dict[str, dict[str, list]] = {}
    for path in sorted((tasks / "pairs").glob("*.npz")):
        _, table = read(path)
        found[path.stem] = {}
        for folder in sorted((out / "recalibrated").glob("*/*")):
            name = f"{folder.parent.name.removesuffix('_peer')}: {folder.name}"
            files = [folder / f"{path.stem}-{k}.npy" for k in range(SPLITS)]
            if all(file.exists() for file in files):
                pairs = zip(splits(table), files, strict=True)
                found[path.stem][name] = [judge(new, np.load(file)) for (_, new), file in pairs]
    (out / "recalibration.json").write_text(json.dumps(found), "utf-8")
