from __future__ import annotations

import pytest

from huc_monitor.errors import (
    HUCError,
    InvalidInputError,
    InvalidTreeError,
    MissingExtraError,
    UnknownNameError,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidInputError, ValueError),
        (InvalidTreeError, ValueError),
        (UnknownNameError, KeyError),
        (UnknownNameError, ValueError),
        (MissingExtraError, ImportError),
    ],
)
def test_every_error_is_caught_by_its_builtin_and_by_the_base(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, HUCError)


def test_unknown_name_prints_its_message_without_quotes():
    assert str(UnknownNameError("`node` must be known.")) == "`node` must be known."


def test_missing_extra_ends_in_the_exact_install_command():
    error = MissingExtraError.of("pyspark")
    assert str(error).endswith("pip install 'huc-monitor[spark]'")
    assert error.name == "pyspark"


def test_a_long_list_of_choices_is_cut():
    choices = [f"leaf_{i}" for i in range(20)]
    assert did_you_mean("?", choices, limit=2) == "Choose from 'leaf_0', 'leaf_1' and 18 more."


def test_no_choices_at_all_is_said_plainly():
    assert did_you_mean("x", []) == "There is nothing to choose from."
