"""Bootstrap draws as vector lanes: one pass over the rows serves 32 draws of every candidate.

A multiplier depends on the seed, the row and the draw alone, so it can be made anywhere, in any
order and again: nothing of the size rows x draws is ever stored.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from huc_monitor._kernels._compile import loop

LANES = 32
# Sums are whole numbers of 1/UNIT of a statistic whose standard deviation is at most one: exact, so
# that they depend on no order and parts of the rows can be added up anywhere; and far from the end
# of 32 bits, which is at 128.
UNIT = 2.0**24
_I32 = ir.IntType(32)
_WORDS = LANES // 4
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(nogil=True, cache=True, inline="always")
def _mix(z):
    """Finaliser of splitmix64: every output bit depends on every input bit."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True, inline="always")
def open_stream(seed, block):
    """Key of the stream that a seed and a block of draws open."""
    return _mix(np.uint64(seed) + _mix((np.uint64(block) + np.uint64(1)) * _GAMMA))


@njit(nogil=True, cache=True, inline="always")
def draw_row(key, name, quantiles, row):
    """Fill a row with the multipliers of the row of that name."""
    low = np.uint64(0xFFFF)
    counter = key + name * np.uint64(_WORDS) * _GAMMA
    for w in range(_WORDS):
        counter += _GAMMA
        bits = _mix(counter)
        row[4 * w] = quantiles[bits & low]
        row[4 * w + 1] = quantiles[(bits >> np.uint64(16)) & low]
        row[4 * w + 2] = quantiles[(bits >> np.uint64(32)) & low]
        row[4 * w + 3] = quantiles[bits >> np.uint64(48)]


@loop
def draw_multipliers(seed, block, quantiles, out):
    """Fill out[i, lane] with the multiplier of row i in draw 32 * block + lane.

    A row takes eight 64-bit words of the stream that seed and block open, and each 16 bits pick
    one of 65,536 normal quantiles.
    """
    key = open_stream(seed, block)
    for i in range(out.shape[0]):
        draw_row(key, np.uint64(i), quantiles, out[i])


def centre_multipliers(roots, repeats, sample, factors, out):
    """Subtract every draw's mean, so that each interval's sum is centred at its own moment.

    roots are what every row's multiplier is multiplied by, repeats how often it counts; both are
    empty where they are 1. Two samples have a mean each; rows then count as often as the factor of
    their sample says.
    """
    sums = np.zeros((factors.size, LANES))
    means = np.empty((factors.size, LANES), dtype=np.float32)
    _centre_multipliers(roots, repeats, sample, factors, np.zeros(factors.size), sums, means, out)


@loop
def _centre_multipliers(roots, repeats, sample, factors, total, sums, means, out):
    # Lanes are counted by the array: of a constant number the compiler unrolls the loop, and the
    # result is two and a half times slower.
    for i in range(out.shape[0]):
        s = np.uintp(sample[i]) if sample.shape[0] > 0 else np.uintp(0)
        total[s] += repeats[i] if repeats.shape[0] > 0 else 1.0
        root = roots[i] if roots.shape[0] > 0 else np.float32(1.0)
        for b in range(out.shape[1]):
            out[i, b] *= root
            sums[s, b] += out[i, b]
    for s in range(factors.shape[0]):
        for b in range(out.shape[1]):
            means[s, b] = sums[s, b] / total[s]
    for i in range(out.shape[0]):
        s = np.uintp(sample[i]) if sample.shape[0] > 0 else np.uintp(0)
        times = np.float32(repeats[i]) if repeats.shape[0] > 0 else np.float32(1.0)
        factor = np.float32(factors[s])
        for b in range(out.shape[1]):
            out[i, b] = factor * (out[i, b] - times * means[s, b])


@loop
def count_terms(labels, values, positions, paths, ptr):
    """Write where every branch's nonzero contributions begin, branch after branch."""
    for j in range(ptr.shape[0]):
        ptr[j] = 0
    for m in range(positions.shape[0]):
        i = positions[m]
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            ptr[paths.slot[first + d] + 1] += values[i, d] != 0
    for j in range(1, ptr.shape[0]):
        ptr[j] += ptr[j - 1]


def gather_terms(scores, labels, values, positions, paths, units, ptr, rows, terms, closes):
    """List every branch's nonzero contributions in order of score.

    terms[e] is the contribution times units[branch], rows[e] the sorted row, and closes[e] says
    that no later contribution of the branch has the same score: only there may an interval end.
    """
    cursor = ptr[:-1].copy()
    given = (scores, labels, values, positions, paths, units, ptr, rows, terms, closes)
    _gather_terms(*given, cursor, np.empty(cursor.shape[0]))


