"""Fitting: rows kept in order of score, and the largest interval sum of every candidate."""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import entry, loop

# A record is one row as the scans read it: its subgroups (as bits) and label in one number, and its
# contributions. Records are kept in order of score, so that every scan streams through memory.
WHO, VALUES = range(2)
LABEL_BITS = 20
LABEL_MASK = (1 << LABEL_BITS) - 1


@loop
def merge_rows(old, moved, rows, fresh, fresh_scores, fresh_records, new):
    """Merge rows with new scores back among those whose score is unchanged.

    `old` and `new` are (row numbers, scores, records) in order of score; `fresh` sorts `rows`,
    whose new scores and records are in the order of `rows`. Return whether any two scores tie.
    """
    order, scores, records = old
    out_order, out_scores, out_records = new
    n, width = records.shape
    m = fresh.shape[0]
    i = 0
    j = 0
    ties = False
    before = np.nan
    for k in range(n):
        while i < n and moved[order[i]]:
            i += 1
        if j == m or (i < n and scores[i] <= fresh_scores[fresh[j]]):
            out_order[k] = order[i]
            out_scores[k] = scores[i]
            for d in range(width):
                out_records[k, d] = records[i, d]
            i += 1
        else:
            row = fresh[j]
            out_order[k] = rows[row]
            out_scores[k] = fresh_scores[row]
            for d in range(width):
                out_records[k, d] = fresh_records[row, d]
            j += 1
        ties |= out_scores[k] == before
        before = out_scores[k]
    return ties


def deal(rows, ties, paths, slot_ptr, plain, entries, ends):
    """Give every branch its rows' contributions in sorted order, and the last column their sum.

    `measure` then loops over consecutive entries (value, tag). A tag holds the row's subgroups as
    bits (its number unless `plain`), shifted left by one; the lowest bit is set at the end of a tie
    block. `ends` says where each branch's entries end; `ties` whether any two scores are equal.
    """
    last_score = np.full(slot_ptr.shape[0] - 1, np.nan)
    _deal(rows, ties, paths, slot_ptr, plain, last_score, entries, ends)


@loop
def _deal(rows, ties, paths, slot_ptr, plain, last_score, entries, ends):
    order, scores, records = rows
    n_slots = slot_ptr.shape[0] - 1
    for j in range(n_slots):
        ends[j] = slot_ptr[j]
    last_end = slot_ptr[n_slots - 1]
    for m in range(order.shape[0]):
        who = records[m, WHO]
        y = np.uintp(who & LABEL_MASK)
        first = paths.ptr[y]
        count = paths.ptr[y + np.uintp(1)] - first
        tag = (who >> LABEL_BITS << 1) | 1 if plain else (order[m] << 1) | 1
        residual = 0
        if ties:
            _unmark(scores[m], m, first, count, records, paths, entries, ends, last_score)
        for d in range(count):
            value = records[m, VALUES + d]
            residual += value
            j = np.uintp(paths.slot[np.uintp(first + d)])
            # A zero changes no sum. It is written and written over, which costs less than a
            # branch that is hard to guess.
            at = np.uintp(ends[j])
            entries[at, 0] = value
            entries[at, 1] = tag
            ends[j] += value != 0
        if ties:
            if scores[m] == last_score[n_slots - 1]:
                entries[last_end - 1, 1] &= -2
            last_score[n_slots - 1] = scores[m]
        entries[np.uintp(last_end), 0] = residual
        entries[np.uintp(last_end), 1] = tag
        last_end += 1
    ends[n_slots - 1] = last_end


@loop
def _unmark(score, m, first, count, records, paths, entries, ends, last_score):
    """Take the end mark from the entry before each of a row's, where the scores are equal."""
    for d in range(count):
        if records[m, VALUES + d] != 0:
            j = paths.slot[first + d]
            if last_score[j] == score:
                entries[ends[j] - 1, 1] &= -2
            last_score[j] = score


@entry
def measure(entries, slot_ptr, ends, factors, first, last, size):
    """Largest absolute interval sums of subgroups first..last-1, every branch and (at last) UC.

    The exact scan of alg:exact-interval-scan without the intervals: `locate` finds the one that is
    asked for. Four subgroups run in registers; where `factors` (C, n) is given, it multiplies
    contributions, one subgroup at a time.
    """
    four = np.empty(4, dtype=np.int64)
    for j in range(size.shape[1]):
        lo = slot_ptr[j]
        hi = ends[j]
        if factors.shape[0] == 0:
            for c in range(first, last, 4):
                _scan_four(entries, lo, hi, c + 1, four)
                for g in range(min(4, last - c)):
                    size[c + g, j] = four[g]
        else:
            for c in range(first, last):
                size[c, j] = _scan_weighed(entries, lo, hi, factors[c])


