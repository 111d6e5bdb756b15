"""Sixteen rows side by side, in LLVM's own vector instructions.

numba turns a loop over lanes into vector instructions when it can see that its arrays do not
overlap, that the loop is worth it, and that no comparison gets in the way; often it cannot. What
boosting and its replay do at every update is therefore written here as arithmetic on whole rows of
lanes. A lane's result is that of the same arithmetic on one number: there is no reordering and no
fusing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from huc_monitor.utilities.program import TIE

LANES = 16

_DOUBLE = ir.DoubleType()
_WHOLE = ir.IntType(64)
_ALIGN = 8

_SHIFTER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
TINY = 1e-300  # far below any probability that matters, far above the smallest normal number

# 1/13!, 1/12!, ..., 1/0!
_TAYLOR = (
    1.0 / 6227020800.0,
    1.0 / 479001600.0,
    1.0 / 39916800.0,
    1.0 / 3628800.0,
    1.0 / 362880.0,
    1.0 / 40320.0,
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Sixteen numbers, or sixteen truths, in registers; a plain number is all sixteen alike."""

    builder: Any
    value: Any

    def like(self, other: Any) -> Any:
        if isinstance(other, _Lanes):
            return other.value
        kind = self.value.type.element
        scalar = ir.Constant(kind, other) if isinstance(other, int | float) else other
        return _splat(self.builder, scalar)

    def _with(self, value: Any) -> _Lanes:
        return _Lanes(self.builder, value)

    def __add__(self, other: Any) -> _Lanes:
        return self._with(self.builder.fadd(self.value, self.like(other)))

    def __sub__(self, other: Any) -> _Lanes:
        return self._with(self.builder.fsub(self.value, self.like(other)))

    def __mul__(self, other: Any) -> _Lanes:
        return self._with(self.builder.fmul(self.value, self.like(other)))

    def __truediv__(self, other: Any) -> _Lanes:
        return self._with(self.builder.fdiv(self.value, self.like(other)))

    def __and__(self, other: _Lanes) -> _Lanes:
        return self._with(self.builder.and_(self.value, other.value))

    def __or__(self, other: _Lanes) -> _Lanes:
        return self._with(self.builder.or_(self.value, other.value))

    def compare(self, sign: str, other: Any) -> _Lanes:
        if self.value.type.element == _DOUBLE:
            return self._with(self.builder.fcmp_ordered(sign, self.value, self.like(other)))
        return self._with(self.builder.icmp_signed(sign, self.value, self.like(other)))

    def at_least(self, low: float) -> _Lanes:
        """Return the larger of the two; a number that is no number becomes `low`."""
        return self.compare(">", low).choose(self, low)

    def choose(self, yes: Any, no: Any) -> _Lanes:
        """Take `yes` where these truths hold, `no` elsewhere; one of them may be a plain number."""
        known = yes if isinstance(yes, _Lanes) else no
        return self._with(self.builder.select(self.value, known.like(yes), known.like(no)))


def _splat(builder: Any, scalar: Any) -> Any:
    vector = ir.VectorType(scalar.type, LANES)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


