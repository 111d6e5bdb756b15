"""Evidently: accuracy and F1 of a day tested against the reference by its own default tests."""

from __future__ import annotations

import numpy as np
from evidently import DataDefinition, Dataset, MulticlassClassification, Report
from evidently.metrics import Accuracy, F1Score
from peer import Table, fastest


def dataset(table):
    task = MulticlassClassification(target="y", prediction_labels="y_pred")
    definition = DataDefinition(classification=[task], categorical_columns=["y", "y_pred"])
    return Dataset.from_pandas(table.frame()[["y", "y_pred"]], data_definition=definition)


def detect(stream):
    reference = dataset(stream.reference)
    report = Report([Accuracy(), F1Score()], include_tests=True)
    base = stream.reference.right.mean()
    answers = []
    for day in stream.days:
        found = report.run(dataset(day), reference).dict()
        failed = any("FAIL" in str(test["status"]).upper() for test in found["tests"])
        answers.append((failed, float(abs(day.right.mean() - base)), []))
    return answers


DETECTORS = {"accuracy and F1": detect}


def speed(n):
    """One report with its page."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(5, 0.7), n)
    classes = np.array(list("abcde"))
    labels = classes[(p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=4)]
    table = Table(p, labels, np.repeat("app", n), classes, {})
    seconds, run = fastest(
        lambda: Report([Accuracy(), F1Score()]).run(dataset(table), dataset(table))
    )
    page = run.get_html_str(as_iframe=False)
    outside = sum(page.count(mark) for mark in ('src="http', 'href="http', "url(http"))
    return {"calibration": seconds, "page_kb": len(page) // 1024, "outside": outside}