@loop
def _gather_terms(
    scores,
    labels,
    values,
    positions,
    paths,
    units,
    ptr,
    rows,
    terms,
    closes,
    cursor,
    score_of,
):
    for m in range(positions.shape[0]):
        i = positions[m]
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            if values[i, d] == 0:
                continue
            j = paths.slot[first + d]
            e = cursor[j]
            if e > ptr[j] and score_of[j] == scores[i]:
                closes[e - 1] = 0
            score_of[j] = scores[i]
            cursor[j] = e + 1
            rows[e] = i
            terms[e] = np.float32(values[i, d] * units[j])
            closes[e] = 1


@intrinsic
def _prefix_range(typing, rows, terms, closes, xi, first, stop, out):  # noqa: ARG001
    """Write the highest minus the lowest prefix sum of terms[e] * xi[rows[e]], rounded, by lane.

    Written in LLVM's own instructions because all lanes of the three running values then stay in
    vector registers from the first term to the last; numba's array loops would store and reload
    them at every term, at twice the cost.
    """
    signature = types.void(rows, terms, closes, xi, types.intp, types.intp, out)

    def generate(context, builder, signature, arguments):
        arrays = [
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args, arguments, strict=True)
            if isinstance(kind, types.Array)
        ]
        _emit_prefix_range(builder, arrays, arguments[4], arguments[5])
        return context.get_dummy_value()

    return signature, generate


def _emit_prefix_range(builder, arrays, first, stop):
    """Emit the loop: total += term * x, then low and high wherever a tie block closes."""
    rows, terms, closes, xi, out = arrays
    lanes, wholes = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), _I32))
    index, zero = first.type, ir.Constant(lanes, [0.0] * LANES)
    nearest = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(lanes, [lanes]), f"llvm.rint.v{LANES}f32"
    )
    before = builder.block
    head, body, close, latch, done = map(
        builder.append_basic_block, ("head", "body", "close", "latch", "done")
    )
    builder.branch(head)

    builder.position_at_end(head)
    e = builder.phi(index)
    e.add_incoming(first, before)
    total, low, high = (builder.phi(wholes) for _ in range(3))
    for value in (total, low, high):
        value.add_incoming(ir.Constant(wholes, [0] * LANES), before)
    builder.cbranch(builder.icmp_signed("<", e, stop), body, done)

    builder.position_at_end(body)
    row = builder.zext(builder.load(builder.gep(rows, [e])), index)
    place = builder.gep(xi, [builder.mul(row, ir.Constant(index, LANES))])
    x = builder.load(builder.bitcast(place, lanes.as_pointer()), align=4)
    one = builder.insert_element(zero, builder.load(builder.gep(terms, [e])), _lane(0))
    term = builder.shuffle_vector(one, zero, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))
    product = builder.call(nearest, [builder.fmul(term, x)])
    raised = builder.add(total, builder.fptosi(product, wholes))
    flag = builder.load(builder.gep(closes, [e]))
    builder.cbranch(builder.icmp_unsigned("!=", flag, ir.Constant(flag.type, 0)), close, latch)

    builder.position_at_end(close)
    lower = builder.select(builder.icmp_signed("<", raised, low), raised, low)
    higher = builder.select(builder.icmp_signed(">", raised, high), raised, high)
    builder.branch(latch)

    builder.position_at_end(latch)
    for value, closed in ((low, lower), (high, higher)):
        kept = builder.phi(wholes)
        kept.add_incoming(value, body)
        kept.add_incoming(closed, close)
        value.add_incoming(kept, latch)
    total.add_incoming(raised, latch)
    e.add_incoming(builder.add(e, ir.Constant(index, 1)), latch)
    builder.branch(head)

    builder.position_at_end(done)
    builder.store(builder.sub(high, low), builder.bitcast(out, wholes.as_pointer()), align=4)


def _lane(number):
    return ir.Constant(_I32, number)


@loop
def write_ranges(ptr, rows, terms, closes, xi, width, out):
    """Write what `raise_to_ranges` compares: out[j, lane], in whole numbers of 1 / UNIT."""
    for j in range(ptr.shape[0] - 1):
        _prefix_range(rows, terms, closes, xi, ptr[j], ptr[j + 1], width)
        for b in range(LANES):
            out[j, b] = width[b]


@loop
def raise_to_ranges(ptr, rows, terms, closes, shrink, xi, width, worst):
    """Raise worst[lane] to the largest absolute interval sum, times shrink, of any listed branch.

    Over all intervals that is the highest prefix sum minus the lowest, the empty prefix included.
    ``width`` is room for LANES whole numbers.
    """
    for j in range(ptr.shape[0] - 1):
        _prefix_range(rows, terms, closes, xi, ptr[j], ptr[j + 1], width)
        for b in range(LANES):
            worst[b] = max(worst[b], width[b] * shrink[j])
