"""Compiled decoders: against the reference, and the same bits in any batch, for any threads, with and without cache."""

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engine import InputError, Transformer
from engine.backends.reference import ReferenceBackend
from engine.backends.steps import Row
from engine.backends.wants import ALL
from engine.model.precision import CACHED, LOADABLE
from engine.model.run_config import RunConfig
from engine.weights.quantize import widen

from ...tools.decoders import DECODERS, best_of, make_weights, open_requests, row
from ...tools.encoders import convert_encoder
from ...tools.plans import EVERY_PRODUCT, precisions_of, sets_of_models

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
decoder_module = pytest.importorskip("engine.backends.cpu.decoder")
cache_module = pytest.importorskip("engine.backends.cpu.cache")

BATCHES = int(os.environ.get("ENGINE_RANDOM_BATCHES", "200"))
"""How many random batches must leave nothing behind."""


def compiled(config, weights, threads=1, precision="float32", name=None, max_tokens=2048):
    kernels = isa.load(name) if name else isa.chosen()
    return decoder_module.CpuDecoder(kernels, config, weights, RunConfig(threads, precision, max_tokens))


@pytest.fixture(params=DECODERS)
def config(request):
    return DECODERS[request.param]


def whole(decoder, config, tokens, source=7, seed=0):
    """Return the logits after each token, computed at once."""
    request, = open_requests(decoder, config, [source], seed)
    logits = decoder.step([row(request, None, tokens, every=True)]).logits
    decoder.close(request)
    return logits


def test_float32_against_float64(config):
    weights = make_weights(config)
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, 70)
    exact = ReferenceBackend(np.float64).prepare_decoder(config, weights, RunConfig())
    naive = ReferenceBackend(np.float32).prepare_decoder(config, weights, RunConfig())
    right, plain = whole(exact, config, tokens), whole(naive, config, tokens)
    for name in isa.available():
        out = whole(compiled(config, weights, 2, name=name), config, tokens)
        assert np.abs(out - right).max() <= 10 * np.abs(plain - right).max() + 1e-6 * np.abs(right).max(), name


