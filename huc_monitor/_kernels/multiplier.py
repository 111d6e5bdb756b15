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

from huc_monitor._kernels._bits import lowest_bit
from huc_monitor._kernels._compile import entry, loop
from huc_monitor._kernels.order import ask_for

LANES = 32
# Sums are whole numbers of 1/UNIT of a statistic whose standard deviation is at most one: exact, so
# that they depend on no order and parts of the rows can be added up anywhere; and far from the end
# of 32 bits, which is at 128.
UNIT = 2.0**24
_I32 = ir.IntType(32)
_FLOATS, _WHOLES = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), _I32))
_CHUNK = 256
_AHEAD = 24  # as in `order`, of rows that are two lines of cache each
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


@entry
def share_terms(ptr, rows, bits, scores, n_groups):
    """List, for every branch j and subgroup g, which of the branch's terms are the subgroup's.

    ``ptr`` and ``rows`` are those of `gather_terms` for the rows of any subgroup; bit g of a row's
    ``bits`` says that it is of subgroup g. Return where the list of (j, g), at j * n_groups + g,
    starts, and the lists: twice a term's number in its branch, plus one unless a later term of the
    list has the same score.
    """
    n_slots = ptr.shape[0] - 1
    starts = np.zeros(n_slots * n_groups + 1, dtype=np.int64)
    for j in range(n_slots):
        for e in range(ptr[j], ptr[j + 1]):
            left = bits[rows[e]]
            while left != 0:
                starts[j * n_groups + lowest_bit(left) + 1] += 1
                left &= left - np.uint64(1)
    for k in range(1, starts.shape[0]):
        starts[k] += starts[k - 1]
    items = np.empty(starts[-1], dtype=np.uint32)
    cursor = starts[:-1].copy()
    score_of = np.empty(n_groups)
    for j in range(n_slots):
        for e in range(ptr[j], ptr[j + 1]):
            score = scores[rows[e]]
            left = bits[rows[e]]
            while left != 0:
                g = np.int64(lowest_bit(left))
                left &= left - np.uint64(1)
                k = j * n_groups + g
                at = cursor[k]
                if at > starts[k] and score_of[g] == score:
                    items[at - 1] &= np.uint32(0xFFFFFFFE)
                score_of[g] = score
                items[at] = np.uint32(2 * (e - ptr[j]) + 1)
                cursor[k] = at + 1
    return starts, items


