"""Words that kernels choose while they multiply by the vocabulary, against the formulas in NumPy.

    ENGINE_CHOICES=300 python -m pytest tests/backends/cpu/test_choice.py
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from engine.backends import get_backend
from engine.backends.choice import change_logits, choose, drawn_of
from engine.backends.cpu.decoder import CpuDecoder
from engine.backends.cython_cpu import isa
from engine.backends.steps import Row
from engine.backends.wants import ALL, Addends, Changes, Draw, IdSet, Want
from engine.model.run_config import RunConfig

from ...tools.decoders import DECODERS, make_weights
from ...tools.plans import EVERY_PRODUCT

COUNT = int(os.environ.get("ENGINE_CHOICES", "4"))
"""How many steps to draw for each product; each product has others."""
VOCABULARIES = (7, 127, 128, 129, 1500, 49152, 151936)
RANDOM = [*EVERY_PRODUCT, ("numba", "float32")]
ROUNDING = 1e-5
"""Numbers that are nearer to a border than this may draw the word beside it."""


@cache
def decoder_of(V, name, precision, threads):
    """Return a decoder with words of equal logits, with others that never come, and with a word 3 that spoils a row."""
    config = replace(DECODERS["Llama"], num_layers=1, vocab_size=V, logits="own", logits_bias=True)
    weights = make_weights(config, words={3: np.nan})
    table, bias = weights["logits.weight"].copy(), weights["logits.bias"].copy()
    table[V // 2 :: 3], bias[V // 2 :: 3] = table[V // 2], bias[V // 2]
    bias[V // 3 :: 5] = -np.inf
    weights |= {"logits.weight": table * np.float32(3), "logits.bias": bias}
    run = RunConfig(threads, precision, 2048)
    if name == "numba":
        return get_backend("numba").prepare_decoder(config, weights, run)
    return CpuDecoder(isa.load(name), config, weights, run)


def some_ids(rng, V):
    """Return no id, one, 127, half of them or all: ascending."""
    return np.sort(rng.permutation(V)[: rng.choice([0, 1, min(V, 127), V // 2, V])])


def random_want(rng, V):
    if rng.random() < 0.1:
        return Want(logits=True)
    changes = None
    if rng.random() < 0.7:
        ids, keeps = some_ids(rng, V), rng.random(3) < 0.6
        changes = Changes(IdSet.of(some_ids(rng, V), V) if keeps[0] else None, rng.choice([0.5, 1.05, 1.3]).item(),
                          Addends(ids, rng.standard_normal(len(ids)) * 3) if keeps[1] else None,
                          IdSet.of(some_ids(rng, V), V) if keeps[2] else None)
    draw = Draw(*(rng.choice(values).item() for values in ([0.3, 1.0, 4.0], [0, 1, 20, 128, V], [0.0, 0.5, 0.95, 1.0],
                                                           [0.0, 0.1]))) if rng.random() < 0.6 else None
    if draw is not None and rng.random() < 0.4:
        draw = Draw(draw.temperature)       # from all words
    best = rng.choice([0, 1, 2, 20, 128]).item() if draw is not None else rng.choice([1, 2, 20, 128]).item()
    return Want(best=min(best, V), ids=rng.integers(0, V, rng.integers(1, 5)) if rng.random() < 0.3 else None,
                draw=draw, numbers=tuple(rng.random(rng.integers(1, 4)).tolist()) if draw else (), changes=changes)


def random_rows(rng, decoder, count):
    """Return rows of one token each; some have more, and wants for each or for all of them."""
    rows, V = [], decoder.vocab_size
    for _ in range(count):
        n = rng.choice([1, 1, 1, 3])
        wants = [random_want(rng, V) for _ in range(n)]
        if n > 1 and any(want.logits for want in wants):
            wants = ALL
        tokens = rng.integers(0, V, n + 1)
        if rng.random() < 0.95:
            tokens[tokens == 3] = 4
        rows.append(Row(decoder.open(), None, tokens, n, tuple(wants)))
    return rows


def close(decoder, rows):
    for row in rows:
        decoder.close(row.request)


def certain_draws(x, want):
    """Return the ids that the numbers of a want draw from logits x, or -2 where a number is too near to a border."""
    s, draw, found = change_logits(x, want.changes).astype(np.float64), want.draw, []
    near = {replace(draw, top_p=draw.top_p if draw.top_p in (0, 1) else draw.top_p + part,
                    min_p=draw.min_p * (1 + part)) for part in (-ROUNDING, 0, ROUNDING)}
    for moved in (-ROUNDING, 0, ROUNDING):
        numbers = np.clip(np.array(want.numbers) + moved, 0, 1 - 1e-15)
        found += [drawn_of(s, own, numbers) for own in near]
    return np.where((np.array(found) == found[0]).all(axis=0), found[0], -2)


def check(decoder, rows):
    """Check the scores of a step against the logits of its rows; return how many draws were compared."""
    whole_rows = [replace(row, wants=ALL) for row in rows]
    each, all_each = (decoder.step(some).split([[row] for row in some]) for some in (rows, whole_rows))
    compared = 0
    for row, found, all_scores in zip(rows, each, all_each, strict=True):
        whole = all_scores.logits
        assert found.finite == all_scores.finite
        if row.wants_logits:
            assert np.array_equal(found.logits, whole, equal_nan=True)
            continue
        if not found.finite:
            continue
        right, at = choose(whole, row.lines), 0
        np.testing.assert_allclose(found.chosen.log_sum_exp, right.log_sum_exp, rtol=2e-6, atol=2e-6)
        assert np.array_equal(found.chosen.given, right.given)
        for field in ("ids", "values", "own"):
            assert np.array_equal(getattr(found.chosen.best, field), getattr(right.best, field))
        for x, want in zip(whole, row.lines, strict=True):
            if want.draw is None:
                continue
            drawn, at = found.chosen.drawn[at : at + len(want.numbers)], at + len(want.numbers)
            certain = certain_draws(x, want)
            sure = certain != -2
            assert np.array_equal(drawn.ids[sure], certain[sure]), want.draw
            there = drawn.ids >= 0
            assert np.array_equal(drawn.own[there], x[drawn.ids[there]])
            assert np.array_equal(drawn.values[there], change_logits(x, want.changes)[drawn.ids[there]])
            assert (drawn.values[~there] == -np.inf).all()
            compared += sure.sum()
    return compared


@pytest.mark.parametrize(("name", "precision"), RANDOM)
def test_random_wants(name, precision):
    rng = np.random.default_rng([7, RANDOM.index((name, precision))])
    compared = 0
    for i in range(COUNT):
        threads = int(rng.integers(1, 5))
        large = COUNT > 100 or (i, precision) == (0, "float32")
        V = VOCABULARIES[i % len(VOCABULARIES)] if large else rng.choice(VOCABULARIES[:5]).item()
        decoder = decoder_of(V, name, precision, threads)
        rows = random_rows(rng, decoder, rng.choice([1, 2, 9, 40]) if V < 49152 else rng.choice([1, 5]))
        compared += check(decoder, rows)
        close(decoder, rows)
    assert compared > COUNT


@pytest.mark.parametrize(("name", "precision"), [("baseline", "float32"), EVERY_PRODUCT[-1], ("numba", "float32")])
def test_a_row_has_the_same_bits_in_any_company(name, precision):
    rng = np.random.default_rng(8)
    decoders = [decoder_of(1500, name, precision, threads) for threads in (1, 3)]
    rows = [random_rows(rng, decoder, 30) for decoder in decoders]
    rows[1] = [replace(row, request=other.request) for row, other in zip(rows[0], rows[1], strict=True)]
    alone = [decoders[0].step([row]) for row in rows[0]]
    for _ in range(24 + 3 * COUNT):
        which = int(rng.integers(2))
        members = rng.permutation(30)[: rng.integers(1, 31)]
        some = [rows[which][i] for i in members]
        scores = decoders[which].step(some)
        for i, found in zip(members, scores.split([[row] for row in some]), strict=True):
            assert np.array_equal(found.logits, alone[i].logits, equal_nan=True)
            assert np.array_equal(found.chosen.log_sum_exp, alone[i].chosen.log_sum_exp, equal_nan=True)
            if found.finite:
                assert np.array_equal(found.chosen.given, alone[i].chosen.given)
                for kind in ("best", "drawn"):
                    for field in ("ids", "values", "own"):
                        assert np.array_equal(getattr(getattr(found.chosen, kind), field),
                                              getattr(getattr(alone[i].chosen, kind), field))
    for decoder, own in zip(decoders, rows, strict=True):
        close(decoder, own)