@pytest.mark.parametrize(("name", "precision"), EVERY_PRODUCT)
def test_the_cache_changes_no_bit(name, precision):
    """Every second model token by token, and in parts on 2 or on 3 threads, by turns.

    So each table has each model, and each precision does. Kernels that the engine does not choose here have single
    tokens where a cell of the cache begins and ends. Emulated tiles take long, and have few tokens of the deep model.
    """
    for i, (model, config) in enumerate(DECODERS.items()):
        tokens, alone, more = 75, (1, 2, 3, 15, 16, 17, 40, 63, 64, 65), ((2, (40, 41, 73)), (3, (1, 74)))
        if name == isa.chosen().isa:
            alone = range(1, 75)
        if name == "amxemulated" and model == "deep":
            tokens, alone, more = 20, (1, 2, 3, 15, 16, 17), ((2, (16, 17)), (3, (1, 19)))
        turn = i + sets_of_models().index(name) + LOADABLE.index(precision)
        if turn % 2:
            check_cuts(config, name, precision, tokens, (1, alone), more[turn // 2 % 2])


def check_cuts(config, name, precision, count, *ways):
    weights = make_weights(config)
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, count)
    alone = compiled(config, weights, 1, precision, name)
    expected = whole(alone, config, tokens)
    for threads, cuts in ways:
        decoder = alone if threads == 1 else compiled(config, weights, threads, precision, name)
        request, = open_requests(decoder, config, [7])
        parent, parts = None, []
        for first, last in pairwise([0, *cuts, count]):
            scores = decoder.step([row(request, parent, tokens[first:last], every=True)])
            parent = int(scores.hypotheses[0])
            parts.append(scores.logits)
        assert np.array_equal(np.concatenate(parts), expected), f"{config}: {threads} threads, cuts at {cuts}"


def test_parts_of_many_prompts_have_the_bits_of_one():
    """Parts of 64 tokens behind 1,024 others.

    The first ones are divided by ranges of keys, and those whose sums have no more room (2**21 floats, 22 of these) by
    blocks of rows.
    """
    config = replace(DECODERS["Llama"], num_layers=1, num_heads=16, num_kv_heads=2, head_width=16, max_positions=2048)
    weights, tokens = make_weights(config), np.random.default_rng(1).integers(0, config.vocab_size, 1024 + 64)
    expected = whole(compiled(config, weights), config, tokens)[-1]
    decoder = compiled(config, weights, 2)
    requests = open_requests(decoder, config, [7] * 26)
    parents = [int(decoder.step([row(request, None, tokens[:1024])]).hypotheses[0]) for request in requests]
    for _ in range(2):      # the second step finds the counts of finished ranges as the first one leaves them
        scores = decoder.step([row(*each, tokens[1024:]) for each in zip(requests, parents, strict=True)])
        assert (scores.logits == expected).all()


def by_turns(config, precision, *choices):
    """Return one of the choices: another one for the next precision, and for the next decoder."""
    return choices[(list(DECODERS.values()).index(config) + LOADABLE.index(precision)) % len(choices)]


@pytest.mark.parametrize(("model", "precision"), [
    (model, precision) for i, model in enumerate(DECODERS) for j, precision in enumerate(precisions_of())
    if (i + j) % 2 == 0])
def test_bits_depend_on_the_path_alone(model, precision):
    """Requests of many lengths, branches, prompts and single tokens in one step: as each path alone."""
    config = DECODERS[model]
    weights, rng = make_weights(config), np.random.default_rng(3)
    alone = compiled(config, weights, 1, precision)
    lengths = (5, 1, 30, 17)
    for threads in by_turns(config, precision, (1, 4), (1, 4), (2,), (2,)):
        decoder = compiled(config, weights, threads, precision)
        requests = open_requests(decoder, config, lengths)
        others = open_requests(alone, config, lengths)
        paths = {}
        for step in range(6):
            rows = []
            for i in range(len(requests)):
                if step == 0 or (i == 3 and step in (3, 5)):      # prompts arrive later, too
                    rows.append((i, None, rng.integers(0, 50, (3, 1, 40, 66)[i])))
                else:
                    parents = [h for h, (r, _) in paths.items() if r == i]
                    rows += [(i, parent, rng.integers(0, 50, rng.choice([1, 1, 1, 4])))
                             for parent in rng.choice(parents, 3)]
            rng.shuffle(rows)
            scores = decoder.step([row(requests[i], parent, tokens) for i, parent, tokens in rows])
            made = {}
            for (i, parent, tokens), number, logits in zip(rows, scores.hypotheses.tolist(), scores.logits,
                                                           strict=True):
                made[number] = i, np.concatenate([*([paths[parent][1]] if parent is not None else []), tokens])
                expected = alone.step([row(others[i], None, made[number][1])]).logits[0]
                assert np.array_equal(logits, expected), f"{threads} threads, step {step}"
            kept = [parent for _, parent, _ in rows if parent is not None][:1]
            decoder.release([h for h in paths if h not in kept])
            paths = {h: paths[h] for h in kept} | made


@pytest.mark.parametrize("precision", precisions_of())
def test_long_continuations_of_several_hypotheses(config, precision):
    """Chunks of many tokens after pasts of many lengths, two of them of one request, in one step and twice over."""
    weights, rng = make_weights(config), np.random.default_rng(5)
    alone = compiled(config, weights, 1, precision)
    for threads in by_turns(config, precision, (1, 3), (2,)):
        decoder = compiled(config, weights, threads, precision, max_tokens=100)
        requests = open_requests(decoder, config, (9, 4))
        others = open_requests(alone, config, (9, 4))
        for past in ((20, 1), (1, 33)):     # the second step finds what the first one gathered
            texts = [rng.integers(0, 50, n) for n in past]
            parents = decoder.step([row(r, None, text) for r, text in zip(requests, texts, strict=True)]).hypotheses
            rows = [(0, rng.integers(0, 50, 40)), (1, rng.integers(0, 50, 31)), (0, rng.integers(0, 50, 25))]
            logits = decoder.step([row(requests[i], int(parents[i]), tokens, every=True) for i, tokens in rows]).logits
            expected = [alone.step([row(others[i], None, np.concatenate([texts[i], tokens]), every=True)]).logits
                        [len(texts[i]) :] for i, tokens in rows]
            assert np.array_equal(logits, np.concatenate(expected)), f"{threads} threads, after {past}"


def test_more_rows_than_one_group_holds(config):
    weights = make_weights(config)
    decoder = compiled(config, weights, 2, max_tokens=48)
    request, = open_requests(decoder, config, [9])
    (first,) = decoder.step([row(request, None, [1, 2, 3])]).hypotheses.tolist()
    together = decoder.step([row(request, first, [t % 50]) for t in range(130)]).logits
    for t in (0, 64, 129):
        assert np.array_equal(decoder.step([row(request, first, [t % 50])]).logits[0], together[t])


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits_change_little(config, precision):
    weights = make_weights(config)
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, 40)
    exact = whole(compiled(config, weights), config, tokens)
    rounded = whole(compiled(config, weights, precision=precision), config, tokens)
    cosine = (exact * rounded).sum() / np.sqrt((exact * exact).sum() * (rounded * rounded).sum())
    assert 0.98 < cosine < 1


