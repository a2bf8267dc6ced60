"""Decoders on the reference backend: the cache against no cache, trees of hypotheses, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from engine import Engine, InputError, Model, Transformer, UnsupportedError, WeightsError
from engine.backends import get_backend
from engine.backends.choice import choose
from engine.backends.forest import Forest
from engine.backends.numba_cuda.support import check
from engine.backends.reference import ReferenceBackend
from engine.backends.wants import Want
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs import program_of
from engine.weights.parameters import expected_shapes, parameters_of

from ...tools.decoders import DECODERS, make_weights, open_requests, row
from ...tools.encoders import engine_of

T5 = DECODERS["T5"]


def reference(config, dtype=np.float64):
    return ReferenceBackend(dtype).prepare_decoder(config, make_weights(config), RunConfig())


@pytest.fixture(params=DECODERS)
def config(request):
    return DECODERS[request.param]


def close(a, b):
    return np.abs(a - b).max() <= 1e-12 * np.abs(b).max()


def test_the_cache_gives_what_the_whole_prefix_gives(config):
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, 23)
    decoder = reference(config)
    request, = open_requests(decoder, config, [7])
    _, whole = decoder.step_unrounded([row(request, None, tokens, every=True)])
    assert whole.shape == (23, config.vocab_size)
    parts, parent = [], None
    for part in np.split(tokens, [5, 6, 7, 15]):
        (parent,), logits = decoder.step_unrounded([row(request, parent, part, every=True)])
        parts.append(logits)
    assert close(np.concatenate(parts), whole)
    for n in (1, 9, 23):
        _, last = decoder.step_unrounded([row(request, None, tokens[:n])])
        assert close(last, whole[n - 1 : n])


def test_branches_of_a_tree_do_not_see_each_other(config):
    rng = np.random.default_rng(2)
    decoder = reference(config)
    first, second = open_requests(decoder, config, [4, 9])
    prompts = rng.integers(0, config.vocab_size, (2, 6))
    (a, b), _ = decoder.step_unrounded([row(first, None, prompts[0]), row(second, None, prompts[1])])
    (c, d, e), _ = decoder.step_unrounded([row(first, a, [3]), row(second, b, [4, 5]), row(first, a, [6])])
    decoder.release([a])
    rows = [row(first, e, [7]), row(first, c, [8]), row(second, d, [9]), row(first, e, [1])]
    _, logits = decoder.step_unrounded(rows)
    paths = [(first, [*prompts[0], 6, 7]), (first, [*prompts[0], 3, 8]), (second, [*prompts[1], 4, 5, 9]),
             (first, [*prompts[0], 6, 1])]
    for got, (request, tokens) in zip(logits, paths, strict=True):
        _, (alone,) = decoder.step_unrounded([row(request, None, tokens)])
        assert close(got, alone)


def test_a_cut_hypothesis_goes_on_from_its_beginning():
    config = DECODERS["Llama"]
    tokens = np.random.default_rng(2).integers(0, config.vocab_size, 12)
    decoder = reference(config)
    first, second = open_requests(decoder, config, [1, 1])
    (begin,), _ = decoder.step_unrounded([row(first, None, tokens[:5])])
    (whole,), _ = decoder.step_unrounded([row(first, begin, tokens[5:])])
    cuts = [decoder.cut(whole, length, second) for length in (3, 5, 8, 12)]
    decoder.close(first)
    assert decoder.held == 12, "they share their tokens"
    _, logits = decoder.step_unrounded([row(second, cut, [7]) for cut in cuts])
    for length, got in zip((3, 5, 8, 12), logits, strict=True):
        _, (alone,) = decoder.step_unrounded([row(second, None, [*tokens[:length], 7])])
        assert close(got, alone)


def test_the_source_matters_and_belongs_to_its_request():
    decoder = reference(T5)
    first, second = open_requests(decoder, T5, [4, 9])
    _, (a, b) = decoder.step_unrounded([row(first, None, [1, 2]), row(second, None, [1, 2])])
    assert np.abs(a - b).max() > 1e-3


def test_rows_are_freed_when_no_hypothesis_needs_them():
    decoder = reference(T5)
    request, = open_requests(decoder, T5, [3])
    (a,), _ = decoder.step_unrounded([row(request, None, [1, 2])])
    (b, c), _ = decoder.step_unrounded([row(request, a, [3]), row(request, a, [4])])
    decoder.release([a])
    assert decoder.statistics().cache_tokens == 4, "the children need the rows of a"
    decoder.release([b])
    assert decoder.statistics().cache_tokens == 3
    decoder.release([c])
    assert decoder.statistics().cache_tokens == 0
    decoder.step_unrounded([row(request, None, [1])])
    decoder.close(request)
    assert decoder.statistics().cache_tokens == 0
    assert not decoder._sources


def test_a_hypothesis_that_may_become_a_parent_keeps_its_rows_without_children():
    forest = Forest(50, None)
    request = forest.open()
    parent = forest.add(row(request, None, [1]), None, "rows of the parent")
    child = row(request, parent, [2])
    forest.drop([forest.add(child, *forest.parents([child]), "rows of the child")])
    assert forest.settle() == ["rows of the child"]
    forest.drop([parent])
    assert forest.settle() == ["rows of the parent"]


@pytest.mark.parametrize(("make", "problem"), [
    (lambda r, h: [], "at least one row"),
    (lambda r, h: [row(r + 1, None, [1])], "no request has the number"),
    (lambda r, h: [row(r, h + 1, [1])], "not one of request"),
    (lambda r, h: [row(r, None, [])], "n at least 1"),
    (lambda r, h: [row(r, None, [[1]])], "int64"),
    (lambda r, h: [row(r, None, [50])], "from 0 to 49"),
    (lambda r, h: [row(r, None, [-1])], "from 0 to 49"),
])
def test_rows_that_cannot_be_computed_are_refused(make, problem):
    decoder = reference(T5)
    request, = open_requests(decoder, T5, [3])
    (hypothesis,), _ = decoder.step_unrounded([row(request, None, [1, 2])])
    with pytest.raises(InputError, match=problem):
        decoder.step(make(request, hypothesis))


@pytest.mark.parametrize("backend", ["reference", "cython"])
def test_sources_that_are_not_there_or_do_not_fit_are_refused(backend):
    with_source, without = (get_backend(backend).prepare_decoder(DECODERS[name], make_weights(DECODERS[name]),
                                                                 RunConfig()) for name in ("2017", "Llama"))
    request, other = with_source.open(), without.open()
    with pytest.raises(InputError, match=f"request {request} has no source"):
        with_source.step([row(request, None, [1])])
    ends = np.array([0, 3], np.int32)
    for width in (37, 39):
        with pytest.raises(InputError, match=rf"must be \[N, 38\], not \[3, {width}\]"):
            with_source.cache_sources([request], np.zeros((3, width), np.float32), ends)
    with pytest.raises(InputError, match="no request has the number"):
        with_source.cache_sources([request + 1], np.zeros((3, 38), np.float32), ends)
    with pytest.raises(InputError, match="reads no encoder"):
        without.cache_sources([other], np.zeros((3, 38), np.float32), ends)


def test_a_hypothesis_beyond_the_positions_is_refused():
    config = DECODERS["pre-norm"]
    decoder = reference(config)
    assert decoder.longest == 88
    request, = open_requests(decoder, config, [3])
    (hypothesis,), _ = decoder.step_unrounded([row(request, None, np.zeros(88, np.int64))])
    with pytest.raises(InputError, match="89 tokens is longer than the model's 88 positions"):
        decoder.step([row(request, hypothesis, [1])])


def test_released_hypotheses_are_no_parents():
    decoder = reference(T5)
    request, = open_requests(decoder, T5, [3])
    scores = decoder.step([row(request, None, [1])])
    decoder.release(scores.hypotheses.tolist())
    with pytest.raises(InputError, match="not one of request"):
        decoder.step([row(request, int(scores.hypotheses[0]), [1])])
    decoder.release([*scores.hypotheses.tolist(), 10**6])
    decoder.close(request)
    decoder.close(request)
    assert decoder._forest.requests == [], "what is released or closed already is left alone"


def test_the_best_logits_come_first_and_low_ids_win_ties():
    logits = np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)
    chosen = choose(logits, [Want(best=3)] * 2)
    assert chosen.best.ids.tolist() == [1, 2, 3, 0, 1, 2]
    assert chosen.best.values.tolist() == [3, 3, 2, 0, 0, 0]
    assert np.allclose(chosen.log_sum_exp, np.log(np.exp(logits).sum(axis=1)))
    assert choose(logits[:0], []).best.ids.shape == (0,)


def test_parameters_of_a_decoder():
    shapes = expected_shapes(DECODERS["2017"])
    assert shapes["layers.1.cross.query.weight"] == (44, 44)
    assert shapes["layers.1.cross.key.weight"] == (44, 38)
    assert shapes["logits.weight"] == (50, 44)
    assert shapes["logits.bias"] == (50,)
    tied = parameters_of(T5)
    assert tied["embeddings.word"].kind == "table"
    assert "logits.weight" not in tied
    assert parameters_of(DECODERS["2017"])["logits.weight"].kind == "linear"


def test_a_decoder_reads_its_json():
    for config in DECODERS.values():
        assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(("changes", "problem"), [
    ({"logits": "shared"}, "logits must be one of"),
    ({"logits": None}, "need logits"),
    ({"logits_scale": 0.0}, "logits_scale must be"),
    ({"vocab_size": 0}, "vocab_size of at least 1"),
    ({"embedding_width": 10}, "tied logits need embeddings of width 24"),
    ({"attention_kinds": (AttentionKind(),)}, "must be causal"),
    ({"relative": RelativePositions(9)}, "the option relative"),
    ({"norm_place": "sandwich"}, "memory_size needs norm_place"),
    ({"attention_bias": "alibi"}, "bias_one_sided need attention_bias 'buckets'"),
    ({"bias_max_distance": 4}, "above 4, a half of the 8 buckets"),
])
def test_impossible_decoders_are_refused(changes, problem):
    with pytest.raises(WeightsError, match=problem):
        replace(T5, **changes)


@pytest.mark.parametrize("name", DECODERS)
def test_cuda_refuses_a_decoder_by_name(name):
    with pytest.raises(UnsupportedError, match="Attend with keys='cache'"):
        check(program_of(DECODERS[name]))


@pytest.mark.parametrize("backend", ["reference", "cython"])
def test_an_engine_refuses_a_decoder(backend):
    decoder, alone = Transformer(T5, make_weights(T5)), DECODERS["Llama"]
    with pytest.raises(WeightsError, match="has logits, which only a decoder has"):
        engine_of(decoder, backend=backend)
    with pytest.raises(UnsupportedError, match="this model has a decoder; a Generator runs it"):
        Engine(Model(decoder=Transformer(alone, make_weights(alone))), backend=backend)
    with pytest.raises(UnsupportedError, match="load it with Generator"):
        get_backend(backend).prepare(T5, decoder.weights, RunConfig())
