"""Sorting by score, and gathers into sorted order."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from huc_monitor._common.threads import scratch
from huc_monitor._kernels._compile import loop

_DIGIT_BITS = 11
_N_DIGITS = 6
# The leading digits tell most scores apart; the few rows that they do not are inserted.
_LEADING = 2
_FEW = 200
_SIGN = np.uint64(1 << 63)
# So many rows ahead, a gather asks for what it will read: it would wait for memory otherwise.
AHEAD = 24


def sort_order(scores):
    """Return the order of finite scores, equal ones as they came."""
    return sort_scores(scores)[0]


def sort_scores(scores):
    """Return the order of finite scores, equal ones as they came, and the scores in that order.

    By digits of eleven bits: three to six times faster than numpy's argsort on 3,000 rows or
    more.
    """
    n = scores.size
    order, ordered = np.empty(n, dtype=np.int64), np.empty(n)
    keys, spare, rows = scratch(3 * n).reshape(3, n)
    np.add(scores, 0.0, out=keys.view(np.float64))  # -0.0 becomes 0.0, which it equals
    counts = np.empty((_N_DIGITS, 1 << _DIGIT_BITS), dtype=np.int64)
    given = np.ascontiguousarray(scores).view(np.uint64)
    pairs = (keys, spare), (order, rows.view(np.int64))
    _sort_by_digits(*pairs, counts, given, ordered.view(np.uint64))
    return order, ordered


@loop
def _sort_by_digits(keys, order, counts, given, ordered):
    """Sort bits of numbers in keys[0]; leave their order in order[0], and `given` in ordered."""
    n = given.shape[0]
    sorted_keys, rows = keys[0], order[0]
    least = ~np.uint64(0)
    most = np.uint64(0)
    for i in range(n):
        # As whole numbers, these bits are in the order of the numbers.
        bits = sorted_keys[i]
        key = ~bits if bits & _SIGN else bits | _SIGN
        sorted_keys[i] = key
        rows[i] = i
        least = min(least, key)
        most = max(most, key)
    shift = np.uint64(0)
    while n > 0 and (most - least) >> shift >= np.uint64(1 << _LEADING * _DIGIT_BITS):
        shift += np.uint64(1)
    _sort_range(keys, order, counts, 0, n, least, shift, _LEADING)
    last = 1
    while last < n:
        first = last - 1
        last += 1
        if sorted_keys[first] <= sorted_keys[first + 1]:
            continue
        alike = (sorted_keys[first] - least) >> shift
        while first > 0 and (sorted_keys[first - 1] - least) >> shift == alike:
            first -= 1
        while last < n and (sorted_keys[last] - least) >> shift == alike:
            last += 1
        if last - first > _FEW:
            others = _N_DIGITS - _LEADING
            _sort_range(keys, order, counts, first, last, least, np.uint64(0), others)
        else:
            _insert(sorted_keys, rows, first, last)
    for i in range(n):
        key = sorted_keys[i]
        ordered[i] = key ^ _SIGN if key & _SIGN else ~key
        if key == _SIGN:  # -0.0 stays what it was
            ordered[i] = given[rows[i]]


@loop
def _sort_range(keys, order, counts, first, last, least, shift, n_digits):
    """Sort keys[0][first:last], less `least`, by the digits from bit `shift` on."""
    low = np.uint64(counts.shape[1] - 1)
    for d in range(n_digits):
        for j in range(counts.shape[1]):
            counts[d, j] = 0
    source, source_rows = keys[0], order[0]
    target, target_rows = keys[1], order[1]
    moved = False
    for d in range(n_digits if first < last else 0):
        at = shift + np.uint64(_DIGIT_BITS * d)
        for i in range(first, last):
            counts[d, ((source[i] - least) >> at) & low] += 1
        if counts[d, ((source[first] - least) >> at) & low] == last - first:
            continue
        start = first
        for j in range(counts.shape[1]):
            start += counts[d, j]
            counts[d, j] = start - counts[d, j]
        for i in range(first, last):
            key = source[i]
            digit = ((key - least) >> at) & low
            place = counts[d, digit]
            counts[d, digit] = place + 1
            target[place] = key
            target_rows[place] = source_rows[i]
        source, target = target, source
        source_rows, target_rows = target_rows, source_rows
        moved = not moved
    if moved:
        for i in range(first, last):
            target[i] = source[i]
            target_rows[i] = source_rows[i]


@loop
def _insert(keys, rows, first, last):
    """Sort keys[first:last], which are few, by insertion."""
    for i in range(first + 1, last):
        key = keys[i]
        row = rows[i]
        place = i
        while place > first and keys[place - 1] > key:
            keys[place] = keys[place - 1]
            rows[place] = rows[place - 1]
            place -= 1
        keys[place] = key
        rows[place] = row


@intrinsic
def ask_for(typing, array, place):  # noqa: ARG001
    """Start to fetch the array's number at that place into the cache."""
    signature = types.void(array, types.intp)

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        bytes_, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [bytes_, whole, whole, whole]),
            "llvm.prefetch.p0i8",
        )
        at = builder.bitcast(builder.gep(data, [arguments[1]]), bytes_)
        builder.call(fetch, [at, whole(0), whole(3), whole(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return signature, generate


@loop
def gather(order, numbers, out):
    """Copy a number per row into sorted order."""
    n = order.shape[0]
    for i in range(n):
        ask_for(numbers, order[min(i + AHEAD, n - 1)])
        out[i] = numbers[order[i]]


@loop
def gather_values(order, contributions, scale, out):
    """Copy contributions into sorted order, as whole numbers of 1/scale.

    Every later scan then streams through memory and adds integers.
    """
    n = order.shape[0]
    width = contributions.shape[1]
    for i in range(n):
        ask_for(contributions, order[min(i + AHEAD, n - 1)] * width)
        r = order[i]
        for d in range(width):
            out[i, d] = np.int64(np.rint(contributions[r, d] * scale))


@loop
def select_rows(bits, bit, out):
    """Write the sorted positions of rows that have a bit; return how many there are."""
    count = 0
    for i in range(bits.shape[0]):
        out[count] = i
        count += (bits[i] >> np.uint64(bit)) & np.uint64(1)
    return count


@loop
def weigh_values(order, values, weights, repeats, out):
    """Multiply every row's integer contributions by its real-valued weight, rounding again."""
    for i in range(order.shape[0]):
        row = order[i]
        factor = weights[row] * (repeats[row] if repeats.shape[0] > 0 else 1.0)
        for d in range(values.shape[1]):
            out[i, d] = np.int64(np.rint(values[i, d] * factor))