@pytest.mark.parametrize("name", [name for name, precision in EVERY_PRODUCT if precision == "bfloat16x3"])
def test_three_products_of_two_parts_are_far_nearer_than_bfloat16(config, name):
    """Two parts have 16 bits, where bfloat16 has 8."""
    weights, tokens = make_weights(config), np.random.default_rng(1).integers(0, config.vocab_size, 40)
    exact, near, far = (whole(compiled(config, weights, 2, precision, name), config, tokens)
                        for precision in ("float32", "bfloat16x3", "bfloat16"))
    assert 50 * np.linalg.norm(near - exact) <= np.linalg.norm(far - exact)


@pytest.mark.parametrize(("name", "precision"), EVERY_PRODUCT)
def test_the_best_logits_are_those_of_a_step(name, precision):
    config = DECODERS["T5"]
    decoder = compiled(config, make_weights(config), 3, precision, name)
    request, = open_requests(decoder, config, [5])
    rows = [row(request, None, [1, 2]), row(request, None, [3])]
    logits = decoder.step(rows).logits
    chosen = decoder.step([replace(each, wants=best_of(4)) for each in rows]).chosen
    assert np.array_equal(chosen.best.values.reshape(2, 4), -np.sort(-logits, axis=1)[:, :4])
    assert np.array_equal(chosen.best.ids.reshape(2, 4), np.argsort(-logits, axis=1, kind="stable")[:, :4])
    assert np.allclose(chosen.log_sum_exp, np.log(np.exp(logits.astype(np.float64)).sum(axis=1)), rtol=1e-6)
    for wrong in (0, 51):
        with pytest.raises(InputError, match="best must be from 1 to 50"):
            decoder.step([row(request, None, [1], best=wrong)])
    for wrong in (-1, 2):
        with pytest.raises(InputError, match="a row of 1 tokens has no scores of its last"):
            decoder.step([Row(request, None, np.array([1]), wrong)])


LEAST_COSINES = {"float32": 0.999, "bfloat16": 0.997, "int8": 0.975}
"""Least mean cosine of the logits to float32's, by the precision of the products. The worst seen were 0.99925, 0.99822
and 0.97866, the last in int8 with AVX2, whose weights keep the bound."""


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("model", ["T5", "2017"])
def test_stored_precisions_also_of_a_table_that_makes_logits(model, stored):
    config, tokens = DECODERS[model], np.arange(30)
    original = Transformer(config, make_weights(config))
    converted = convert_encoder(original, stored)
    exact = whole(compiled(config, original.weights), config, tokens)
    widened = {name: widen(converted.weights, name) for name in original.weights}
    for precision in ("int8",) if stored == "int8" else ("float32", "bfloat16", "int8"):
        found = whole(compiled(config, converted.weights, precision=precision), config, tokens)
        right = whole(compiled(config, widened, precision=precision), config, tokens)
        assert np.abs(found - right).max() <= 2e-3 * np.abs(right).max()
        cosines = (found * exact).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(exact, axis=1)
        assert cosines.mean() >= LEAST_COSINES[precision]


