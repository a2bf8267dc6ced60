"""Define the wants of a step's rows: how logits are changed, which words are chosen or drawn, which logits returned.

A line is one scored token of a row. Its V logits x are the model's own. In float32, for each word i of the vocabulary:

    s_i   = the changed logit: x_i p if x_i < 0, else x_i / p, where i is in the set `seen` of the penalty p;
            then plus the addend of i; then -inf where i is not in the set `allowed`
    y_i   = s_i / temperature
    m     = the largest y
    w_i   = e^(y_i - m)

`log_sum_exp` is that of x. Words are ordered by s, the largest first, and the lowest id first among equals; NaN is
never chosen. A draw keeps words in three steps, and chooses one of them by a number u in [0, 1):

    top_k   keeps the first k words of that order; 0 keeps all
    top_p   keeps a word if the words before it have a sum of w below top_p times the sum over the words of top_k; it
            keeps the first word in any case, and 1 keeps all
    min_p   keeps a word if y_i >= m + ln min_p, and 0 keeps all
    drawn   the first word, in the order of ids, at which the sum of w over the kept words passes u times their sum

If every s is -inf, the drawn id is -1. `choice.py` computes all this in NumPy.

The kernels compute it part by part. A part is the 128 columns from 128 j on, which lie in the scratch of a thread.
Powers are 2^((s - largest) log2 e / temperature) in float32, a product in place of the quotient y:

1. From x come the maximum of the part and the sum of its powers, as `log_sum_exp` has always had them.
2. The part is changed: the penalty, the addends, the allowed set, each by one function.
3. For a line that draws from all words, or from those that top_p and min_p keep of all words, the maximum m_j of s
   over the part (the lowest finite number for a part of -inf) and S_j, the float32 sum of its powers in the same lanes
   as in 1, are kept. At the temperature 1, a part in which nothing was changed has those of 1.
4. Then W_j = S_j times the power of m_j, in float64, where the power itself is one of float32. They are added in
   float64, in the order of parts. This total is the sum of w over all words.
5. If all words are kept, the word lies in the first part at which the sum of W passes u times the total. This part is
   multiplied and changed once more for this line, and the powers of its words are added in the order of ids until they
   pass the share of W_j that is left.
6. Otherwise the words that can be kept are collected: with top_k the best k; without it each word with w_i > (1 -
   top_p) / C of the total so far, or, for min_p, y_i >= m so far + ln min_p. The bar on s that this makes only rises,
   and threads tell each other theirs. All words above the highest bar were collected. If these have less than top_p of
   the final total, or were too many, the line's product is computed once more, and all words are collected. To find
   the last word that top_p keeps, the range of logits in which it lies is halved, by sums of float32 as long as these
   are further from top_p than their error; the words in the range that is left are sorted. C is V / 6: of 1,326 lines
   of a language model with 49,152 words, none needed more at a temperature of 1 with top_p = 0.95, and 2,000 words of a
   line were collected.

Sums of powers of single words decide in 5 and 6. They are exact, so that neither order nor company matters: before,
each power is rounded to a multiple of 2^-52 of a power of two that is above the line's total (in 5, above S_j).

So a result depends on its line alone, whatever C and the bars are, whoever shares the step, and whatever threads
compute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import InputError, shown
from ..base.functions import log

if TYPE_CHECKING:
    from .steps import Row

LEAST_TEMPERATURE = 1e-6
"""Below it, quotients of logits by the temperature leave the range of float32."""


class IdSet:
    """A set of ids below V: bit i % 32 of word i // 32 is 1 if id i is in it. Bits from V on have no meaning.

    A step that reads a set must have ended before the set is changed.
    """

    __slots__ = ("address", "size", "words")

    def __init__(self, size: int, words: NDArray[np.uint32] | None = None):
        """size: V. words: the bits, which the set keeps; None for an empty set."""
        self.size = size
        self.words = np.zeros(-(-size // 32), np.uint32) if words is None else words
        self.address = self.words.ctypes.data
        """The address of `words`, for native code."""

    @classmethod
    def of(cls, ids: ArrayLike, size: int) -> IdSet:
        """Return the set of these ids, each from 0 to V - 1."""
        bits = np.zeros(-(-size // 32) * 32, bool)
        bits[np.asarray(ids, np.int64)] = True
        return cls(size, np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False))

    def add(self, id: int) -> None:
        """Put an id into the set."""
        self.words[id >> 5] |= np.uint32(1 << (id & 31))

    def discard(self, id: int) -> None:
        """Take an id out of the set."""
        self.words[id >> 5] &= np.uint32(~(1 << (id & 31)) & 0xFFFFFFFF)

    def copy(self) -> IdSet:
        """Return a set with the same ids."""
        return IdSet(self.size, self.words.copy())

    def complement(self) -> IdSet:
        """Return the set of all other ids."""
        return IdSet(self.size, ~self.words)

    def mask(self) -> NDArray[np.bool_]:
        """Return whether each id is in the set: bool [V]."""
        octets = self.words.astype("<u4", copy=False).view(np.uint8)
        return np.unpackbits(octets, count=self.size, bitorder="little").view(bool)


class Addends:
    """Numbers that are added to the logits of some ids."""

    __slots__ = ("addresses", "ids", "values")

    def __init__(self, ids: ArrayLike, values: ArrayLike):
        """ids: [n], ascending, none twice. values: [n], finite."""
        self.ids, self.values = np.array(ids, np.int32), np.array(values, np.float32)
        if self.ids.ndim != 1 or self.ids.shape != self.values.shape:
            raise InputError(f"addends need one id for each number, not {list(self.ids.shape)} ids for "
                             f"{list(self.values.shape)} numbers")
        if not (np.diff(self.ids) > 0).all() or (len(self.ids) and self.ids[0] < 0):
            raise InputError(f"the ids of addends must be at least 0 and ascend, not {shown(self.ids.tolist())}")
        if not np.isfinite(self.values).all():
            raise InputError(f"addends must be finite numbers, not {shown(self.values.tolist())}")
        self.addresses = self.ids.ctypes.data, self.values.ctypes.data
        """The addresses of the ids and of the numbers, for native code."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How the logits of a line are changed, in the order of these attributes; None changes nothing."""

    seen: IdSet | None = None
    """The ids that have the penalty."""
    penalty: float = 1.0
    """Divides a positive logit of an id in `seen`, and multiplies a negative one."""
    addends: Addends | None = None
    allowed: IdSet | None = None
    """The ids that keep their logits; those of all others become -inf."""

    def __post_init__(self) -> None:
        if not 0 < self.penalty < np.inf:
            raise InputError(f"a penalty must be a finite number above 0, not {shown(self.penalty)}")


