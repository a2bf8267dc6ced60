"""Test how words are chosen in NumPy against other ways to compute the formulas, and what a row may not want."""

from dataclasses import replace

import numpy as np
import pytest

from engine.backends.choice import best_of, change_logits, choose, drawn_of, keep_words
from engine.backends.step_checks import check_scored
from engine.backends.steps import Chosen, Row, Scores
from engine.backends.wants import ALL, Addends, Changes, Draw, IdSet, LineWants, Want
from engine.base.errors import InputError


def random_logits(rng, V, kind):
    """Return logits [V]; kind: "normal", or with equal numbers, or with -inf."""
    x = rng.standard_normal(V).astype(np.float32) * 3
    if kind == "equal":
        x = np.round(x)
    if kind == "-inf":
        x[rng.random(V) < 0.4] = -np.inf
        x[rng.integers(V)] = 1
    return x


def random_changes(rng, V):
    """Return changes, some of which may be None."""
    ids = [np.flatnonzero(rng.random(V) < share) for share in (0.1, 0.3, 0.5)]
    seen, allowed = IdSet.of(ids[0], V), IdSet.of(ids[2], V)
    addends = Addends(ids[1], rng.standard_normal(len(ids[1])))
    keeps = rng.random(3) < 0.6
    return Changes(seen if keeps[0] else None, float(rng.choice([0.5, 1.1, 2])), addends if keeps[1] else None,
                   allowed if keeps[2] else None)