def prepared(name, config, weights):
    if name == "reference":
        return ReferenceBackend().prepare_decoder(config, weights, RunConfig())
    return compiled(config, weights, 2, name=name)


@pytest.mark.parametrize("name", ["reference", *isa.available()])
def test_rows_of_all_kinds_share_a_step(name):
    """Each row has the bits that it has alone, whatever the others want."""
    config = DECODERS["T5"]
    decoder, rng = prepared(name, config, make_weights(config)), np.random.default_rng(0)
    requests = open_requests(decoder, config, [5, 3, 8, 4, 6, 2])
    kinds = [(2, None), (0, None), (1, 3), (3, 7), (0, 2), (1, None)]
    rows = [Row(request, None, rng.integers(0, 50, 4), scored, best_of(best))
            for request, (scored, best) in zip(requests, kinds, strict=True)]
    for order in ([0, 1, 2, 3, 4, 5], [3, 5, 0, 2, 4, 1], [1, 4], [2, 3], [1]):
        some = [rows[i] for i in order]
        scores = decoder.step(some)
        assert scores.finite.tolist() == [True] * len(some)
        assert scores.logits.shape == (sum(each.scored for each in some if each.wants_logits), 50)
        for each, found in zip(some, scores.split([[each] for each in some]), strict=True):
            whole = decoder.step([replace(each, wants=ALL)]).logits
            assert np.array_equal(found.logits, whole[: None if each.wants_logits else 0])
            ids = np.argsort(-whole, axis=1, kind="stable")[:, : each.wants[0].best]
            assert np.array_equal(found.chosen.best.ids, ids.ravel())
            alone = decoder.step([each])
            assert np.array_equal(found.chosen.best.values, alone.chosen.best.values)
            assert np.array_equal(found.chosen.log_sum_exp, alone.chosen.log_sum_exp)


@pytest.mark.parametrize("name", ["reference", *isa.available()])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_with_nan_is_marked_and_spoils_no_other(name, value):
    config = DECODERS["2017"]
    weights = make_weights(config, words={7: value})
    for best in (None, 3):
        found = []
        for own in (weights, make_weights(config)):
            decoder = prepared(name, config, own)
            rows = [row(request, None, [1, 7 if i == 3 else 2, i % 7], best=best if i % 4 else None, every=i % 2 == 1)
                    for i, request in enumerate(open_requests(decoder, config, [5] * 8))]
            scores = decoder.step(rows)
            assert scores.finite.tolist() == [own is not weights or i != 3 for i in range(8)]
            found.append(scores.split([[each] for each in rows]))
        for i, (own, other) in enumerate(zip(*found, strict=True)):
            if i != 3:
                assert np.array_equal(own.logits, other.logits)
                assert np.array_equal(own.chosen.best.values, other.chosen.best.values)


def test_a_beam_shares_cells_and_frees_them(monkeypatch):
    """4 beams of 80 tokens that branch at each step: no cell is kept that no beam reads, none after the end."""
    monkeypatch.setattr(cache_module, "REGION_BYTES", 1)
    config = DECODERS["2017"]
    decoder = compiled(config, make_weights(config))
    for _ in range(3):
        request, = open_requests(decoder, config, [5])
        beams = decoder.step([row(request, None, [1])]).hypotheses.tolist() * 4
        for step in range(80):
            parents = [beams[(i * i + step) % 3] for i in range(4)]
            new = decoder.step([row(request, parent, [i]) for i, parent in enumerate(parents)]).hypotheses.tolist()
            decoder.release(set(beams))
            beams = new
            assert decoder.statistics().cache_tokens == 16 * decoder._cache.taken == decoder.held
            assert decoder._cache.taken <= step // 16 + 8, "each beam has at most one cell of its own here"
        grown = 16 * decoder._cache.cells
        decoder.close(request)
        assert decoder.statistics().cache_tokens == 0
        assert not decoder._sources
    assert grown <= 512, "the cache of one request serves the next one"


