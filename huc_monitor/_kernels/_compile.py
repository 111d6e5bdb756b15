"""How kernels are compiled: once per signature, kept on disk, the interpreter lock released.

A `loop` may not allocate: Python hands it the arrays it works in. numba counts references to every
row of an array that code mentions, with atomic instructions, and in short inner loops these took a
third of the time; without an allocator there is nothing to count. An `entry` may allocate, and is
for loops that mention no rows.
"""

from __future__ import annotations

from numba import njit

_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}

entry = njit(**_OPTIONS)
loop = njit(**_OPTIONS, _nrt=False)
