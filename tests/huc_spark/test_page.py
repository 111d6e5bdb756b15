"""The page on Spark, used as it stands there."""

from __future__ import annotations

import numpy as np
import yaml
from support.pages import blocks, read_page
from support.spark_cases import TREE, UTILITIES, window

from huc_monitor._common.arrays import pack
from huc_monitor.audit.runs.pieces import PieceAudit
from huc_monitor.config._settings import Settings
from huc_monitor.recalibration import HUCBoost

PAGE = read_page("spark.md")


def block(language: str) -> str:
    (found,) = blocks("spark.md", language)
    return found


def test_the_code_runs(spark):
    rows = window(2, n=300)
    options = {name: rows.options[name] for name in ("tree", "utilities", "subgroups")}
    names = {"df": rows.on(spark, 2), **options, "boost": HUCBoost(**options, max_updates=2)}
    exec(compile(block("py"), "spark.md", "exec"), names)  # noqa: S102 - our own page
    assert names["result"].n == 300
    assert "recalibrated" in names["repaired"].columns


def test_the_settings_are_settings():
    given = yaml.safe_load(block("yaml"))
    for name, value in given.items():
        assert name in Settings.model_fields
        if isinstance(value, dict):
            section = Settings.model_fields[name].annotation
            section.model_validate(value)


def test_the_calculation_is_that_of_the_code():
    import huc_spark

    import huc_monitor as hm

    tree = hm.LabelTree.from_nested(
        {"a": {"a1": ["1", "2"], "a2": ["3", "4"]}, "b": {"b1": ["5", "6"], "b2": ["7", "8"]}}
    )
    utilities = [
        hm.LevelCorrectness(level=2),
        hm.BinaryAction("act", active=["a", "b1"], favours=["1", "5"], threshold=0.3),
    ]
    people = {"age": [50, 70], "sex": ["f", "m"]}
    groups = hm.Subgroups.from_reference(people, {"age": [65], "sex": "each"})
    assert huc_spark.shuffle_bytes_per_row(tree, utilities, subgroups=groups, bounds="sharp") == 60
    assert "(60 bytes, 40 candidates; 76 bytes with ids" in PAGE
    with_ids = huc_spark.shuffle_bytes_per_row(tree, utilities, subgroups=groups)
    assert with_ids == 76
    assert huc_spark.shuffle_bytes_per_row(TREE, UTILITIES) > 0
    assert "some 160 bytes per candidate, and 24 bytes per candidate and draw" in PAGE
    check = PieceAudit.of(tree=tree, utilities=utilities, subgroups=groups, n_draws=64)
    people = {name: values * 50 for name, values in people.items()}
    piece = check.check(
        np.full((100, 8), 1 / 8),
        np.array(tree.leaves)[np.arange(100) % 8],
        people,
        None,
        np.arange(100),
    )
    facts = check.no_facts + check.facts(piece)
    runs = [check.summarise(u, rows, facts) for u, rows in enumerate(check.rows(piece, facts))]
    sizes = [[len(pack(run.scan)), len(pack(run.draws))] for run in runs]
    scan, draws = np.sum(sizes, axis=0) / 40
    assert (round(scan, -1), round(draws / 64)) == (160, 24)
