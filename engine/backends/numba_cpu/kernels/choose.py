"""Choose from a few columns of logits, and sum up their powers; choose.pxi explains it, and best.pxi the best words.

Arguments: c is the choice of a row (RowChoice in table.pxd), and x has its logits of a part: of n words from `id` on.
`highest` is the largest of them, `allowed` has the bits of the part, and `own` the model's own logits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import types

from ...cpu.native.layout import ENUMS, structures
from ..compiler.bits import first_bit, rank_of, v_bits_of, v_mask_of, with_rank
from ..compiler.compiling import helper, inline
from ..compiler.pointers import on_stack
from ..compiler.structs import Before, Bytes, Float, Floats, Ints, RowChoice, Size, Vector, Words, as_row_choice
from ..compiler.vector import (
    v_add,
    v_and,
    v_equal,
    v_fma,
    v_largest,
    v_less,
    v_loadn,
    v_max,
    v_mul,
    v_select,
    v_set1,
    v_storen,
    v_sub,
)
from ..target import VL
from .elementwise import natural_logarithm, v_exp2
from .lanes import sum_of
from .softmax import entries, largest, power, sum_of_powers

LOWEST = -np.finfo(np.float32).max      # of a row whose logits are all -inf, because -inf - -inf is NaN
SMALLEST = float(np.finfo(np.float32).tiny)    # of the normal numbers above 0
LOG2_E = np.float32(1.4426950408889634)
PART = ENUMS[""]["PART"]
ROW_BYTES = ctypes.sizeof(structures()["RowChoice"])
ALL = 0xFFFFFFFF
logits_before = on_stack(types.float32, PART)
changed_places = on_stack(types.int32, 2 * PART)        # a penalty and an addend for each
changed_values = on_stack(types.float32, 2 * PART)


@inline
def penalized(logit: Float, penalty: Float) -> Float:
    """Return the logit of a token that the text has already, after the repetition penalty."""
    return logit * penalty if logit < 0 else logit / penalty


@inline
def with_addend(logit: Float, addend: Float) -> Float:
    """Return the logit of a token that the caller makes more likely or less."""
    return logit + addend


@inline
def is_allowed(restricted: bool, allowed: Words, i: Size) -> bool:
    """Return whether token i of a part is allowed."""
    return not restricted or allowed[i // 32] >> (i % 32) & 1 != 0


@inline
def logits_at(restricted: bool, x: Floats, i: Size, n: Size, allowed: Words) -> Vector:
    """Load logits i, i + 1, ... of n, and -inf in the lanes of forbidden tokens and behind the last one."""
    logits = entries(x + i, min(n - i, VL))
    if restricted:
        return v_select(v_mask_of(allowed[i // 32] >> (i % 32)), logits, v_set1(-np.inf))
    return logits


@inline
def is_restricted(c: RowChoice, id: Size, n: Size) -> bool:
    """Return whether any of the tokens from `id` on is forbidden."""
    if not c.allowed:
        return False
    allowed, all = c.allowed + id // 32, ALL
    for word in range(n // 32):
        all &= allowed[word]
    if n % 32:
        all &= allowed[n // 32] | ALL << (n % 32)
    return all & ALL != ALL


@inline
def largest_of(x: Floats, n: Size, allowed: Words) -> Float:
    """Return the largest allowed logit, at least the lowest finite number. NaN is ignored."""
    highest = v_set1(LOWEST)
    for i in range(0, n, VL):
        highest = v_max(logits_at(True, x, i, n, allowed), highest)
    return v_largest(highest)


@inline
def copy(x: Floats, n: Size, to: Floats) -> None:
    """Copy n numbers."""
    for i in range(0, n, VL):
        v_storen(to + i, v_loadn(x + i, min(n - i, VL)), min(n - i, VL))


@helper
def change_logits(c: RowChoice, x: Floats, id: Size, n: Size, before: Before, highest: Float) -> Any:
    """Change single logits [n] in place, by the penalty and the addends; return the number of changes, which `before`
    has then, and the largest logit. highest: the largest logit before.
    """
    count, lost = 0, False      # lost: whether the largest logit was changed, so that the new one must be searched
    if c.seen:
        for word in range((n + 31) // 32):
            bits = np.int64(c.seen[id // 32 + word])
            while bits:
                i = word * 32 + first_bit(bits)
                bits &= bits - 1
                if i >= n:
                    break
                before.places[count], before.values[count] = np.int32(i), x[i]
                count += 1
                lost |= x[i] >= highest
                x[i] = penalized(x[i], c.penalty)
                highest = x[i] if x[i] > highest else highest
    while c.next_added < c.additions and c.added[c.next_added] < id + n:
        i = c.added[c.next_added] - id
        if i >= 0:
            before.places[count], before.values[count] = np.int32(i), x[i]
            count += 1
            lost |= x[i] >= highest
            x[i] = with_addend(x[i], c.addends[c.next_added])
            highest = x[i] if x[i] > highest else highest
        c.next_added += 1
    if lost:
        highest = largest(x, n, LOWEST)
    return count, highest


@inline
def own_logits(before: Before, count: int, x: Floats, n: Size, own: Floats) -> Floats:
    """Return the model's own logits [n]: x if none was changed, else a copy of x in `own` without the changes.

    count: how many changes `before` holds. It is called only for a part with a word to choose, and few parts have one.
    """
    if count == 0:
        return x
    copy(x, n, own)
    for i in range(count - 1, -1, -1):      # what was changed twice ends as it was first
        own[before.places[i]] = before.values[i]
    return own


@inline
def just_below(x: Float) -> Float:
    """Return the largest normal number below x; -inf for -inf."""
    if -SMALLEST < x < SMALLEST:
        return -SMALLEST
    return with_rank(rank_of(x) - 1) if x > -np.inf else x


@inline
def count_from(values: Floats, n: Size, least: Float) -> int:
    """Return how many of n numbers are at least `least`."""
    count = 0
    for i in range(n):
        count += values[i] >= least
    return count


@helper
def keep_best(values: Floats, own: Floats, ids: Ints, n: Size, k: Size) -> Float:
    """Move the k largest of n > k values to the front, in their order, the first ones among equals.

    Return a bar that these k reach, and of the others at most some that equal it. Bisection of ranks finds it.
    """
    low, high, count = rank_of(np.float32(np.inf)), rank_of(np.float32(-np.inf)), n
    for i in range(n):
        low, high = min(low, rank_of(values[i])), max(high, rank_of(values[i]))
    high += 1
    while low + 1 < high and count != k:
        middle = (low + high) // 2
        reached = count_from(values, n, with_rank(middle))
        if reached >= k:
            low, count = middle, reached
        else:
            high = middle
    bar = with_rank(low)
    equal = n if count == k else k - count_from(values, n, with_rank(high))     # of the bar, how many stay
    kept = 0
    for i in range(n):
        if values[i] < bar or (values[i] == bar and equal == 0):
            continue
        if values[i] == bar:
            equal -= 1
        values[kept], own[kept], ids[kept] = values[i], own[i], ids[i]
        kept += 1
    return bar


@inline
def add_candidate(c: RowChoice, value: Float, own: Float, id: Size) -> None:
    """Append a word with its changed and own logit to the candidates for the best."""
    count = c.count
    c.values[count], c.own[count], c.ids[count] = value, own, np.int32(id)
    c.count = count + 1


@helper
def choose_one(restricted: bool, c: RowChoice, x: Floats, own: Floats, id: Size, n: Size, highest: Float,
               allowed: Words) -> None:
    """Replace the best one by the largest logit; of logits that are all -inf or NaN, by the first that is not NaN."""
    for i in range(0, n, VL):
        bits = v_bits_of(v_equal(logits_at(restricted, x, i, n, allowed), v_set1(highest)))
        if bits:
            i += first_bit(bits)
            c.count, c.bar = 0, x[i]
            add_candidate(c, x[i], own[i], id + i)
            return
    if c.count == 0:
        for i in range(n):
            if not is_allowed(restricted, allowed, i):
                add_candidate(c, np.float32(-np.inf), own[i], id + i)
                return
            if x[i] == x[i]:        # not NaN
                add_candidate(c, x[i], own[i], id + i)
                return


@helper
def append_above(restricted: bool, bar: Float, x: Floats, own: Floats, id: Size, n: Size, allowed: Words,
                 values: Floats, owns: Floats, ids: Ints) -> int:
    """Append the logits [n] above the bar, their own logits and their ids to three lists, and return how many.

    owns may be the list `values` if no logit is changed.
    """
    count = 0
    for i in range(0, n, VL):
        bits = v_bits_of(v_less(v_set1(bar), logits_at(restricted, x, i, n, allowed)))
        while bits:
            j = i + first_bit(bits)
            bits &= bits - 1
            values[count], owns[count], ids[count] = x[j], own[j], np.int32(id + j)
            count += 1
    return count


@helper
def add_candidates(restricted: bool, c: RowChoice, x: Floats, own: Floats, id: Size, n: Size, allowed: Words) -> None:
    """Append the logits above the bar to the candidates for the k best; while there are not k, all that are not NaN."""
    if c.count < c.k:
        for i in range(n):
            if not is_allowed(restricted, allowed, i):
                add_candidate(c, np.float32(-np.inf), own[i], id + i)
            elif x[i] == x[i]:
                add_candidate(c, x[i], own[i], id + i)
    else:
        count = c.count
        c.count = count + append_above(restricted, c.bar, x, own, id, n, allowed, c.values + count, c.own + count,
                                       c.ids + count)
    if c.count > 2 * c.k:
        c.bar = keep_best(c.values, c.own, c.ids, c.count, c.k)
        c.count = c.k


@inline
def scaled_power(x: Vector, maximum: Vector, scale: Vector) -> Vector:
    """Return 2^((x - maximum) scale), with the bits of `power` for the scale log2 e."""
    y = v_mul(v_sub(x, maximum), scale)
    return v_select(v_less(v_set1(-126.0), y), v_exp2(y), v_max(v_set1(0.0), y))


def scaled_powers(x: Floats, n: Size, maximum: Float, scale: Float, out: Floats) -> None:
    """Compute out = 2^((x - maximum) scale) of n numbers, none of which is larger."""
    for i in range(0, n, VL):
        v_storen(out + i, scaled_power(entries(x + i, min(n - i, VL)), v_set1(maximum), v_set1(scale)), min(n - i, VL))


@inline
def _add_scaled_power(sum: Vector, x: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the powers of some allowed logits. other: (restricted, allowed, maximum, scale)."""
    restricted, allowed, maximum, scale = other
    if n > 0:
        return v_add(sum, scaled_power(logits_at(restricted, x, i, i + n, allowed), maximum, scale))
    return sum


