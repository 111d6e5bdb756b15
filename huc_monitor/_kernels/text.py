"""Which of a few texts every row has, eight bytes at a time."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from huc_monitor._kernels._compile import loop

_WIDTH = 8


@intrinsic
def _word_at(typing, data, place):  # noqa: ARG001
    """Read the eight bytes at a place as one number."""

    def generate(context, builder, signature, arguments):
        first = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        at = builder.gep(first, [arguments[1]])
        return builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.intp), generate


def match_texts(ends, data, wanted, codes):
    """Write the place of every row's text among the wanted, or their number where it is none.

    Row i has the bytes data[ends[i] : ends[i + 1]]; `wanted` are bytes. False, and nothing written,
    where length and first eight bytes do not tell the wanted texts apart.
    """
    lengths = np.array([len(text) for text in wanted])
    heads = b"".join(text[:_WIDTH].ljust(_WIDTH, b"\0") for text in wanted)
    words = np.frombuffer(heads, np.uint64)
    if len(set(zip(lengths.tolist(), words.tolist(), strict=True))) < len(wanted):
        return False
    masks = np.tri(_WIDTH + 1, _WIDTH, -1, dtype=np.uint8) * np.uint8(255)
    starts = np.cumsum(lengths) - lengths
    whole = np.frombuffer(b"".join(wanted) or b"\0", np.uint8)
    _match(ends, data, masks.view(np.uint64)[:, 0], words, lengths, starts, whole, codes)
    return True


@loop
def _match(ends, data, masks, words, lengths, starts, whole, codes):
    # All wanted texts are compared with, without a jump: which it is cannot be foreseen.
    n_wanted = words.shape[0]
    for i in range(codes.shape[0]):
        first = ends[i]
        length = ends[i + 1] - first
        head = np.uint64(0)
        if first + _WIDTH <= data.shape[0]:
            head = _word_at(data, first) & masks[min(length, _WIDTH)]
        else:
            for b in range(min(length, _WIDTH)):
                head |= np.uint64(data[first + b]) << np.uint64(_WIDTH * b)
        code = n_wanted
        for k in range(n_wanted):
            code = k if (head == words[k]) & (length == lengths[k]) else code
        if length > _WIDTH and code < n_wanted:
            for b in range(_WIDTH, length):
                if data[first + b] != whole[starts[code] + b]:
                    code = n_wanted
                    break
        codes[i] = code