@dataclass(frozen=True, slots=True)
class Draw:
    """How a word is drawn; the text above has the formulas."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    log_min_p: float = field(init=False, repr=False)
    """ln min_p; -inf if min_p is 0."""

    def __post_init__(self) -> None:
        if not LEAST_TEMPERATURE <= self.temperature < np.inf:
            raise InputError(f"the temperature of a draw must be a finite number, at least {LEAST_TEMPERATURE}, not "
                             f"{shown(self.temperature)}; for less, take the best word")
        if self.top_k < 0:
            raise InputError(f"top_k must be at least 0, not {shown(self.top_k)}")
        if not (0 <= self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise InputError(f"top_p and min_p must be from 0 to 1, not {shown(self.top_p)} and {shown(self.min_p)}")
        # Here, because every step reads it: the engine's own logarithm takes 40 us for a single number.
        object.__setattr__(self, "log_min_p", float(log(self.min_p)) if self.min_p else -np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """The want of one line: all its logits; or its log_sum_exp, with best words, likely words, ids, or draws."""

    best: int = 0
    """k: the k best words by their changed logits."""
    ids: NDArray[np.int64] | None = None
    """[n]: ids whose own logits are wanted."""
    draw: Draw | None = None
    numbers: tuple[float, ...] = ()
    """The numbers u in [0, 1), each of which draws one word."""
    changes: Changes | None = None
    """How the logits are changed before words are chosen; all logits, and those of ids, are the model's own."""
    logits: bool = False
    """All V logits, and nothing else."""
    likely: int = 0
    """n: the n best words by the model's own logits."""


ALL = (Want(logits=True),)
"""The wants of a row that wants all logits."""
GREEDY = (Want(best=1),)
"""The wants of a row that wants the best word alone."""


