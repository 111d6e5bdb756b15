"""SUPPORT2, NSL-KDD, N-BaIoT and iNaturalist features: tables of numbers and categories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import huc_monitor as hm

from .problem import MASTER_SEED, Problem, Split, shares, stratified_parts

if TYPE_CHECKING:
    from pathlib import Path

SUPPORT2_OUTCOMES = {
    "no(M2 and SIP pres)": "y1",
    "adl>=4 (>=5 if sur)": "y2",
    "SIP>=30": "y3",
    "Coma or Intub": "y4",
    "<2 mo. follow-up": "y5",
}
SUPPORT2_CATEGORIES = ["sex", "dzgroup", "dzclass", "income", "race", "ca"]
# fmt: off
SUPPORT2_NUMBERS = [
    "age", "num.co", "edu", "scoma", "hday", "diabetes", "dementia", "meanbp", "wblc", "hrt",
    "resp", "temp", "pafi", "alb", "bili", "crea", "sod", "ph", "glucose", "bun", "urine",
    "adlp", "adls", "adlsc",
]
# Outcomes and what happened after them, costs, care decisions and treatment intensity after
# admission, and prognoses made by others.
SUPPORT2_EXCLUDED = [
    "sno", "death", "hospdead", "slos", "d.time", "sfdm2", "charges", "totcst", "totmcst",
    "avtisst", "dnr", "dnrday", "sps", "aps", "surv2m", "surv6m", "prg2m", "prg6m",
]
NSL_FAMILIES = {
    "normal": ["normal"],
    "dos": ["back", "land", "neptune", "pod", "smurf", "teardrop"],
    "probe": ["ipsweep", "nmap", "portsweep", "satan"],
    "r2l": ["ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient",
            "warezmaster"],
    "u2r": ["buffer_overflow", "loadmodule", "perl", "rootkit"],
}
INATURALIST_RANKS = ["kingdom", "phylum", "class", "order", "family", "genus", "species"]
INATURALIST_ATTRIBUTES = ["brightness", "contrast", "aspect_ratio"]
# fmt: on
NSL_CATEGORIES = ["protocol_type", "service", "flag"]
NBAIOT_N = 1_000
SUPPORT2_SIZES = [2_250, 1_001, 750, 999]


class TableInputs:
    """Numbers imputed by the median, flagged where missing, standardised; categories one-hot."""

    def __init__(
        self, frame: pd.DataFrame, numbers: list[str], categories: list[str], *, flag: bool = True
    ) -> None:
        self.frame, self.numbers, self.categories, self.flag = frame, numbers, categories, flag

    def __call__(self, rows: np.ndarray[Any, Any], train: np.ndarray[Any, Any]) -> Any:
        """Input matrix of some rows; medians, scales and categories are those of training."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        numbers = make_pipeline(
            SimpleImputer(strategy="median", add_indicator=self.flag), StandardScaler()
        )
        one_hot = OneHotEncoder(
            categories=[sorted(self.frame[name].unique()) for name in self.categories],
            sparse_output=False,
        )
        table = ColumnTransformer(
            [("numbers", numbers, self.numbers), ("categories", one_hot, self.categories)]
        )
        table.fit(self.frame.iloc[train])
        return np.asarray(table.transform(self.frame.iloc[rows]), dtype=np.float64)