sum_of_scaled_powers = sum_of(_add_scaled_power)


@helper
def copy_above(values: Floats, own: Floats, ids: Ints, n: Size, bar: Float, to_values: Floats, to_own: Floats,
               to_ids: Ints) -> int:
    """Copy those of n words whose value is above a bar, in their order, and return how many; lists may be the same."""
    kept = 0
    for i in range(n):
        if values[i] > bar:
            to_values[kept], to_own[kept], to_ids[kept] = values[i], own[i], ids[i]
            kept += 1
    return kept


def keep_above(values: Floats, own: Floats, ids: Ints, n: Size, bar: Float, to_values: Floats, to_own: Floats,
               to_ids: Ints) -> Size:
    """Call copy_above; the kernel table holds this."""
    return copy_above(values, own, ids, n, bar, to_values, to_own, to_ids)


@inline
def _add_above(sum: Vector, powers: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the powers of the words above a bar. other: (values, bar)."""
    values, bar = other
    if n > 0:
        return v_add(sum, v_and(v_less(bar, entries(values + i, min(n, VL))), v_loadn(powers + i, min(n, VL))))
    return sum


_sum_above = sum_of(_add_above)


def sum_above(values: Floats, powers: Floats, n: Size, bar: Float) -> Float:
    """Return the sum, within rounding, of the powers of the words whose values are above a bar."""
    return _sum_above(powers, n, (values, v_set1(bar)))


@inline
def _add_scaled_part(sum: Vector, maxima: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the sums of some parts of a row, scaled from their own maxima to the row's. other: (sums, highest, scale)."""
    sums, highest, scale = other
    if n > 0:
        return v_fma(scaled_power(entries(maxima + i, min(n, VL)), highest, scale), v_loadn(sums + i, min(n, VL)), sum)
    return sum


_sum_of_scaled_parts = sum_of(_add_scaled_part)


@helper
def raise_bar(c: RowChoice, part: Size) -> None:
    """Raise the bar by the sum of the powers of all parts up to this one; if there is no room, drop the words below."""
    first = c.first_part
    total = _sum_of_scaled_parts(c.maximum + first, part + 1 - first,
                                 (c.sum + first, v_set1(c.highest), v_set1(c.scale)))
    bar = np.float32(c.highest + c.depth_of_top_p + c.temperature * natural_logarithm(total))
    c.collected_bar = max(bar, c.collected_bar)
    if c.collected > c.most:
        kept = copy_above(c.collected_values, c.collected_own, c.collected_ids, c.collected, c.collected_bar,
                          c.collected_values, c.collected_own, c.collected_ids)
        c.collected = kept if kept <= c.most // 4 * 3 else -1
    c.many = min(c.most, 2 * c.collected)


@helper
def collect_likely(restricted: bool, c: RowChoice, x: Floats, before: Before, count: int, id: Size, n: Size,
                   highest: Float, allowed: Words) -> None:
    """Collect the words that may be likely enough for top_p and min_p."""
    bar = c.collected_bar
    if highest > c.highest:
        c.highest = highest
        bar = max(max(np.float32(highest + c.depth_of_top_p), just_below(np.float32(highest + c.depth_of_min_p))), bar)
    shared = c.shared_bar[0]        # other threads may change it at any time
    if shared < bar:
        c.shared_bar[0] = bar
    bar = max(bar, shared)
    c.collected_bar = bar
    if not highest > bar:
        return
    place = c.collected
    own = own_logits(before, count, x, n, before.own)
    c.collected = place + append_above(restricted, bar, x, own, id, n, allowed, c.collected_values + place,
                                       c.collected_own + place, c.collected_ids + place)
    if c.collected > c.many:
        raise_bar(c, id // PART)


@inline
def choose_from(restricted: bool, c: RowChoice, x: Floats, before: Before, count: int, id: Size, n: Size,
                highest: Float, sum: Float, allowed: Words) -> None:
    """Choose from changed logits. sum: of the powers for log_sum_exp, if these are the model's own; otherwise 0."""
    if restricted:
        highest = largest_of(x, n, allowed)
    if c.k == 1:
        if highest > c.bar:
            choose_one(restricted, c, x, own_logits(before, count, x, n, before.own), id, n, highest, allowed)
    elif c.k and (c.count < c.k or highest > c.bar):
        add_candidates(restricted, c, x, own_logits(before, count, x, n, before.own), id, n, allowed)
    if c.scale != 0:
        c.maximum[id // PART] = highest
        if restricted or sum == 0 or c.scale != LOG2_E:
            sum = sum_of_scaled_powers(x, n, (restricted, allowed, v_set1(highest), v_set1(c.scale)))
        c.sum[id // PART] = sum
        if c.most and c.collected >= 0:
            collect_likely(restricted, c, x, before, count, id, n, highest, allowed)


@inline
def passes(c: RowChoice, id: Size, n: Size, highest: Float) -> bool:
    """Return whether nothing is chosen of a part: no change can make a logit larger than the bar.

    A scale that is not 0 belongs to a row that draws, which reads every part; a penalty below 1 raises logits.
    """
    if highest > c.bar or c.scale != 0 or c.penalty < 1:
        return False
    return not (c.next_added < c.additions and c.added[c.next_added] < id + n)


@inline
def choose_changed(c: RowChoice, x: Floats, before: Before, id: Size, n: Size, highest: Float, total: Float) -> None:
    """Choose the words of a row whose logits are changed, or that wants more than the best word."""
    for i in range(c.givens):
        if id <= c.given[i] < id + n:
            c.given_logits[i] = x[c.given[i] - id]
    if passes(c, id, n, highest):
        return
    count, highest = change_logits(c, x, id, n, before, highest)
    if count:
        total = np.float32(0)
    choose_from(is_restricted(c, id, n), c, x, before, count, id, n, highest, total, c.allowed + id // 32)


def choose(rows: Bytes, logits: Floats, logits_stride: Size, M: Size, id: Size, n: Size, maximum: Floats, sum: Floats,
           stride: Size) -> None:
    """Choose from M rows of logits of ids [id, id + n); store their maxima and sums. rows: a RowChoice for each."""
    before = Before(changed_places(), changed_values(), logits_before())
    for row in range(M):
        x, c = logits + row * logits_stride, as_row_choice(rows + row * ROW_BYTES)
        highest = largest(x, n, LOWEST)
        total = sum_of_powers(x, n, v_set1(highest))
        maximum[row * stride], sum[row * stride] = highest, total
        if not c.plain:
            choose_changed(c, x, before, id, n, highest, total)
        elif highest > c.bar:       # as in greedy search
            choose_one(False, c, x, x, id, n, highest, c.allowed)


@inline
def _add_part(sum: Vector, maxima: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the sums of some parts of a row, scaled from their own maxima to the row's. other: (sums, highest)."""
    sums, highest = other
    return v_fma(power(entries(maxima + i, min(n, VL)), highest), v_loadn(sums + i, min(n, VL)), sum)


_sum_of_parts = sum_of(_add_part)


def log_sum_exp(maximum: Floats, sum: Floats, stride: Size, M: Size, parts: Size, out: Floats) -> None:
    """Compute ln(sum of e^x) of M rows from the maxima and the sums of their parts."""
    for row in range(M):
        highests, sums = maximum + row * stride, sum + row * stride
        highest = largest(highests, parts, LOWEST)
        total = _sum_of_parts(highests, parts, (sums, v_set1(highest)))
        out[row] = highest + natural_logarithm(total)
