"""A label means the same leaf through the API, the command and the monitor's logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from support.label_cases import CASES, REFUSED

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.sources import Columns, DuckTable, FrameTable, TableSource
from huc_monitor.sources.large import LargeSource
from huc_monitor.tree.labels import LeafCodes

DAY = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
BOTH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def moments(probabilities, labels, tree):
    utilities = [hm.TopK(1), hm.TopK(2)]
    return hm.audit(probabilities, labels, tree=tree, utilities=utilities, bounds=None).to_frame(
        all_columns=True
    )


def files(frame, folder):
    """The log as every kind of file that can hold it."""
    found = [folder / "log.csv"]
    frame.to_csv(found[0], index=False)  # of bytes, it makes text such as "b'a'"
    try:
        frame.to_parquet(folder / "log.parquet")
    except pa.ArrowException:  # Parquet has no column of mixed types
        return found
    return [*found, folder / "log.parquet"]


@BOTH
def test_the_api_gives_the_one_answer(case):
    p = case.log()[list(case.leaves)]
    labels = case.log()["label"]
    if case.answer == REFUSED:
        with pytest.raises(hm.InvalidInputError, match="`labels` must be"):
            case.tree.encode(case.labels)
        with pytest.raises(hm.InvalidInputError, match="`labels` must be"):
            moments(p, labels, case.tree)
        return
    assert case.tree.encode(case.labels).tolist() == case.answer
    expected = moments(p, LeafCodes(case.codes(len(p))), case.tree)
    assert moments(p, labels, case.tree).equals(expected)


@BOTH
@pytest.mark.parametrize("kind", [TableSource, LargeSource])
def test_a_log_gives_the_one_answer(case, kind, tmp_path):
    frame = case.log()
    columns = Columns(time="at", label="label")
    more = {"most_rows": 10_000} if kind is LargeSource else {}
    tables = [DuckTable.files(path) for path in files(frame, tmp_path)]
    for table in [*tables, FrameTable(frame)]:
        source = kind(table, tree=case.tree, columns=columns, **more)
        if case.answer == REFUSED:
            with pytest.raises(hm.InvalidInputError, match="unknown label"):
                source.labelled(*DAY)
        else:
            assert np.array_equal(source.labelled(*DAY).labels, case.codes(len(frame)))


@BOTH
def test_the_command_gives_the_one_answer(case, tmp_path, capsys):
    frame = case.log()
    (tmp_path / "tree.json").write_text(json.dumps(case.tree.to_dict()))
    for path in files(frame, tmp_path):
        where = ["--tree", str(tmp_path / "tree.json"), "--label", "label"]
        what = ["--utility", "top:1", "--utility", "top:2", "--bounds", "sharp"]
        code = main(["audit", str(path), *where, *what, "--json"])
        out, err = capsys.readouterr()
        if case.answer == REFUSED:
            assert code == 2
            assert "label" in err
            continue
        assert code == 0, err
        p = frame[list(case.leaves)]
        expected = hm.audit(
            p,
            LeafCodes(case.codes(len(p))),
            tree=case.tree,
            utilities=[hm.TopK(1), hm.TopK(2)],
            bounds="sharp",
        )
        assert json.loads(out)["audit"]["huc"] == expected.huc


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_label_is_refused_by_the_api_and_left_out_of_a_log(missing, tmp_path):
    case = CASES[0]
    frame = case.log()
    frame.loc[3, "label"] = missing
    with pytest.raises(hm.InvalidInputError, match=r"not be missing.* \(row 3\)"):
        moments(frame[list(case.leaves)], frame["label"], case.tree)
    for path in files(frame, tmp_path):
        source = TableSource(
            DuckTable.files(path), tree=case.tree, columns=Columns(time="at", label="label")
        )
        assert source.labelled(*DAY).n == len(frame) - 1


def test_codes_of_a_list_column_count_its_classes(tmp_path):
    frame = CASES[0].log()
    frame["p"] = frame[["b", "c", "a"]].to_numpy().tolist()
    frame["label"] = np.resize([0, 1, 2], len(frame))
    frame.to_parquet(tmp_path / "log.parquet")
    columns = Columns(time="at", label="label", list_column="p", classes=["b", "c", "a"])
    source = TableSource(
        DuckTable.files(tmp_path / "log.parquet"), tree=CASES[0].tree, columns=columns
    )
    assert source.labelled(*DAY).labels[:3].tolist() == [1, 2, 0]