def support2(path: Path, *, quick: bool = False) -> Problem:
    """Five two-month outcomes of seriously ill patients; nine action utilities."""
    frame = pd.read_parquet(path)
    frame = frame[frame["sfdm2"].notna()].reset_index(drop=True)
    labels = frame["sfdm2"].map(SUPPORT2_OUTCOMES).to_numpy(dtype=str)
    wanted = sum(SUPPORT2_SIZES)
    sizes = [size // 5 for size in SUPPORT2_SIZES] if quick else SUPPORT2_SIZES
    if labels.size > sum(sizes):
        kept, _ = stratified_parts(labels, [sum(sizes), labels.size - sum(sizes)], MASTER_SEED)
        frame, labels = frame.iloc[kept].reset_index(drop=True), labels[kept]
    if labels.size < wanted:
        sizes = shares(labels.size)
    for name in SUPPORT2_CATEGORIES:
        frame[name] = frame[name].astype(object).where(frame[name].notna(), "missing").astype(str)
    tree = hm.LabelTree.from_nested(
        {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "y5": None}
    )
    decisions = {
        "death": (["y1", "y2", "y3", "y4", "y5"], ["y5"]),
        "assistance": (["y1", "y2"], ["y2"]),
        "intensive": (["y3", "y4"], ["y4"]),
    }
    utilities: list[hm.Utility] = [
        hm.BinaryAction(f"{name}_{tau:g}", active=active, favours=favours, threshold=tau)
        for name, (active, favours) in decisions.items()
        for tau in (0.25, 0.50, 0.75)
    ]
    attributes = frame[["age", "sex", "dzclass"]]

    def subgroups(split: Split) -> hm.Subgroups:
        spec = {"age": [65, 80], "sex": "each", "dzclass": "each"}
        family = hm.Subgroups.from_reference(attributes.iloc[split.train], spec)
        return family.restrict(
            attributes.iloc[split.correct], attributes.iloc[split.validate], min_size=5
        )

    return Problem(
        name="support2",
        tree=tree,
        utilities=utilities,
        labels=labels,
        attributes=attributes,
        inputs=TableInputs(frame, SUPPORT2_NUMBERS, SUPPORT2_CATEGORIES),
        split=lambda k: Split.of_four(*stratified_parts(labels, sizes, MASTER_SEED % 10**6 + k)),
        subgroups=subgroups,
    )


def status_family_leaf() -> list[hm.Utility]:
    """Correct status, correct family on the greedy path, correct leaf."""
    return [
        hm.GreedyPathCorrectness(level=1, name="status"),
        hm.GreedyPathCorrectness(level=2, name="family"),
        hm.TopK(1, name="leaf"),
    ]


def nsl_kdd(path: Path, *, quick: bool = False) -> Problem:
    """Network connections: normal traffic and four families of attack."""
    frame = pd.read_parquet(path)
    family_of = {attack: family for family, names in NSL_FAMILIES.items() for attack in names}
    labels = frame["attack"].map(family_of).to_numpy(dtype=str)
    if quick and labels.size > 3_000:
        kept, _ = stratified_parts(labels, [3_000, labels.size - 3_000], MASTER_SEED)
        frame, labels = frame.iloc[kept].reset_index(drop=True), labels[kept]
    numbers = [
        name for name in frame.columns if name not in {*NSL_CATEGORIES, "attack", "difficulty"}
    ]
    tree = hm.LabelTree.from_nested({"normal": None, "attack": ["dos", "probe", "r2l", "u2r"]})
    attributes = frame[["protocol_type", "service", "src_bytes"]]
    spec = {"protocol_type": "each", "service": {"each": {"top": 3}}, "src_bytes": "median"}
    return Problem(
        name="nsl_kdd",
        tree=tree,
        utilities=status_family_leaf(),
        labels=labels,
        attributes=attributes,
        inputs=TableInputs(frame, numbers, NSL_CATEGORIES, flag=False),
        split=lambda k: Split.of_four(
            *stratified_parts(labels, shares(labels.size), MASTER_SEED % 10**6 + k)
        ),
        subgroups=lambda split: hm.Subgroups.from_reference(attributes.iloc[split.train], spec),
    )


def nbaiot(path: Path, *, quick: bool = False) -> Problem:
    """Traffic of nine household devices: benign, or one of ten attacks of two families."""
    frame = pd.read_parquet(path)
    kept = _balanced(frame["label"].to_numpy(dtype=str), 300 if quick else NBAIOT_N)
    frame = frame.iloc[kept].reset_index(drop=True)
    labels = frame["label"].to_numpy(dtype=str)
    numbers = [name for name in frame.columns if name.startswith("MI_dir_")][:10]
    tree = hm.LabelTree.from_nested(
        {
            "benign": None,
            "attack": {
                "gafgyt": [f"gafgyt_{kind}" for kind in ("combo", "junk", "scan", "tcp", "udp")],
                "mirai": [f"mirai_{kind}" for kind in ("ack", "scan", "syn", "udp", "udpplain")],
            },
        }
    )
    attributes = frame[["device", numbers[0]]]
    spec = {"device": "each", numbers[0]: "median"}
    return Problem(
        name="nbaiot",
        tree=tree,
        utilities=status_family_leaf(),
        labels=labels,
        attributes=attributes,
        inputs=TableInputs(frame, numbers, [], flag=False),
        split=lambda k: Split.of_four(
            *stratified_parts(labels, shares(labels.size), MASTER_SEED % 10**6 + k)
        ),
        subgroups=lambda split: hm.Subgroups.from_reference(attributes.iloc[split.train], spec),
        notes=(
            f"The classifiers see the {len(numbers)} of the paper's first ten features that the "
            "file holds, and classes are as balanced as the file allows.",
        ),
    )


def inaturalist(path: Path, *, quick: bool = False) -> Problem:  # noqa: ARG001
    """Image features of 30 species; top-1 correctness from class to species.

    The file is a Parquet table, a row per image: the seven ranks from ``kingdom`` to ``species``,
    ``brightness``, ``contrast``, ``aspect_ratio``, and one numeric column per feature.
    """
    frame = pd.read_parquet(path)
    missing = [n for n in [*INATURALIST_RANKS, *INATURALIST_ATTRIBUTES] if n not in frame.columns]
    if missing:
        msg = f"{path.name} must have the columns {', '.join(missing)}."
        raise SystemExit(msg)
    numbers = [n for n in frame.columns if n not in {*INATURALIST_RANKS, *INATURALIST_ATTRIBUTES}]
    lines = frame[INATURALIST_RANKS].astype(str).drop_duplicates()
    tree = hm.LabelTree.from_paths(
        lines.to_numpy().tolist(), root="life", level_names=INATURALIST_RANKS
    )
    attributes = frame[INATURALIST_ATTRIBUTES]
    spec = {
        "brightness": {"median": "below"},
        "contrast": {"median": "below"},
        "aspect_ratio": [1.0],
    }
    labels = frame["species"].to_numpy(dtype=str)
    return Problem(
        name="inaturalist",
        tree=tree,
        utilities=[hm.LevelCorrectness(level=rank) for rank in INATURALIST_RANKS[2:]],
        labels=labels,
        attributes=attributes,
        inputs=TableInputs(frame, numbers, [], flag=False),
        split=lambda k: Split.of_four(
            *stratified_parts(labels, shares(labels.size), MASTER_SEED % 10**6 + k)
        ),
        subgroups=lambda split: hm.Subgroups.from_reference(attributes.iloc[split.train], spec),
    )


def _balanced(labels: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """Row numbers of about n rows, every class as near to equal as the rows allow."""
    rng = np.random.default_rng(MASTER_SEED)
    pools = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
    cap = next(
        size
        for size in range(1, labels.size + 1)
        if sum(min(size, pool.size) for pool in pools) >= min(n, labels.size)
    )
    return np.sort(np.concatenate([pool[:cap] for pool in pools]))