@loop
def _scan_four(entries, lo, hi, bit, out):
    """Largest absolute interval sums of four subgroups over entries lo..hi-1.

    Lines 6-18 of alg:exact-interval-scan: running sum t, its least and greatest value so far (a
    and z), and the largest rise r and fall f.
    """
    t0 = t1 = t2 = t3 = 0
    a0 = a1 = a2 = a3 = 0
    z0 = z1 = z2 = z3 = 0
    r0 = r1 = r2 = r3 = 0
    f0 = f1 = f2 = f3 = 0
    for m in range(np.uintp(lo), np.uintp(hi)):
        value = entries[m, 0]
        tag = entries[m, 1]
        x = tag >> bit
        t0 += value & -(x & 1)
        t1 += value & -((x >> 1) & 1)
        t2 += value & -((x >> 2) & 1)
        t3 += value & -((x >> 3) & 1)
        if tag & 1:
            a0 = min(a0, t0)
            a1 = min(a1, t1)
            a2 = min(a2, t2)
            a3 = min(a3, t3)
            z0 = max(z0, t0)
            z1 = max(z1, t1)
            z2 = max(z2, t2)
            z3 = max(z3, t3)
            r0 = max(r0, t0 - a0)
            r1 = max(r1, t1 - a1)
            r2 = max(r2, t2 - a2)
            r3 = max(r3, t3 - a3)
            f0 = max(f0, z0 - t0)
            f1 = max(f1, z1 - t1)
            f2 = max(f2, z2 - t2)
            f3 = max(f3, z3 - t3)
    out[0] = max(r0, f0)
    out[1] = max(r1, f1)
    out[2] = max(r2, f2)
    out[3] = max(r3, f3)


@loop
def _scan_weighed(entries, lo, hi, factors):
    """Largest absolute interval sum of one subgroup whose rows carry weights."""
    total = 0
    low = 0
    high = 0
    best = 0
    for m in range(lo, hi):
        tag = entries[m, 1]
        total += np.int64(np.rint(entries[m, 0] * factors[tag >> 1]))
        if tag & 1:
            low = min(low, total)
            high = max(high, total)
            best = max(best, total - low, high - total)
    return best


@loop
def square_totals(rows, factors, paths, scale, squares):
    """Add up squared contributions in units of 2/scale; a repeated row counts as many rows."""
    order, _, records = rows
    squares[:] = 0
    for m in range(order.shape[0]):
        who = records[m, WHO]
        first = paths.ptr[who & LABEL_MASK]
        for d in range(paths.ptr[(who & LABEL_MASK) + 1] - first):
            value = records[m, VALUES + d] / scale
            square = value * value * (0.5 * scale)
            j = paths.slot[first + d]
            for c in range(squares.shape[0]):
                if factors.shape[0] == 0:
                    inside = -((who >> (LABEL_BITS + c)) & 1)
                    squares[c, j] += np.int64(np.rint(square)) & inside
                else:
                    squares[c, j] += np.int64(np.rint(square * abs(factors[c, order[m]])))


@loop
def locate(rows, weights, factors, paths, inside, depth):
    """Signed largest sum of one subgroup and branch, and its closed interval of scores.

    `inside` says of every label whether its path leads through the branch, and `depth` is the
    branch's place on those paths; -1 adds the whole path up (UC).
    Ties and the first of equal maxima are handled as in alg:exact-interval-scan.
    """
    order, scores, records = rows
    total = 0
    low = 0
    high = 0
    size = 0
    sign = 1
    low_at = -np.inf
    high_at = -np.inf
    best_after = -np.inf
    best_until = -np.inf
    m = 0
    n = order.shape[0]
    while m < n:
        score = scores[m]
        while m < n and scores[m] == score:
            i = order[m]
            at = m
            m += 1
            y = records[at, WHO] & LABEL_MASK
            if weights[i] == 0.0 or not inside[y]:
                continue
            value = 0
            if depth >= 0:
                value = records[at, VALUES + depth]
                if factors.shape[0] > 0:
                    value = np.int64(np.rint(value * factors[i]))
            else:
                for d in range(paths.ptr[y + 1] - paths.ptr[y]):
                    if factors.shape[0] > 0:
                        value += np.int64(np.rint(records[at, VALUES + d] * factors[i]))
                    else:
                        value += records[at, VALUES + d]
            total += value
        rise = total - low
        fall = high - total
        if rise > size:
            size = rise
            sign = 1
            best_after = low_at
            best_until = score
        if fall > size:
            size = fall
            sign = -1
            best_after = high_at
            best_until = score
        if rise < 0:
            low = total
            low_at = score
        if fall < 0:
            high = total
            high_at = score
    # The interval starts at the first score of the window beyond the excluded prefix.
    lo = 0
    hi = n
    while lo < hi:
        mid = (lo + hi) // 2
        if scores[mid] > best_after:
            hi = mid
        else:
            lo = mid + 1
    from_score = scores[min(lo, n - 1)]
    return sign * size, from_score, best_until
