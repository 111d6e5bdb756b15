from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from huc_monitor._common.arrays import arrays_from_bytes, arrays_to_bytes
from huc_monitor.errors import InvalidInputError

NUMBERS = st.sampled_from(["<i8", "<f8", "<i4", "|u1", "|b1"])
SHAPES = arrays.array_shapes(min_dims=0, min_side=0, max_side=4)


@pytest.mark.seconds
@given(st.dictionaries(st.text(max_size=5), arrays.arrays(NUMBERS, SHAPES), max_size=4))
def test_arrays_come_back_to_the_bit(given_arrays):
    found = arrays_from_bytes(arrays_to_bytes(given_arrays))
    assert list(found) == list(given_arrays)
    for name, array in given_arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"])])
def test_anything_but_numbers_is_refused(array):
    with pytest.raises(InvalidInputError, match="must hold arrays of numbers"):
        arrays_from_bytes(arrays_to_bytes({"x": array}))


def test_bytes_that_end_too_early_are_refused():
    whole = arrays_to_bytes({"x": np.arange(5)})
    with pytest.raises(ValueError, match="buffer"):
        arrays_from_bytes(whole[:-1])