class _LaneRows:
    """Rows of lanes of an array (n, 16) or (16,), read and written whole."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        self.data = context.make_array(kind)(context, builder, value).data

    def place(self, row: Any) -> Any:
        builder = self._builder
        start = builder.mul(row, _WHOLE(LANES)) if row is not None else _WHOLE(0)
        cell = builder.gep(self.data, [start])
        element = cell.type.pointee
        return builder.bitcast(cell, ir.VectorType(element, LANES).as_pointer())

    def load(self, row: Any = None) -> _Lanes:
        return _Lanes(self._builder, self._builder.load(self.place(row), align=_ALIGN))

    def truths(self) -> _Lanes:
        bytes_ = self._builder.load(self.place(None), align=1)
        zero = ir.Constant(bytes_.type, [0] * LANES)
        return _Lanes(self._builder, self._builder.icmp_unsigned("!=", bytes_, zero))

    def store(self, lanes: _Lanes, row: Any = None) -> None:
        self._builder.store(lanes.value, self.place(row), align=_ALIGN)

    def store_truths(self, lanes: _Lanes) -> None:
        wide = ir.VectorType(ir.IntType(8), LANES)
        self._builder.store(self._builder.zext(lanes.value, wide), self.place(None), align=1)


def _intrinsic(emit: Any, returns: Any = types.void) -> Any:
    """Make a function for kernels of one that emits code, given `_Rows` for arrays."""

    def typing(typing_context: Any, *kinds: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = [
                _LaneRows(context, builder, kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            found = emit(builder, *given)
            return context.get_dummy_value() if found is None else found

        whole = [types.intp if isinstance(kind, types.Integer) else kind for kind in kinds]
        return returns(*whole), generate

    # numba asks for the names of the arguments.
    functools.update_wrapper(typing, emit)
    return intrinsic(typing)


def _emit_add_row(_builder, total, t, part, row):
    """Add a row to a total."""
    total.store(total.load(t) + part.load(row), t)


def _emit_step_down(_builder, child, c, parent, v, q, e):
    """Probability of reaching a child: that of its branch times that of the edge."""
    child.store((parent.load(v) * q.load(e)).at_least(TINY), c)


def _emit_level_mean(_builder, out, j, masses, r, amounts, places, start, stop, weight):
    """Weight times the mean payoff, over leaves start..stop-1, of a report that pays 1 if true."""
    lo, hi = places.load(_WHOLE(0)), places.load(_WHOLE(1))
    mean = amounts.load(_WHOLE(3)) / masses.load(r)
    within = lo.compare("<=", start) & hi.compare(">=", stop)
    apart = lo.compare(">=", stop) | hi.compare("<=", start)
    mean = apart.choose(0.0, within.choose(1.0, mean))
    out.store(mean * weight.load(), j)


def _emit_heaviest(builder, codes, n_codes, p, pi, amounts, chosen):
    """First node of largest probability, up to `TIE`, among `codes`, and that probability.

    The largest so far stay in registers from the first node to the last.
    """
    before = builder.block
    head, body, done = map(builder.append_basic_block, ("head", "body", "done"))
    lowest = _splat(builder, _DOUBLE(-1.0))
    none = _splat(builder, _WHOLE(0))
    builder.branch(head)

    builder.position_at_end(head)
    g = builder.phi(_WHOLE)
    mass, code = builder.phi(lowest.type), builder.phi(none.type)
    for value, first in ((g, _WHOLE(0)), (mass, lowest), (code, none)):
        value.add_incoming(first, before)
    builder.cbranch(builder.icmp_signed("<", g, n_codes), body, done)

    builder.position_at_end(body)
    new_code = builder.load(builder.gep(codes.data, [g]))
    is_branch = builder.icmp_signed(">=", new_code, _WHOLE(0))
    row = builder.select(is_branch, new_code, builder.sub(_WHOLE(-1), new_code))
    place = builder.select(is_branch, pi.place(row), p.place(row))
    new_mass = builder.load(place, align=_ALIGN)
    least = builder.fadd(mass, _splat(builder, _DOUBLE(TIE)))
    heavier = builder.fcmp_ordered(">", new_mass, least)
    mass.add_incoming(builder.select(heavier, new_mass, mass), body)
    code.add_incoming(builder.select(heavier, _splat(builder, new_code), code), body)
    g.add_incoming(builder.add(g, _WHOLE(1)), body)
    builder.branch(head)

    builder.position_at_end(done)
    amounts.store(_Lanes(builder, mass), _WHOLE(3))
    chosen.store(_Lanes(builder, code))


def _exp_of_negative(x):
    """e**x for x <= 0, at least e**-700.

    2**k times a Taylor polynomial on |r| <= ln(2) / 2, within two units in the last place. No call
    into a maths library: those differ between machines and between vector and scalar loops.
    """
    builder = x.builder
    x = x.at_least(-700.0)
    shifted = x * _LOG2_E + _SHIFTER
    k = shifted - _SHIFTER
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    # Pairs of terms first, then pairs of pairs: a processor works on them side by side.
    terms = [r * high + low for high, low in zip(_TAYLOR[::2], _TAYLOR[1::2], strict=True)]
    square = r * r
    while len(terms) > 1:
        odd = terms[: len(terms) % 2]
        rest = terms[len(odd) :]
        terms = odd + [high * square + low for high, low in zip(rest[::2], rest[1::2], strict=True)]
        square *= square
    (total,) = terms
    whole = ir.VectorType(_WHOLE, LANES)
    bits = builder.add(builder.bitcast(shifted.value, whole), _splat(builder, _WHOLE(1023)))
    power = builder.shl(bits, _splat(builder, _WHOLE(52)))
    return total * _Lanes(builder, builder.bitcast(power, shifted.value.type))


def _emit_tilt_part(_builder, h, j, top, parts, row, total):
    """Multiply a part by e^{h - top}, into h, and add it to the total."""
    new = _exp_of_negative(h.load(j) - top.load()) * parts.load(row)
    h.store(new, j)
    total.store(total.load() + new)


def _emit_tilt_two(builder, parts, first, h, step, active):
    """Tilt a branch of two: one of the powers is e^0, so a single exponential serves both."""
    second = builder.add(first, _WHOLE(1))
    left, right = parts.load(first), parts.load(second)
    ahead = h.load(_WHOLE(0)) * step - h.load(_WHOLE(1)) * step
    behind = ahead.compare("<", 0.0)
    small = _exp_of_negative(behind.choose(ahead, ahead * -1.0))
    new_left = behind.choose(left * small, left)
    new_right = behind.choose(right, right * small)
    share = _Lanes(builder, _splat(builder, _DOUBLE(1.0))) / (new_left + new_right)
    moves = active.truths()
    parts.store(moves.choose((new_left * share).at_least(TINY), left), first)
    parts.store(moves.choose((new_right * share).at_least(TINY), right), second)


def _emit_inside(_builder, scores, u, low, high, active):
    """Mark the lanes whose score lies in a closed interval; say whether there are any."""
    score = scores.load(u)
    return _mark(active, score.compare(">=", low) & score.compare("<=", high))


def _emit_moved(_builder, places, start, stop, active):
    """Keep the lanes that report some of the leaves start..stop-1; say whether any is left."""
    lo, hi = places.load(_WHOLE(0)), places.load(_WHOLE(1))
    within = lo.compare(">=", start) & hi.compare("<=", stop)
    less = lo.compare("!=", start) | hi.compare("!=", stop)
    return _mark(active, active.truths() & within & less)


def _emit_weighed(_builder, weights, g, active):
    """Keep the lanes with a weight; say whether any is left."""
    weight = weights.load(g)
    return _mark(active, active.truths() & weight.compare("!=", 0.0))


def _mark(active, truths):
    active.store_truths(truths)
    builder = truths.builder
    bits = builder.bitcast(truths.value, ir.IntType(LANES))
    return builder.icmp_unsigned("!=", bits, ir.IntType(LANES)(0))


add_row = _intrinsic(_emit_add_row)
step_down = _intrinsic(_emit_step_down)
level_mean = _intrinsic(_emit_level_mean)
heaviest = _intrinsic(_emit_heaviest)
tilt_part = _intrinsic(_emit_tilt_part)
tilt_two = _intrinsic(_emit_tilt_two)
mark_inside = _intrinsic(_emit_inside, types.boolean)
keep_moved = _intrinsic(_emit_moved, types.boolean)
keep_weighed = _intrinsic(_emit_weighed, types.boolean)
