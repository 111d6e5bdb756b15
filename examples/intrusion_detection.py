# For security teams whose detector meets attacks that did not exist when it was trained: an alarm
# that names the branch and the protocol, however often one looks.
# Run: python intrusion_detection.py [folder with nsl_kdd_train20.parquet]
"""Watch a network intrusion detector while new kinds of attack arrive."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer

import huc_monitor as hm

FILE = "nsl_kdd_train20.parquet"
TREE = hm.LabelTree.from_nested({"normal": None, "attack": ["dos", "probe", "other"]})
FAMILIES = {
    "dos": ["back", "land", "neptune", "pod", "smurf", "teardrop"],
    "probe": ["ipsweep", "nmap", "portsweep", "satan"],
}
# Unknown when the detector was trained; they arrive halfway through the stream.
NEW = ["smurf", "satan", "nmap"]
NUMBERS = ["src_bytes", "dst_bytes", "count", "srv_count", "same_srv_rate", "dst_host_count"]
BATCH = 500


def read(folder: str | None) -> pd.DataFrame:
    """Return the connections of a folder, or made-up ones of the same columns."""
    if folder is not None:
        return pd.read_parquet(Path(folder) / FILE)
    print(f"No folder given: made-up connections stand in for {FILE}.")
    rng = np.random.default_rng(0)
    kinds = ["normal", "neptune", "ipsweep", "warezclient", "smurf", "satan", "nmap"]
    attack = rng.choice(kinds, 12_000, p=[0.5, 0.24, 0.08, 0.04, 0.06, 0.05, 0.03])
    # A new kind looks like an old one of the other family: probes like denial of service.
    looks = np.array([0.0, 2.0, -2.0, 4.0, -2.0, 2.0, 2.0])[[kinds.index(a) for a in attack]]
    frame = pd.DataFrame({name: looks + rng.normal(0, 1.2, attack.size) for name in NUMBERS})
    protocol = np.where(np.isin(attack, ["smurf", "ipsweep"]), "icmp", "tcp")
    return frame.assign(attack=attack, protocol_type=protocol, flag="SF")


def family(attacks: pd.Series[Any]) -> Any:
    """Map attacks to the leaves of the tree."""
    known = {attack: name for name, attacks in FAMILIES.items() for attack in attacks}
    return attacks.map(known | {"normal": "normal"}).fillna("other").to_numpy(dtype=object)


def main(folder: str | None = None) -> int:
    """Train on the past, then look at the stream batch by batch until the alarm."""
    frame = read(folder).sample(frac=1, random_state=0, ignore_index=True)
    new = frame["attack"].isin(NEW)
    past, calm = np.array_split(np.flatnonzero(~new), [int(0.6 * (~new).sum())])
    stormy = np.concatenate([np.flatnonzero(new), calm[len(calm) // 2 :]])
    np.random.default_rng(0).shuffle(stormy)
    calm = calm[: len(calm) // 2]

    columns = make_column_transformer(
        (QuantileTransformer(n_quantiles=100), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore"), ["protocol_type", "flag"]),
    )
    train = frame.iloc[past]
    detector = make_pipeline(columns, LogisticRegression(max_iter=300, C=10.0))
    detector.fit(train, family(train["attack"]))
    groups = hm.Subgroups.from_reference(train, {"protocol_type": "each"}, min_size=100)
    watch = hm.EDetector(
        tree=TREE,
        utilities=[hm.LevelCorrectness(level=1, name="status"), hm.TopK(1, name="family")],
        subgroups=groups,
        tolerance=0.03,
        average_run_length=100,
    )
    begin = -(-len(calm) // BATCH)
    batches = [rows[i : i + BATCH] for rows in (calm, stormy) for i in range(0, len(rows), BATCH)]
    print(f"{len(past):,} connections to learn from; new attacks arrive after batch {begin}.")
    for number, rows in enumerate(batches, start=1):
        batch = frame.iloc[rows]
        shares = pd.DataFrame(detector.predict_proba(batch), columns=detector.classes_)
        shares = shares.reindex(columns=TREE.leaves, fill_value=0.0)  # no leaf may be missing
        step = watch.update(shares, family(batch["attack"]), features=batch)
        if step.alarm:
            first = step.ranking[0]
            print(
                f"batch {number}: alarm. {first.utility!r} cannot be trusted at "
                f"{first.node!r} for {first.subgroup!r}."
            )
            return 0 if number > begin else 1
    print("no alarm")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