@pytest.mark.parametrize("cache", CACHED)
def test_forks_copy_the_cell_that_they_leave(cache):
    """Children of one parent at each place of a cell, in one step and later, against each path alone."""
    config = DECODERS["Llama"]
    weights = make_weights(config)
    decoder = decoder_module.CpuDecoder(isa.chosen(), config, weights, RunConfig(2, max_tokens=600, cache=cache))
    alone = decoder_module.CpuDecoder(isa.chosen(), config, weights, RunConfig(1, max_tokens=600, cache=cache))
    rng = np.random.default_rng(0)

    def right(tokens, count):
        request = alone.open()
        logits = alone.step([row(request, None, tokens, every=True)]).logits[-count:]
        alone.close(request)
        return logits

    for length in range(1, 34):
        request, prompt = decoder.open(), rng.integers(0, 50, length)
        (parent,) = decoder.step([row(request, None, prompt)]).hypotheses.tolist()
        news = [rng.integers(0, 50, count) for count in (1, 1, 17, 3)]
        scores = decoder.step([row(request, parent, new, every=True) for new in news])
        found = np.split(scores.logits, np.cumsum([len(new) for new in news])[:-1])
        for new, logits in zip(news, found, strict=True):
            assert np.array_equal(logits, right([*prompt, *new], len(new)))
        children = scores.hypotheses.tolist()
        decoder.release(children[:1])       # its place is free again
        late = decoder.step([row(request, parent, [7]), row(request, children[1], [8]), row(request, children[1], [9])])
        for logits, path in zip(late.logits, ([7], [*news[1], 8], [*news[1], 9]), strict=True):
            assert np.array_equal(logits, right([*prompt, *path], 1)[0])
        decoder.close(request)
    assert decoder._cache.taken == 0