@dataclass(frozen=True)
class LineWants:
    """The wants of the L lines of a step that do not want all logits, in arrays that native code reads.

    Line i has the entries at[i] to at[i+1] - 1 of flat arrays, where `at` is the array of its kind below; no line is
    padded to what another one wants. An address is 0 for no set, and for no addends.

    `Executor.forward` takes it as `wanted`, and fills the arrays `chosen`, those of a `Chosen` with ids as int32, in
    this order: log_sum_exp [L]; best ids, values, own [best_at[L]]; likely ids, values, own [likely_at[L]]; given
    [given_at[L]]; drawn ids, values, own [drawn_at[L]].
    """

    count: int
    """L."""
    best_at: NDArray[np.int32]
    """[L+1]: where the best words of each line begin."""
    likely_at: NDArray[np.int32]
    """[L+1]: where the likely words of each line begin."""
    given_at: NDArray[np.int32]
    """[L+1]: where the ids of each line begin in `given_ids`, and their logits in the result."""
    given_ids: NDArray[np.int32]
    drawn_at: NDArray[np.int32]
    """[L+1]: where the numbers of each line begin in `numbers`, and the drawn words in the result."""
    numbers: NDArray[np.float64]
    draws: tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float32]] | None
    """Temperature (1 for a line that does not draw), top_k (0 for all words), top_p and ln min_p (-inf for none): [L]
    each. None if no line draws."""
    changes: tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int32], NDArray[np.uint64], NDArray[np.uint64],
                   NDArray[np.uint64]] | None
    """Address of the words of the set of seen ids, penalty, number of addends, address of their ids, address of their
    numbers, address of the words of the set of allowed ids: [L] each. None if no line has changes."""
    wants: tuple[Want, ...]
    """[L]: the wants themselves, which keep the memory at those addresses."""

    @classmethod
    def of(cls, rows: Sequence[Row], vocab_size: int) -> LineWants:
        """Collect the wants of the rows of a step; raises `InputError` for ids or counts that exceed the vocabulary."""
        lines: list[Want] = []
        for row in rows:
            if not row.wants_logits:
                lines += row.lines
        best, likely = [want.best for want in lines], [want.likely for want in lines]
        given = [want.ids for want in lines if want.ids is not None]
        numbers = [u for want in lines for u in want.numbers]
        wanted = cls(count=len(lines), best_at=_starts(best), likely_at=_starts(likely),
                     given_at=_starts(0 if want.ids is None else len(want.ids) for want in lines),
                     given_ids=np.concatenate(given).astype(np.int32) if given else np.zeros(0, np.int32),
                     drawn_at=_starts(len(want.numbers) for want in lines), numbers=np.array(numbers, np.float64),
                     draws=_draws_of(lines), changes=_changes_of(lines, vocab_size), wants=tuple(lines))
        for want in lines:
            wants_something = want.best or want.likely or want.ids is not None or want.numbers
            if (want.draw is None) != (not want.numbers) or not wants_something:
                raise InputError("a line wants the best words, likely words, ids or draws, and numbers exactly if it "
                                 f"draws, not {shown(want)}; best must be from 1 to {vocab_size:,}")
        for counts in (best, likely):
            if counts and not 0 <= min(counts) <= max(counts) <= vocab_size:
                wrong = max(counts) if max(counts) > vocab_size else min(counts)
                raise InputError(f"best must be from 1 to {vocab_size:,}, the size of the vocabulary, not "
                                 f"{shown(wrong)}")
        if len(wanted.given_ids) and not 0 <= wanted.given_ids.min() <= wanted.given_ids.max() < vocab_size:
            raise InputError(f"ids whose logits are wanted must be from 0 to {vocab_size - 1:,}, not "
                             f"{shown(wanted.given_ids.tolist())}")
        if numbers and not ((wanted.numbers >= 0) & (wanted.numbers < 1)).all():
            raise InputError(f"the numbers of a draw must be at least 0 and below 1, not {shown(numbers)}")
        return wanted


def _starts(counts: Iterable[int]) -> NDArray[np.int32]:
    """Return where each run of these lengths begins in a flat array, and where the last run ends."""
    return np.array([0, *accumulate(counts)], np.int32)


def _draws_of(lines: Sequence[Want]) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64],
                                              NDArray[np.float32]] | None:
    """Return `LineWants.draws` of these lines."""
    draws = [want.draw for want in lines]
    if not any(draws):
        return None
    columns = [(1.0, 0, 1.0, -np.inf) if draw is None else
               (draw.temperature, draw.top_k, draw.top_p, draw.log_min_p) for draw in draws]
    temperature, top_k, top_p, log_min_p = zip(*columns, strict=True)
    return (np.array(temperature, np.float32), np.array(top_k, np.int32), np.array(top_p, np.float64),
            np.array(log_min_p, np.float32))


def _changes_of(lines: Sequence[Want], vocab_size: int) -> tuple[
        NDArray[np.uint64], NDArray[np.float32], NDArray[np.int32], NDArray[np.uint64], NDArray[np.uint64],
        NDArray[np.uint64]] | None:
    """Return `LineWants.changes` of these lines; raises `InputError` for ids that the vocabulary lacks."""
    if not any(want.changes for want in lines):
        return None
    columns = []
    for want in lines:
        changes = want.changes or Changes()
        seen, addends, allowed = changes.seen, changes.addends, changes.allowed
        for ids in (seen, allowed):
            if ids is not None and ids.size != vocab_size:
                raise InputError(f"a set of ids must be one of a vocabulary of {vocab_size:,} words, not of "
                                 f"{ids.size:,}")
        if addends is not None and len(addends.ids) and addends.ids[-1] >= vocab_size:
            raise InputError(f"the ids of addends must be below {vocab_size:,}, not {shown(int(addends.ids[-1]))}")
        count, addresses = (0, (0, 0)) if addends is None else (len(addends.ids), addends.addresses)
        columns.append((0 if seen is None else seen.address, changes.penalty, count, *addresses,
                        0 if allowed is None else allowed.address))
    seen_sets, penalties, counts, addend_ids, addend_values, allowed_sets = zip(*columns, strict=True)
    return (np.array(seen_sets, np.uint64), np.array(penalties, np.float32), np.array(counts, np.int32),
            np.array(addend_ids, np.uint64), np.array(addend_values, np.uint64), np.array(allowed_sets, np.uint64))
