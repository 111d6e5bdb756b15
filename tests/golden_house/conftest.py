"""What an older version wrote is data here, also where it is Python; commands leave no logger."""

from __future__ import annotations

import logging

import pytest

collect_ignore = ["old_model", "old_state"]


@pytest.fixture(autouse=True)
def _quiet_logger():
    yield
    logger = logging.getLogger("huc_monitor")
    logger.handlers, logger.propagate = [], True