@pytest.mark.parametrize("V", [1, 31, 32, 33, 200])
def test_a_set_of_ids_has_a_bit_for_each(V):
    rng = np.random.default_rng(V)
    mask = rng.random(V) < 0.5
    ids = IdSet.of(np.flatnonzero(mask), V)
    assert np.array_equal(ids.mask(), mask)
    assert np.array_equal(ids.complement().mask(), ~mask)
    for i in range(0, V, 7):
        assert bool(ids.words[i // 32] >> np.uint32(i % 32) & 1) == mask[i]
        one = ids.copy()
        one.add(i)
        assert np.array_equal(np.flatnonzero(one.mask() != mask), [] if mask[i] else [i])
        one.discard(i)
        assert np.array_equal(np.flatnonzero(one.mask() != mask), [i] if mask[i] else [])
    assert np.array_equal(ids.mask(), mask), "a copy has bits of its own"
    assert ids.address == ids.words.ctypes.data


@pytest.mark.parametrize("kind", ["normal", "equal", "-inf"])
def test_changes_word_by_word(kind):
    rng = np.random.default_rng(0)
    for V in (1, 7, 90):
        for _ in range(20):
            x, changes = random_logits(rng, V, kind), random_changes(rng, V)
            addends = changes.addends or Addends([], [])
            added = dict(zip(addends.ids.tolist(), addends.values, strict=True))
            right = []
            for i, s in enumerate(x):
                if changes.seen is not None and changes.seen.mask()[i]:
                    s = s * np.float32(changes.penalty) if s < 0 else s / np.float32(changes.penalty)
                s = s + added.get(i, np.float32(0))
                right.append(-np.inf if changes.allowed is not None and not changes.allowed.mask()[i] else s)
            before = x.copy()
            assert np.array_equal(change_logits(x, changes), np.array(right, np.float32))
            assert np.array_equal(x, before)


@pytest.mark.parametrize("kind", ["normal", "equal", "-inf"])
def test_the_best_come_in_order(kind):
    rng = np.random.default_rng(1)
    for V in (1, 7, 90):
        x = random_logits(rng, V, kind)
        order = sorted(range(V), key=lambda i: (-x[i], i))
        for k in {1, V // 2, V} - {0}:
            assert best_of(x, k).tolist() == order[:k]
    x = np.array([1, np.nan, 3, -np.inf], np.float32)
    assert best_of(x, 1).tolist() == [2]
    assert best_of(x, 4).tolist() == [2, 0, 3, -1]
    assert best_of(np.full(2, np.nan, np.float32), 1).tolist() == [-1]


def kept_slowly(s, draw):
    """Return which words a draw keeps, with Python's numbers and loops."""
    order = sorted((i for i in range(len(s)) if s[i] > -np.inf), key=lambda i: (-s[i], i))[: draw.top_k or None]
    y = {i: float(s[i]) / draw.temperature for i in order}
    w = {i: np.exp(y[i] - y[order[0]]) for i in order}
    before, stays = 0.0, []
    for i in order:
        if (draw.top_p == 1 or not stays or before < draw.top_p * sum(w.values())) and w[i] >= draw.min_p * (1 - 1e-12):
            stays.append(i)
        before += w[i]
    return sorted(stays), w


@pytest.mark.parametrize("kind", ["normal", "equal", "-inf"])
def test_draws_in_float64(kind):
    rng = np.random.default_rng(2)
    for V in (1, 7, 90):
        for _ in range(40):
            s = random_logits(rng, V, kind).astype(np.float64)
            draw = Draw(*(rng.choice(values).item() for values in ([0.5, 1, 2], [0, 1, 5, V], [0, 0.3, 0.9, 1],
                                                                   [0, 0.07, 1])))
            stays, w = kept_slowly(s, draw)
            assert keep_words(s, draw)[0].tolist() == stays, draw
            numbers = tuple(rng.random(5))
            for u, id in zip(numbers, drawn_of(s, draw, numbers), strict=True):
                total, passed = sum(w[i] for i in stays), 0.0
                for i in stays:
                    passed += w[i]
                    if passed > u * total:
                        break
                assert id == i


def test_a_draw_is_the_inverse_of_the_cumulative_probability():
    with np.errstate(divide="ignore"):
        s = np.log(np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0], np.float32))
    numbers = (0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.99, np.nextafter(1.0, 0.0))
    assert drawn_of(s, Draw(), numbers).tolist() == [1, 1, 3, 3, 4, 4, 4]


def test_a_draw_never_takes_a_removed_word():
    rng = np.random.default_rng(4)
    for V in (1, 30, 400):
        s = random_logits(rng, V, "-inf") * 20
        assert (s[drawn_of(s, Draw(), (0.0, 0.5, np.nextafter(1.0, 0.0)))] > -np.inf).all()


def test_top_p_keeps_the_lowest_ids_among_equals():
    for top_p, first, second in ((0.0, [1], [0]), (0.2, [1], [0, 1]), (0.5, [1, 3, 5], [0, 1, 2]),
                                 (0.75, [0, 1, 3, 5], [0, 1, 2, 3, 4]), (0.99, [*range(6)], [*range(6)])):  # fmt: skip
        for s, right in (([1, 2, 1, 2, 1, 2], first), ([0] * 6, second)):
            assert keep_words(np.array(s, np.float32), Draw(top_p=top_p))[0].tolist() == right, top_p


def test_nothing_is_drawn_from_nothing():
    for s in (np.full(5, -np.inf, np.float32), np.array([1, np.nan, 2], np.float32)):
        assert drawn_of(s, Draw(), (0.0, 0.5)).tolist() == [-1, -1]
    found = choose(np.zeros((1, 5), np.float32), [Want(best=2, draw=Draw(), numbers=(0.5,),
                                                       changes=Changes(allowed=IdSet(5)))])
    assert found.drawn.values.tolist() == found.drawn.own.tolist() == [-np.inf]
    assert found.best.ids.tolist() == [0, 1]
    assert found.best.values.tolist() == [-np.inf, -np.inf]
    assert found.best.own.tolist() == [0, 0]
    assert np.allclose(found.log_sum_exp, np.log(5))


def test_scores_are_those_of_the_model():
    """Changes do not reach log_sum_exp, the logits of ids, or the own logits of words."""
    rng = np.random.default_rng(3)
    x = random_logits(rng, 60, "normal")[None]
    ids = np.array([3, 3, 59])
    for _ in range(20):
        changes = random_changes(rng, 60)
        found = choose(x, [Want(best=4, ids=ids, draw=Draw(), numbers=(0.2, 0.9), changes=changes)])
        assert found.log_sum_exp == choose(x, [Want(best=1)]).log_sum_exp
        assert np.array_equal(found.given, x[0, ids])
        for words in (found.best, found.drawn):
            assert np.array_equal(words.own, x[0, words.ids])
            assert np.array_equal(words.values, change_logits(x[0], changes)[words.ids])
    exact = np.log(np.exp(x[0].astype(np.float64)).sum())
    assert np.allclose(found.log_sum_exp, exact, rtol=1e-6)


ROWS = [Row(0, None, np.arange(3), 3), Row(1, None, np.arange(2), 2, (Want(best=3),)),
        Row(2, None, np.arange(4), 0), Row(3, None, np.arange(4), 2, (Want(ids=np.arange(2)), Want(best=1))),
        Row(4, None, np.arange(4), 0, (Want(best=9),)),
        Row(5, None, np.arange(1), 1, (Want(draw=Draw(), numbers=(0.1, 0.9)),))]


def scores_of_rows(rows):
    """Return scores of rows in which each number says which row it belongs to."""
    lines = np.concatenate([np.full((row.scored, 10), row.request, np.float32) for row in rows])
    wants = LineWants.of(rows, 10).wants
    wants_all = np.repeat([row.wants_logits for row in rows], [row.scored for row in rows])
    requests = np.array([row.request for row in rows])
    return Scores(requests, requests != 2, lines[wants_all], choose(lines[~wants_all], wants))


def assert_equal(found, right):
    assert np.array_equal(found.hypotheses, right.hypotheses)
    assert np.array_equal(found.finite, right.finite)
    assert np.array_equal(found.logits, right.logits)
    for name in Chosen.__dataclass_fields__:
        own, other = getattr(found.chosen, name), getattr(right.chosen, name)
        for field in ("ids", "values", "own") if name in ("best", "likely", "drawn") else (None,):
            assert np.array_equal(getattr(own, field) if field else own, getattr(other, field) if field else other)


def test_scores_are_split_by_rows():
    scores = scores_of_rows(ROWS)
    for parts in ([ROWS], [[row] for row in ROWS], [ROWS[:2], [], ROWS[2:]]):
        for part, found in zip(parts, scores.split(parts), strict=True):
            if part:
                assert_equal(found, scores_of_rows(part))
    for stays in ([True] * 6, [False, True] * 3, [True, False, False, True, False, True]):
        assert_equal(scores.of(ROWS, stays), scores_of_rows([row for row, own in zip(ROWS, stays, strict=True) if own]))


def test_arrays_of_wants():
    sets, addends = [IdSet.of([1], 10), IdSet.of([2, 3], 10)], Addends([4, 9], [0.5, -1])
    rows = [*ROWS, Row(6, None, np.arange(1), 1, (Want(best=2, changes=Changes(*sets[:1], 1.5, addends, sets[1])),)),
            Row(7, None, np.arange(1), 1, (Want(draw=Draw(0.5, 3, 0.9, 0.25), numbers=(0.0,)),))]
    wanted = LineWants.of(rows, 10)
    assert wanted.count == 7
    assert wanted.best_at.tolist() == [0, 3, 6, 6, 7, 7, 9, 9]
    assert wanted.given_at.tolist() == [0, 0, 0, 2, 2, 2, 2, 2]
    assert wanted.given_ids.tolist() == [0, 1]
    assert wanted.drawn_at.tolist() == [0, 0, 0, 0, 0, 2, 2, 3]
    assert wanted.numbers.tolist() == [0.1, 0.9, 0.0]
    assert [column[-1] for column in wanted.draws] == [0.5, 3, 0.9, np.float32(np.log(0.25))]
    assert [column[0] for column in wanted.draws] == [1, 0, 1, -np.inf]
    assert [column[5] for column in wanted.changes] == [sets[0].address, 1.5, 2, *addends.addresses, sets[1].address]
    assert [column[6] for column in wanted.changes] == [0, 1, 0, 0, 0, 0]
    assert LineWants.of(ROWS[:2], 10).draws is LineWants.of(ROWS, 10).changes is None


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Draw(temperature=1e-7), "temperature of a draw must be a finite number, at least 1e-06, not 1e-07"),
    (lambda: Draw(temperature=np.nan), "temperature of a draw must be a finite number"),
    (lambda: Draw(temperature=np.inf), "temperature of a draw must be a finite number"),
    (lambda: Draw(top_k=-1), "top_k must be at least 0"),
    (lambda: Draw(top_p=np.nan), "top_p and min_p must be from 0 to 1"),
    (lambda: Draw(min_p=1.5), "top_p and min_p must be from 0 to 1"),
    (lambda: Changes(penalty=0.0), "penalty must be a finite number above 0"),
    (lambda: Changes(penalty=np.nan), "penalty must be a finite number above 0"),
    (lambda: Addends([1, 2], [1]), "one id for each number"),
    (lambda: Addends([2, 2], [1, 1]), "ascend"),
    (lambda: Addends([-1, 2], [1, 1]), "at least 0"),
    (lambda: Addends([1, 2], [1, np.inf]), "addends must be finite numbers"),
])  # fmt: skip
def test_wrong_changes_and_draws_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(("want", "message"), [
    (Want(best=11), "best must be from 1 to 10, the size of the vocabulary, not 11"),
    (Want(best=-1), "best must be from 1 to 10"),
    (Want(), "a line wants the best words, likely words, ids or draws"),
    (Want(ids=np.array([10])), "ids whose logits are wanted must be from 0 to 9, not"),
    (Want(ids=np.array([-1])), "ids whose logits are wanted must be from 0 to 9, not"),
    (Want(draw=Draw(), numbers=(1.0,)), "numbers of a draw must be at least 0 and below 1"),
    (Want(draw=Draw(), numbers=(np.nan,)), "numbers of a draw must be at least 0 and below 1"),
    (Want(draw=Draw()), "and numbers exactly if it draws"),
    (Want(best=1, numbers=(0.5,)), "and numbers exactly if it draws"),
    (Want(best=1, changes=Changes(seen=IdSet(9))), "a set of ids must be one of a vocabulary of 10 words, not of 9"),
    (Want(best=1, changes=Changes(allowed=IdSet(11))), "must be one of a vocabulary of 10 words, not of 11"),
    (Want(best=1, changes=Changes(addends=Addends([10], [1]))), "the ids of addends must be below 10, not 10"),
])  # fmt: skip
def test_what_no_vocabulary_of_this_size_has_is_refused(want, message):
    with pytest.raises(InputError, match=message):
        LineWants.of([ROWS[1], replace(ROWS[1], wants=(want,))], 10)


def test_a_row_has_a_want_for_each_token_or_for_all():
    check_scored(ROWS)
    for row in (replace(ROWS[0], scored=4), replace(ROWS[0], scored=-1), replace(ROWS[0], wants=ALL * 2),
                replace(ROWS[1], wants=(*ALL, Want(best=1)))):
        with pytest.raises(InputError, match="a row of"):
            check_scored([row])
