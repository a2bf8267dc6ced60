"""Weights of cross-attention: those of transformers, along the path of each result, with the same bits in any batch.

tests/golden/make/generating.py made the golden files.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from engine import Generator, InputError, load_model
from engine.backends import get_backend
from engine.generation.results import Generated
from engine.model.run_config import RunConfig

from ..tools.golden_generating import GOLDEN, NAMES, Exact, Expected

WITH_SOURCE = [name for name in NAMES if Expected(name).cross]
SOURCES = [[5, 9, 12, 2], [7, 8, 9, 10, 11, 30, 2], [40, 2], [13, 14, 15, 16, 17, 18, 19, 20, 21, 2]]


def heads_of(config):
    return list(product(range(config.num_layers), range(config.num_heads)))


@pytest.mark.parametrize("name", WITH_SOURCE)
def test_the_weights_of_transformers(name):
    exact, expected = Exact(load_model(GOLDEN / name, kind="generate")), Expected(name)
    heads = heads_of(exact.model.decoder.config)
    for weights, (source, ids, _, _) in zip(expected.cross, expected.sequences, strict=False):
        found = exact.cross(source, ids, heads)
        assert np.abs(found - weights.reshape(found.shape)).max() <= 1e-6


@pytest.mark.parametrize("name", ["marian", "m2m_100_odd", "t5", "whisper"])
def test_the_weights_of_transformers_in_float32(name, backend):
    exact, expected = Exact(load_model(GOLDEN / name, kind="generate")), Expected(name)
    config = exact.model.decoder.config
    for size in (8192, 7):      # a pass of the cython backend has at most this many tokens
        run = RunConfig(2, "float32", size)
        decoder = get_backend(backend).prepare_decoder(config, exact.model.decoder.weights, run)
        heads = heads_of(config)[::-1]
        # `cross` has the first sequences alone, and T5 has biases for max_tokens.
        given = [(weights, source, ids) for weights, (source, ids, _, _) in zip(expected.cross, expected.sequences,
                                                                              strict=False)
                 if decoder.longest is None or len(ids) <= decoder.longest]
        assert len(given) >= 2
        for weights, source, ids in given:
            request, batch = decoder.open(), exact.batch(source)
            decoder.cache_sources([request], exact.forward(batch).astype(np.float32), batch.cu_seqlens)
            found = decoder.attention_weights(request, ids, heads)
            assert found.dtype == np.float32
            assert np.abs(found - weights.reshape(found.shape)[::-1]).max() <= 2e-5
            assert np.abs(found.sum(axis=2) - 1).max() <= 1e-5


def test_passes_of_any_size_have_the_same_bits():
    exact = Exact(load_model(GOLDEN / "marian", kind="generate"))
    config, batch = exact.model.decoder.config, exact.batch(np.array(SOURCES[0]))
    found = set()
    for size in (64, 7, 5):
        run = RunConfig(2, "float32", size)
        decoder = get_backend("cython").prepare_decoder(config, exact.model.decoder.weights, run)
        request = decoder.open()
        decoder.cache_sources([request], exact.forward(batch).astype(np.float32), batch.cu_seqlens)
        found.add(decoder.attention_weights(request, np.arange(3, 23), heads_of(config)).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", ["marian", "bart_forced", "t5"])
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}, {
    "do_sample": True, "num_return_sequences": 3, "top_k": 0}])  # fmt: skip
def test_each_result_has_the_weights_along_its_own_path(name, settings, backend):
    """The rows must be those of an exact pass over the ids of the result, whichever beams they came from."""
    model = load_model(GOLDEN / name, kind="generate")
    exact, heads = Exact(model), heads_of(model.decoder.config)
    generator = Generator.load(GOLDEN / name, backend=backend)
    found = generator.generate(SOURCES, max_new_tokens=9, output_attentions=True, **settings)
    start, first = model.generation.decoder_start_token_id, model.generation.forced_bos_token_id
    before = [start] if first is None else [start, first]
    lengths = set()
    for source, results in zip(SOURCES, found, strict=True):
        for result in results if isinstance(results, list) else [results]:
            tokens = np.array([*before, *result.ids], np.int64)[:-1]
            expected = exact.cross(np.array(source), tokens, heads)[:, len(before) - 1 :]
            assert list(result.attentions) == heads
            weights = np.stack(list(result.attentions.values()))
            assert weights.shape == (len(heads), len(result.ids), len(source))
            assert np.abs(weights - expected).max() <= 2e-5
            lengths.add(len(result.ids))
    assert max(lengths) > 3


@pytest.mark.parametrize("beams", [1, 3])
def test_a_request_has_the_same_bits_in_any_batch(compiled_backend, beams):
    heads = [(1, 0), (0, 2)]

    def bits(sources, **options):
        generator = Generator.load(GOLDEN / "marian", backend=compiled_backend, **options)
        return [[result.attentions[head].tobytes() for head in heads]
                for result in generator.generate(sources, num_beams=beams, max_new_tokens=20, output_attentions=heads)]

    alone = [bits([source], threads=1)[0] for source in SOURCES]
    assert bits(SOURCES, threads=2) == alone
    assert bits(SOURCES[::-1], threads=2, max_rows=beams) == alone[::-1]


def test_numbers_from_the_end_and_what_was_not_asked_for():
    generator = Generator.load(GOLDEN / "marian", backend="reference")
    [plain] = generator.generate(SOURCES[:1])
    [found] = generator.generate(SOURCES[:1], output_attentions=[(-1, -3), (0, 1)])
    assert plain.attentions == {}
    assert found == plain
    assert list(found.attentions) == [(-1, -3), (0, 1)]
    [other] = generator.generate(SOURCES[:1], output_attentions=[(1, 0)])
    assert np.array_equal(other.attentions[1, 0], found.attentions[-1, -3])
    assert not np.array_equal(other.attentions[1, 0], found.attentions[0, 1])


def test_a_result_without_tokens(backend):
    generator = Generator.load(GOLDEN / "marian", backend=backend)
    generation = generator.generation
    [result] = generator.generate(SOURCES[:1], output_attentions=[(0, 0)], eos_token_id=list(range(61)),
                                  suppress_tokens=None, bad_words_ids=None)
    assert result.ended
    assert result.attentions[0, 0].shape == (0, 4)
    assert generation == generator.generation


def test_no_row_of_the_cache_stays_taken():
    generator = Generator.load(GOLDEN / "marian", backend="cython")
    generator.generate(SOURCES, output_attentions=True)
    assert generator.statistics().cache_tokens == 0
    request = generator._decoder.open()
    with pytest.raises(InputError, match="has no source"):
        generator._decoder.attention_weights(request, np.array([1]), [(0, 0)])
    with pytest.raises(InputError, match="no pair"):
        generator._decoder.attention_weights(request, np.array([1]), [(0, 3)])
    assert generator.statistics().cache_tokens == 0


@pytest.mark.parametrize(("asked", "words"), [
    ([(2, 0)], "layers from 0 to 1 and heads from 0 to 2"), ([(0, 3)], "heads from 0 to 2"), ([3], "no pair"),
    ("all", "True, None or a list"), ([(0, 0.5)], "heads from 0 to 2"),
])  # fmt: skip
def test_bad_arguments(asked, words):
    generator = Generator.load(GOLDEN / "marian", backend="reference")
    with pytest.raises(InputError, match=words):
        generator.generate(SOURCES, output_attentions=asked)


def test_a_model_without_an_encoder():
    generator = Generator.load(GOLDEN / "llama", backend="cython")
    with pytest.raises(InputError, match="no encoder and so no cross-attention"):
        generator.generate([[3, 4]], output_attentions=True)
    with pytest.raises(InputError, match="no cross-attention"):
        generator._decoder.attention_weights(generator._decoder.open(), np.array([3]), [(0, 0)])
    [result] = generator.generate([[3, 4]], output_attentions=False)
    assert isinstance(result, Generated)