@intrinsic
def _multiply(typing, terms, e, xi, row, products, at):  # noqa: ARG001
    """Write terms[e] * xi[row], rounded, to products[at]: all lanes at once."""
    signature = types.void(terms, types.intp, xi, types.intp, products, types.intp)

    def generate(context, builder, signature, arguments):
        e, row, at = arguments[1::2]
        terms, xi, products = _data(context, builder, signature, arguments)
        lanes, zero = _FLOATS, ir.Constant(_FLOATS, [0.0] * LANES)
        nearest = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(lanes, [lanes]), f"llvm.rint.v{LANES}f32"
        )
        one = builder.insert_element(zero, builder.load(builder.gep(terms, [e])), _I32(0))
        splat = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        term = builder.shuffle_vector(one, zero, splat)
        x = builder.load(_lanes_at(builder, xi, row), align=4)
        product = builder.fptosi(builder.call(nearest, [builder.fmul(term, x)]), _WHOLES)
        builder.store(product, _lanes_at(builder, products, at), align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _run_on(typing, items, e, stop, limit, products, base, state, g):  # noqa: ARG001
    """Add up the products of items[e], items[e + 1], ..., all that are below limit, by lane.

    state[g] has total, lowest and highest prefix sum, and is raised where no tie goes on. Return
    the number of the first item that was not added. Written in LLVM's own instructions because
    all lanes of the three running values then stay in vector registers from the first item to the
    last; numba's array loops would store and reload them at every item, at twice the cost.
    """
    whole = types.intp
    signature = whole(items, whole, whole, types.uint32, products, whole, state, whole)

    def generate(context, builder, signature, arguments):
        _, e, stop, limit, _, base, _, g = arguments
        arrays = _data(context, builder, signature, arguments)
        return _emit_run(builder, arrays, (e, stop, limit, base), g)

    return signature, generate


def _emit_run(builder, arrays, bounds, g):
    """Emit the loop: total += product, then low and high wherever a tie block closes."""
    items, products, state = arrays
    first, stop, limit, base = bounds
    index = first.type
    places = [
        _lanes_at(builder, state, builder.add(builder.mul(g, index(3)), index(k))) for k in range(3)
    ]
    started = [builder.load(place, align=4) for place in places]
    before = builder.block
    head, check, body, close, latch, done = map(
        builder.append_basic_block, ("head", "check", "body", "close", "latch", "done")
    )
    builder.branch(head)

    builder.position_at_end(head)
    e = builder.phi(index)
    e.add_incoming(first, before)
    total, low, high = (builder.phi(_WHOLES) for _ in range(3))
    for value, start in zip((total, low, high), started, strict=True):
        value.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", e, stop), check, done)

    builder.position_at_end(check)
    item = builder.load(builder.gep(items, [e]))
    builder.cbranch(builder.icmp_unsigned("<", item, limit), body, done)

    builder.position_at_end(body)
    at = builder.sub(builder.zext(builder.lshr(item, _I32(1)), index), base)
    raised = builder.add(total, builder.load(_lanes_at(builder, products, at), align=4))
    closes = builder.trunc(item, ir.IntType(1))
    builder.cbranch(closes, close, latch)

    builder.position_at_end(close)
    lower = builder.select(builder.icmp_signed("<", raised, low), raised, low)
    higher = builder.select(builder.icmp_signed(">", raised, high), raised, high)
    builder.branch(latch)

    builder.position_at_end(latch)
    for value, closed in ((low, lower), (high, higher)):
        kept = builder.phi(_WHOLES)
        kept.add_incoming(value, body)
        kept.add_incoming(closed, close)
        value.add_incoming(kept, latch)
    total.add_incoming(raised, latch)
    e.add_incoming(builder.add(e, index(1)), latch)
    builder.branch(head)

    builder.position_at_end(done)
    for place, value in zip(places, (total, low, high), strict=True):
        builder.store(value, place, align=4)
    return e


def _data(context, builder, signature, arguments):
    """Return where the data of every array among the arguments begins."""
    return [
        context.make_array(kind)(context, builder, value).data
        for kind, value in zip(signature.args, arguments, strict=True)
        if isinstance(kind, types.Array)
    ]


def _lanes_at(builder, data, row):
    """Return where a row of lanes begins."""
    place = builder.gep(data, [builder.mul(row, row.type(LANES))])
    return builder.bitcast(place, ir.VectorType(place.type.pointee, LANES).as_pointer())


def draw_ranges(terms, xi, out):
    """Write the largest absolute interval sum of 32 draws: out[g, j, lane], in 1 / UNIT.

    Over all intervals that is the highest prefix sum minus the lowest, the empty prefix included.
    Subgroups share the products of contributions and multipliers, which are made so many at a time
    that they stay in a core's own cache.
    """
    n_groups = out.shape[0]
    products = np.empty((_CHUNK, LANES), dtype=np.int32)
    state = np.empty((n_groups, 3, LANES), dtype=np.int32)
    _draw_ranges(*terms, xi, products, state, np.empty(n_groups, dtype=np.int64), out)


@loop
def _draw_ranges(ptr, rows, terms, starts, items, xi, products, state, cursor, out):
    for j in range(out.shape[1]):
        lists = j * out.shape[0]
        for g in range(out.shape[0]):
            cursor[g] = starts[lists + g]
            for k in range(3):
                for b in range(LANES):
                    state[g, k, b] = 0
        for first in range(ptr[j], ptr[j + 1], products.shape[0]):
            stop = min(first + products.shape[0], ptr[j + 1])
            for e in range(first, stop):
                ahead = np.intp(rows[min(e + _AHEAD, rows.shape[0] - 1)]) * LANES
                ask_for(xi, ahead)
                ask_for(xi, ahead + LANES // 2)
                _multiply(terms, e, xi, np.intp(rows[e]), products, e - first)
            limit = np.uint32(2 * (stop - ptr[j]))
            for g in range(out.shape[0]):
                end = starts[lists + g + 1]
                base = first - ptr[j]
                cursor[g] = _run_on(items, cursor[g], end, limit, products, base, state, g)
        for g in range(out.shape[0]):
            for b in range(LANES):
                out[g, j, b] = state[g, 2, b] - state[g, 1, b]
