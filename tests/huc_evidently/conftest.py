from __future__ import annotations

import os

import pytest

os.environ.setdefault("DO_NOT_TRACK", "1")  # before Evidently is imported: it reports its use


def pytest_collection_modifyitems(items):
    for item in items:
        # Evidently and what it is made of warn about themselves in normal use.
        for module in ("evidently", "litestar", "pydantic", "plotly", "pandas"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}"))
