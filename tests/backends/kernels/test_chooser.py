"""Test what lines want of the logits of a vocabulary product, against NumPy: the best, given ids, and draws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.choice import best_of, change_logits, drawn_of, keep_words
from engine.backends.wants import Addends, Changes, Draw, IdSet, Want
from engine.base.functions import exp

from .tools import available, load, turn
from .vocabulary import Vocabulary

PRECISIONS = ("float32", "bfloat16", "int8")


def random_set(rng, V, count):
    return IdSet.of(rng.choice(V, min(count, V), replace=False), V)


def random_changes(rng, V):
    """Return changes of any kind; sets of none, one, 127 and all ids are among them."""
    counts = [0, 1, 127, V // 2, V]
    seen, allowed = (random_set(rng, V, rng.choice(counts)) if rng.random() < 0.5 else None for _ in range(2))
    ids = np.sort(rng.choice(V, min(V, rng.choice([1, 5, 500])), replace=False))
    addends = Addends(ids, rng.standard_normal(len(ids)) * 3) if rng.random() < 0.4 else None
    return Changes(seen, float(rng.choice([0.8, 1.05, 1.1, 2])), addends, allowed)


def random_draw(rng, V):
    return Draw(float(rng.choice([0.3, 0.7, 1, 1, 1.5])), int(rng.choice([0, 0, 1, 5, 20, V])),
                float(rng.choice([1, 1, 0, 0.3, 0.95, 0.999])), float(rng.choice([0, 0, 0.05, 1])))


def random_want(rng, V):
    want = Want(int(rng.choice([0, 1, 1, 2, 20, 128])), changes=random_changes(rng, V) if rng.random() < 0.6 else None)
    best, ids, draw, numbers = min(want.best, V), None, None, ()
    if rng.random() < 0.3 or not best:
        ids = rng.integers(0, V, rng.choice([1, 2, 40]))
    if rng.random() < 0.5:
        draw, numbers = random_draw(rng, V), tuple(rng.random(rng.choice([1, 1, 3])))
    likely = min(int(rng.choice([0, 0, 1, 3, 20])), V)
    return Want(best, ids, draw, numbers, want.changes, likely=likely)


def is_near_a_border(s, draw, u):
    """Return whether rounding may decide which word is drawn, or which words are kept, of logits in float64."""
    ids, y = keep_words(s, draw)
    sums = np.cumsum(exp(y - y.max()))
    if np.abs(sums / sums[-1] - u).min() < 1e-5:
        return True
    near = 1 + np.array([1e-5, -1e-5])
    others = [replace(draw, top_p=min(1, draw.top_p * factor)) for factor in near if draw.top_p < 1]
    others += [replace(draw, min_p=min(1, draw.min_p * factor)) for factor in near]
    return any(not np.array_equal(keep_words(s, other)[0], ids) for other in others)


def check_line(x, want, found, best, likely, given_logits, drawn):
    """Check what a line of logits x [V] got: slices of the results, and how many draws were near a border."""
    s = change_logits(x, want.changes)
    if want.best:
        ids = best_of(s, want.best)
        assert np.array_equal(found.best.ids[best], ids)
        assert np.array_equal(found.best.values[best], np.where(ids < 0, np.float32(-np.inf), s[ids]))
        assert np.array_equal(found.best.own[best], np.where(ids < 0, np.float32(-np.inf), x[ids]), equal_nan=True)
    if want.likely:
        ids = best_of(x, want.likely)
        assert np.array_equal(found.likely.ids[likely], ids)
        assert np.array_equal(found.likely.values[likely], np.where(ids < 0, np.float32(-np.inf), x[ids]))
    if want.ids is not None:
        assert np.array_equal(found.given[given_logits], x[want.ids], equal_nan=True)
    if want.draw is None or np.isnan(x).any():
        return 0
    exact, near = s.astype(np.float64), 0
    for u, right, id, value, own in zip(want.numbers, drawn_of(exact, want.draw, want.numbers), found.drawn.ids[drawn],
                                        found.drawn.values[drawn], found.drawn.own[drawn], strict=True):
        if right < 0:
            assert (id, value, own) == (-1, -np.inf, -np.inf)
            continue
        assert value == s[id] > -np.inf
        assert own == x[id]
        if id != right:
            assert is_near_a_border(exact, want.draw, u), (want.draw, u, id, right)
            near += 1
    return near


def places(wanted, i):
    """Return where the best, likely, given and drawn words of a line lie in the results."""
    return (slice(at[i], at[i + 1]) for at in (wanted.best_at, wanted.likely_at, wanted.given_at, wanted.drawn_at))


def check(vocabulary, wants, logits, **options):
    """Check what lines want of logits [L,V]; return the results, and how many draws rounding may have decided."""
    _, found = vocabulary.choose(wants, **options)
    wanted = vocabulary.wanted(wants)
    near = 0
    for i, (x, want) in enumerate(zip(logits, wants, strict=True)):
        near += check_line(x, want, found, *places(wanted, i))
    return found, near


def parts_of(vocabulary, wants, found):
    """Return the results of each line."""
    wanted = vocabulary.wanted(wants)
    for i in range(len(wants)):
        best, likely, ids, drawn = places(wanted, i)
        yield (found.log_sum_exp[i : i + 1], *vars(found.best[best]).values(), *vars(found.likely[likely]).values(),
               found.given[ids], *vars(found.drawn[drawn]).values())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("V", [7, 127, 128, 129, 1000])
def test_random_wants(kernels, precision, V):
    """Other wants on each table and in each precision."""
    which = turn(kernels, PRECISIONS.index(precision))
    rng, near, numbers = np.random.default_rng([V, which]), 0, 0
    vocabulary = Vocabulary(kernels, precision, 130, V, 20, scale=0.2)
    right = vocabulary.best(1)[2]
    for M, threads in ((1, 1), ((16, 2), (63, 3), (130, 4))[which % 3]):
        wants = [random_want(rng, V) for _ in range(M)]
        found, some = check(vocabulary, wants, vocabulary.logits[:M], rows=slice(M), threads=threads)
        assert np.array_equal(found.log_sum_exp, right[:M]), "changes do not reach log_sum_exp"
        near, numbers = near + some, numbers + sum(len(want.numbers) for want in wants)
    assert near <= max(1, 0.02 * numbers)


@pytest.mark.parametrize("V", [49_152, 151_936])
def test_large_vocabularies(V):
    kernels, rng = load(available()[-2]), np.random.default_rng(V)
    vocabulary = Vocabulary(kernels, "float32", 12, V, 6)
    wants = [random_want(rng, V) for _ in range(9)]
    wants += [Want(draw=Draw(temperature, 0, top_p), numbers=(0.1, 0.5, 0.99))
              for temperature, top_p in ((1, 0.95), (0.5, 0.999), (30, 0.9))]     # the last one keeps nearly all words
    for threads in (1, 2):
        check(vocabulary, wants, vocabulary.logits, threads=threads)
    wants = [Want(draw=Draw(top_p=0.95, min_p=0.02), numbers=(0.4,))] * 12
    check(vocabulary, wants, vocabulary.logits)


def special(V, kind):
    """Return logits [V] with equal numbers, -inf or NaN."""
    rng = np.random.default_rng(V)
    b = rng.integers(-3, 3, V).astype(np.float32)
    if kind == "-inf":
        b[rng.random(V) < 0.7] = -np.inf
        b[-1] = 0
    if kind == "all -inf":
        b[:] = -np.inf
    if kind == "NaN":
        b[V // 2] = np.nan
    if kind == "all NaN":
        b[:] = np.nan
    if kind == "zeros":
        b = np.where(rng.random(V) < 0.5, np.float32(0), np.float32(-0.0))
    return b


KINDS = ("equal", "-inf", "all -inf", "NaN", "all NaN", "zeros")


@pytest.mark.parametrize("kind", KINDS)
def test_special_logits(kernels, kind):
    for i, V in enumerate((7, 128, 300)):
        which = turn(kernels, KINDS.index(kind), i)
        rng, b = np.random.default_rng([V, which]), special(V, kind)
        vocabulary = Vocabulary(kernels, "float32", 40, V, 4, bias=b)
        wants = [random_want(rng, V) for _ in range(40)]
        found, _ = check(vocabulary, wants, np.tile(b, (40, 1)), threads=1 + which % 2)
        assert np.isfinite(found.log_sum_exp).all() == (kind in ("equal", "-inf", "zeros"))


@pytest.mark.parametrize("count", [0, 1, 127, 300])
def test_allowed_words(kernels, count):
    V, rng = 300, np.random.default_rng(count)
    vocabulary = Vocabulary(kernels, "float32", 6, V, 20, scale=0.3)
    changes = Changes(allowed=random_set(rng, V, count))
    for draw in (Draw(), Draw(top_k=200), Draw(top_p=0.9), Draw(0.6, min_p=0.1)):
        numbers = (0.0, 0.3, 1 - 2**-53)
        wants = [Want(best, draw=draw, numbers=numbers, changes=changes) for best in (1, 2, 5, 127, 128, 300)]
        found, _ = check(vocabulary, wants, vocabulary.logits, threads=2)
        assert (found.drawn.ids == -1).all() == (count == 0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_line_has_the_same_bits_in_any_company(kernels, precision):
    V, M, rng = 700, 70, np.random.default_rng(7)
    vocabulary = Vocabulary(kernels, precision, M, V, 30, scale=0.2)
    wants = [random_want(rng, V) for _ in range(M)]
    alone = [next(parts_of(vocabulary, [want], vocabulary.choose([want], rows=slice(i, i + 1))[1]))
             for i, want in enumerate(wants)]
    for threads in (1, 2, 3, 4, 7):
        rows = np.sort(rng.choice(M, 50, replace=False))
        written = int(rng.choice([0, 3]))
        some = [wants[row] for row in rows[written:]]
        found = vocabulary.choose(some, written, rows=rows, threads=threads)[1]
        for row, own in zip(rows[written:], parts_of(vocabulary, some, found), strict=True):
            for array, right in zip(own, alone[row], strict=True):
                assert np.array_equal(array, right)


def test_too_many_likely_words_for_a_thread(kernels):
    """The whole product is computed once more for such a row, with the same words."""
    V = 2000
    b = np.linspace(0, 0.5, V).astype(np.float32)
    vocabulary = Vocabulary(kernels, "float32", 3, V, 4, bias=b)
    numbers = tuple(np.linspace(0.01, 0.99, 40))
    wants = [Want(draw=Draw(top_p=top_p), numbers=numbers) for top_p in (0.5, 0.9, 0.9999)]
    for threads in (1, 2, 4):
        found, near = check(vocabulary, wants, np.tile(b, (3, 1)), threads=threads)
        assert near <= 6
        assert len(set(found.drawn.ids.tolist())) > 30


def test_draws_reach_every_word_that_is_kept(kernels):
    """Also where threads stop to collect words at different logits, above the last one that is kept."""
    rng = np.random.default_rng(13)
    for V in (90, 570, 3000):
        b = rng.standard_normal(V).astype(np.float32)
        vocabulary = Vocabulary(kernels, "float32", 3, V, 4, bias=b)
        for draw in (Draw(1.5, top_p=0.3), Draw(1.5, top_p=0.95), Draw(0.5, top_p=0.5), Draw(2, top_p=0.7, min_p=0.1)):
            right, y = keep_words(b.astype(np.float64), draw)
            sums = np.cumsum(exp(y - y.max()))
            numbers = tuple((sums - np.diff(sums, prepend=0) / 2) / sums[-1])       # amid the share of each word
            for threads in (1, 2, 4):
                found = vocabulary.choose([Want(draw=draw, numbers=numbers)] * 3, threads=threads)[1]
                for ids in found.drawn.ids.reshape(3, -1):
                    assert np.array_equal(ids, right)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_wants(data, name):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    M, V, D = (data.draw(st.integers(1, most)) for most in (70, 900, 40))
    vocabulary = Vocabulary(load(name), data.draw(st.sampled_from(PRECISIONS)), M, V, D, 0.3)
    check(vocabulary, [random_want(rng, V) for _ in range(M)], vocabulary.logits, threads=data.draw(st.integers(1, 4)))


def test_results_of_other_sizes_are_refused():
    vocabulary = Vocabulary(load("baseline"), "float32", 4, 30, 16)
    wants = [Want(2, np.array([1, 2]), Draw(), (0.5,), likely=3)] * 4
    sizes = (4, 8, 8, 8, 12, 12, 12, 8, 4, 4, 4)
    for i in range(11):
        chosen = [np.empty(n + (i == j), np.int32 if j in (1, 4, 8) else np.float32) for j, n in enumerate(sizes)]
        with pytest.raises(ValueError, match="need arrays of that size"):
            vocabulary.run([], wanted=vocabulary.wanted(wants), chosen=chosen)


def test_lists_that_are_full_leave_those_of_other_rows_alone(kernels):
    """A list of words is cut when it has no more room; the next one begins right behind it."""
    V = 1534    # of the first row, 127 words of the first part are collected, then 128 of each: 1,023 where 1,023 fit
    rare = np.setdiff1d(np.arange(V), [5])
    wants = [Want(draw=Draw(top_p=0.999999), numbers=(0.5,), changes=Changes(allowed=IdSet.of(rare, V))), Want(best=20)]
    _, found = Vocabulary(kernels, "float32", 2, V, 4, bias=np.full(V, -3, np.float32)).choose(wants)
    assert found.best.ids.tolist() == [*range(20)]
    assert (found.best.values == -3).all()