@pytest.mark.parametrize("cache", CACHED)
@pytest.mark.parametrize("name", ["Llama", "windows, head norms", "sandwich, ALiBi"])
def test_a_cut_hypothesis_has_the_bits_of_its_beginning(name, cache):
    """Cut at each place of a cell, for the same request and for others, which go on when the whole one has ended.

    The second child copies the first tokens of a cell while the first one writes its own into the same cell.
    """
    config = DECODERS[name]
    weights, rng = make_weights(config), np.random.default_rng(0)
    runs = (RunConfig(threads, max_tokens=600, cache=cache) for threads in (3, 1))
    decoder, alone = (decoder_module.CpuDecoder(isa.chosen(), config, weights, run) for run in runs)
    tokens = rng.integers(0, 50, 55)
    for length in (1, 9, 15, 16, 17, 31, 32, 33, 48, 54, 55):
        first, second, third = (decoder.open() for _ in range(3))
        (begin,) = decoder.step([row(first, None, tokens[:40])]).hypotheses.tolist()
        (longer,) = decoder.step([row(first, begin, tokens[40:])]).hypotheses.tolist()
        decoder.release([begin])
        held = decoder.held
        own, handed, both = (decoder.cut(longer, length, request) for request in (first, second, third))
        assert decoder.held == held, "a cut takes no cell"
        rows = [(third, both, [3] * 20), (first, own, [4]), (first, longer, [9, 9]), (third, both, [5, 6])]
        check_rows(decoder, alone, config, [(request, parent, new, [*tokens[: 55 if parent == longer else length],
                                                                    *new])
                                            for request, parent, new in [*rows, (first, own, [7])]])
        decoder.close(first)
        decoder.close(third)
        assert decoder.held == -(-length // 16) * 16, "and no other request has its cells now"
        news = [(second, handed, [8]), (second, handed, [1] * 33), (second, handed, [2])]
        check_rows(decoder, alone, config, [(*each, [*tokens[:length], *each[2]]) for each in news])
        again = decoder.cut(handed, length, second)
        check_rows(decoder, alone, config, [(second, again, [6], [*tokens[:length], 6])])
        decoder.close(second)
    assert decoder.held == 0


def check_rows(decoder, alone, config, rows):
    """Compute (request, parent, new tokens, whole path) in one step, each with the bits of its path alone."""
    scores = decoder.step([row(request, parent, new, every=True) for request, parent, new, _ in rows])
    found = np.split(scores.logits, np.cumsum([len(new) for _, _, new, _ in rows])[:-1])
    for (_, _, new, path), logits in zip(rows, found, strict=True):
        assert np.array_equal(logits, whole(alone, config, path)[-len(new) :])


def test_what_cannot_be_cut_is_named():
    decoder = compiled(DECODERS["Llama"], make_weights(DECODERS["Llama"]))
    first, second = decoder.open(), decoder.open()
    (hypothesis,) = decoder.step([row(first, None, [1, 2])]).hypotheses.tolist()
    for length in (0, 3):
        with pytest.raises(InputError, match=f"has 2 tokens, and cannot be cut to {length}"):
            decoder.cut(hypothesis, length, second)
    with pytest.raises(InputError, match="no request has the number 99"):
        decoder.cut(hypothesis, 1, 99)
    decoder.close(first)
    with pytest.raises(InputError, match=f"hypothesis {hypothesis} has ended, or its request has"):
        decoder.cut(hypothesis, 1, second)
    assert decoder.held == 0


def test_random_batches_grow_nothing(monkeypatch):
    monkeypatch.setattr(cache_module, "REGION_BYTES", 1)     # a short run
    config = DECODERS["T5"]
    decoder = compiled(config, make_weights(config), 2)
    rng, most = np.random.default_rng(5), 0
    for _ in range(BATCHES):
        requests = open_requests(decoder, config, rng.integers(1, 40, rng.integers(1, 6)))
        live = [(request, None) for request in requests]
        for _ in range(rng.integers(1, 6)):
            rows = [row(request, parent, rng.integers(0, 50, rng.integers(1, 20))) for request, parent in live
                    for _ in range(rng.integers(1, 3))]
            numbers = decoder.step(rows).hypotheses.tolist()
            most = max(most, 16 * decoder._cache.taken)
            decoder.release([parent for _, parent in live if parent is not None])
            live = [(one.request, number) for one, number in zip(rows, numbers, strict=True)][:8]
            decoder.release(numbers[8:])
        for request in requests:
            decoder.close(request)
        assert decoder.statistics().cache_tokens == 0
        assert len(decoder._forest) == 0
        assert decoder._cache.cells == 4


def test_a_stopped_step_leaves_everything_as_it_was(monkeypatch):
    config = DECODERS["Llama"]
    decoder = compiled(config, make_weights(config))
    request = decoder.open()
    (a,) = decoder.step([row(request, None, [1, 2])]).hypotheses.tolist()
    expected = decoder.step([row(request, a, [3])]).logits

    def fail(*args, **options):
        raise KeyboardInterrupt

    taken, size = decoder.statistics().cache_tokens, len(decoder._forest)
    cells = decoder._cache.taken
    monkeypatch.setattr(decoder, "_add_hypotheses", fail)
    with pytest.raises(KeyboardInterrupt):
        decoder.step([row(request, a, [3])])
    monkeypatch.undo()
    assert (decoder.statistics().cache_tokens, len(decoder._forest)) == (taken, size)
    assert decoder._cache.taken == cells
    assert np.array_equal(decoder.step([row(request, a, [3])]).logits, expected)


def test_a_row_longer_than_max_tokens_is_refused():
    config = DECODERS["Llama"]
    decoder = compiled(config, make_weights(config), max_tokens=8)
    request = decoder.open()
    with pytest.raises(InputError, match="a row of 9 tokens exceeds max_batch_tokens=8"):
        decoder.step([row(request, None, [1] * 9)])
    assert decoder.statistics().cache_tokens == 0
    config = DECODERS["T5"]
    assert compiled(config, make_weights(config), max_tokens=8).longest == 8, "biases of longer distances are not there"


def small_cache(monkeypatch, cells):
    """A cache whose regions have this many cells, for one head with keys of 64 bytes."""
    monkeypatch.setattr(cache_module, "REGION_BYTES", 2 * 64 * cells)
    monkeypatch.setattr(cache_module, "SHORT_RUN", 1)
    return cache_module.Cache(64, 1)


def test_the_cache_gives_each_cell_to_one(monkeypatch):
    cache = small_cache(monkeypatch, 8)
    first = [cache.extend(None, 16 * cells) for cells in (5, 1, 3)]
    assert (cache.cells, cache.taken) == (16, 9)
    assert [table.cells.tolist() for table in first] == [[0, 1, 2, 3, 4], [5], [6, 7, 8]]
    cache.free(first[1:2])
    second = cache.extend(None, 16 * 10)
    assert len({*first[0].cells.tolist(), *first[2].cells.tolist(), *second.cells.tolist()}) == 18
    assert len(cache.addresses) == cache.cells == 24
    # Keys of the cells of a segment lie side by side, and then their values.
    assert np.diff(cache.addresses[:8]).tolist() == [64] * 7
    assert cache.run_bytes == 8 * 64
    cache.free([first[0], first[2], second])
    assert cache.taken == 0
    assert sorted(cache.extend(None, 16 * 24).cells.tolist()) == list(range(24))


def test_the_cache_gives_regions_back(monkeypatch):
    cache = small_cache(monkeypatch, 4)
    tables = [cache.extend(None, 16 * cells) for cells in (5, 3, 1, 9)]      # regions 0 and 1, 2, and to 4
    cache.free([tables[0], tables[3]])
    cache.shrink()
    assert (cache.cells, cache.taken) == (8, 4), "no region is without taken cells"
    assert (cache.addresses != 0).reshape(-1, 4)[:, 0].tolist() == [False, True, True, False, False]
    cache.keep(tables[1:2])
    assert (cache.cells, cache.taken) == (8, 3)
    more = cache.extend(None, 16 * 10)
    assert len(cache.addresses) == 20
    assert len({*more.cells.tolist(), *tables[1].cells.tolist()}) == 13
    cache.free([more, tables[1]])
    cache.shrink()
    assert (cache.cells, cache.taken, cache.nbytes) == (4, 0, 4 * 128), "one region is kept"


def test_children_share_cells_until_they_write_into_them(monkeypatch):
    cache = small_cache(monkeypatch, 64)
    parent = cache.extend(None, 20)
    first, second = cache.extend(parent, 2), cache.extend(parent, 1)
    assert (first.cells.tolist(), first.copied) == ([0, 1], None), "the first child goes on in the cell"
    assert (second.cells.tolist(), second.copied) == ([0, 2], 1), "the next one copies it"
    third, fourth = cache.extend(first, 30), cache.extend(second, 11)
    assert (third.cells.tolist(), third.copied) == ([0, 3, 4, 5], 1), "its cell has other readers"
    assert (fourth.cells.tolist(), fourth.copied) == ([0, 2], None)
    fifth = cache.extend(fourth, 5)
    assert (fifth.cells.tolist(), fifth.copied) == ([0, 2, 6], None), "a full cell is never copied"
    cache.free([parent, second])
    assert cache.taken == 7
    sixth = cache.extend(first, 1)
    assert (sixth.cells.tolist(), sixth.copied) == ([0, 1], None), "nobody else reads the cell any more"
    cache.keep([third, fifth])
    assert cache.taken == 6
    cache.free([fifth])
    assert cache.taken == 4
    cache.free([third])
    assert cache.taken == 0


@pytest.mark.parametrize("name", isa.available())
def test_every_row_of_a_long_source_keeps_its_range_in_int8(name):
    """Cross-attention does not know the order of the rows, which are multiplied block by block; they grow here."""
    config = DECODERS["2017"]
    decoder, rows, found = compiled(config, make_weights(config), 1, "int8", name), 600, []
    vectors = np.random.default_rng(3).standard_normal((rows, config.memory_size)).astype(np.float32)
    vectors *= np.linspace(0.1, 3, rows, dtype=np.float32)[:, None]
    for ordered in (vectors, np.ascontiguousarray(vectors[::-1])):
        request = decoder.open()
        decoder.cache_sources([request], ordered, np.array([0, rows], np.int32))
        found.append(decoder.step([row(request, None, [1, 2, 3], every=True)]).logits)
        decoder.close(request)
    assert np.abs(found[0] - found[1]).max() <= 1e-4 * np.abs(found[0]).max()
