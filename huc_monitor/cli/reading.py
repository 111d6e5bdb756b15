"""Read a prediction log: one probability column per leaf, a label column, feature columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pandas as pd

    from huc_monitor.tree import LabelTree

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Predictions:
    """The labelled rows of a log; ``n_unlabelled`` rows without a label were left out."""

    probabilities: pd.DataFrame
    labels: pd.Series[Any]
    features: pd.DataFrame
    n_unlabelled: int


def read_predictions(
    path: Path,
    *,
    tree: LabelTree,
    label: str,
    prefix: str | None = None,
    features: Sequence[str] = (),
) -> Predictions:
    """Read the columns an audit needs, and no others.

    `prefix` comes before the leaf in the name of a probability column; it is found out when left
    out.
    """
    if not path.exists():
        msg = f"`predictions` must be an existing file; got '{path}'."
        raise InvalidInputError(msg)
    try:
        columns = _columns(path)
        if prefix is None:
            prefix = _shared_prefix(tree, columns) or ""
        probability_columns = [prefix + leaf for leaf in tree.leaves]
        wanted = list(dict.fromkeys([*probability_columns, label, *features]))
        _require(wanted, columns, path=path, tree=tree, label=label)
        frame = _read(path, wanted, label=label)
    except (ValueError, OSError) as error:
        if isinstance(error, InvalidInputError):
            raise
        msg = f"`predictions` must be a readable Parquet or CSV file; got '{path}': {error}"
        raise InvalidInputError(msg) from error

    labelled = frame[label].notna()
    frame = frame[labelled]
    probabilities = frame[probability_columns]
    probabilities.columns = list(tree.leaves)
    return Predictions(
        probabilities=probabilities.reset_index(drop=True),
        labels=frame[label].reset_index(drop=True),
        features=frame[list(features)].reset_index(drop=True),
        n_unlabelled=int((~labelled).sum()),
    )


def _format(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(_PARQUET) or path.is_dir():
        return "parquet"
    if name.endswith(_CSV):
        return "csv"
    msg = (
        f"`predictions` must end in one of {', '.join((*_PARQUET, *_CSV))}, or be a folder of "
        f"Parquet files; got '{path}'."
    )
    raise InvalidInputError(msg)


def _columns(path: Path) -> list[str]:
    if _format(path) == "parquet":
        from pyarrow import dataset

        return list(dataset.dataset(path, format="parquet").schema.names)
    import pandas as pd

    return list(pd.read_csv(path, nrows=0).columns)


def _read(path: Path, columns: list[str], *, label: str) -> pd.DataFrame:
    if _format(path) == "parquet":
        from pyarrow import dataset

        table = dataset.dataset(path, format="parquet").to_table(columns=columns)
        frame: pd.DataFrame = table.to_pandas()
        return frame
    import pandas as pd

    # Only an empty field is missing: "None" and "NA" are good names for a leaf or a group. Labels
    # stay text, or a leaf named "01" would come back as the number 1.
    return pd.read_csv(
        path,
        usecols=columns,
        dtype={label: str},
        keep_default_na=False,
        na_values=[""],
        float_precision="round_trip",  # the default is a last bit off
    )


def _require(
    wanted: list[str], columns: Collection[str], *, path: Path, tree: LabelTree, label: str
) -> None:
    missing = [column for column in wanted if column not in columns]
    if not missing:
        return
    others = [column for column in columns if column not in wanted]
    remedy = f"Columns there: {_listed(others)}." if others else "It has no other columns."
    prefix = _shared_prefix(tree, columns)
    if label in missing:
        remedy = f"Name the label's column with --label. {remedy}"
    elif prefix is not None:
        remedy = f"Leave --prefix out, or use --prefix {prefix}"
    else:
        remedy += " Where one column holds lists of probabilities, use `huc-monitor init`."
    msg = f"`predictions` must have the columns {_listed(missing)}; '{path}' has not. {remedy}"
    raise InvalidInputError(msg)


def _shared_prefix(tree: LabelTree, columns: Collection[str]) -> str | None:
    if all(leaf in columns for leaf in tree.leaves):
        return ""
    first = tree.leaves[0]
    for column in columns:
        prefix = column.removesuffix(first)
        if prefix != column and all(prefix + leaf in columns for leaf in tree.leaves):
            return prefix
    return None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
