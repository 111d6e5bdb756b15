"""How kernels are compiled: once per signature, kept on disk, the interpreter lock released.

An `entry` may allocate. It hands its arrays to a `loop`, which may not: numba counts references to
every row of an array that code mentions, with atomic instructions, and in short inner loops these
took a third of the time. Without an allocator there is nothing to count.
"""

from __future__ import annotations

from numba import njit

_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}

entry = njit(**_OPTIONS)
loop = njit(**_OPTIONS, _nrt=False)
