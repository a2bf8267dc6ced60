"""Hidden states, attention weights and entropies of a pass: right, and without an effect on the token vectors."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from engine.backends import get_backend
from engine.backends.interfaces import ObservingPlan
from engine.backends.reference import ReferenceBackend
from engine.base.errors import TimedOut, UnsupportedError
from engine.base.stop import Stop
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.model.precision import FORMATS
from engine.model.run_config import RunConfig
from engine.programs import program_of
from engine.programs.observe import Observed, with_observed
from engine.programs.operations import Attend, ObservedHead, Store

from ..tools.plans import EVERY_PRODUCT, WEIGHTS, isa, make_batch, make_plan, make_weights, one_sequence, rounds_queries
from ..tools.plans import SMALL as POST
from ..tools.rounded import rounded_plan

PRE = replace(POST, position_table=False, norm="rms", norm_place="pre", gated=True, biases=(), num_kv_heads=2,
              head_width=12, first_attention_norm=False, head_norm=True, layer_kinds=(0, 1, 2),
              attention_kinds=(AttentionKind(None, 10000.0), AttentionKind(7, 500.0), AttentionKind(None, causal=True)))
BIASED = replace(POST, position_table=False, attention_bias="buckets", bias_buckets=8, bias_max_distance=20,
                 bias_in_layers=True, attention_scale=0.7)
MODELS = {"post-norm": POST, "pre-norm": PRE, "biases": BIASED}
LENGTHS = [70, 1, 0, 33, 130]


def everything(config):
    heads = tuple((layer, head) for layer in range(config.num_layers) for head in range(config.num_heads))
    return Observed(tuple(range(config.num_layers)), heads, heads)


def split(observed, arrays, lengths):
    """Return the hidden states, the weights and the entropies as lists, each array cut into its sequences."""
    found = []
    for i, array in enumerate(arrays[1:]):
        pairs = len(observed.hidden) <= i < len(observed.hidden) + len(observed.weights)
        cuts = np.cumsum([T * T if pairs else T for T in lengths])[:-1]
        parts = np.split(array, cuts)
        found.append([part.reshape(T, T) for part, T in zip(parts, lengths, strict=True)] if pairs else parts)
    first, second = len(observed.hidden), len(observed.hidden) + len(observed.weights)
    return found[:first], found[first:second], found[second:]


def test_the_program_writes_what_is_asked_for():
    program = with_observed(program_of(POST), Observed((2, 0), ((1, 3),), ((1, 3), (0, 2))))
    stores = [(i, op.array) for i, op in enumerate(program.operations) if isinstance(op, Store)]
    assert [array for _, array in stores] == [2, 1, 0]
    assert program.operations[stores[1][0] + 1].layer == 2, "layer 2 begins after the Store of its hidden states"
    observed = [op.observed for op in program.operations if isinstance(op, Attend)]
    assert observed == [(ObservedHead(2, None, 5),), (ObservedHead(3, 3, 4),), ()]


@pytest.mark.parametrize("model", MODELS)
def test_on_every_backend(backend, model):
    config = MODELS[model]
    weights, batch, observed = make_weights(config), make_batch(config, LENGTHS), everything(config)
    plan = get_backend(backend).prepare(config, weights, RunConfig(2))
    assert isinstance(plan, ObservingPlan)
    compare(plan, model, batch, observed)


@pytest.mark.parametrize("name", isa.available())
@pytest.mark.parametrize("threads", [1, 3])
def test_on_every_instruction_set(name, threads):
    for model in MODELS:
        config = MODELS[model]
        weights, batch, observed = make_weights(config), make_batch(config, LENGTHS), everything(config)
        compare(make_plan(config, weights, threads, name), model, batch, observed)


@cache
def references(model):
    """Return what float64 and float32 give for everything that can be observed; they are the same for all kernels."""
    config = MODELS[model]
    weights, batch, observed = make_weights(config), make_batch(config, LENGTHS), everything(config)
    return (ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).observe_unrounded(batch, observed),
            ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).observe(batch, observed))


def compare(plan, model, batch, observed):
    config = MODELS[model]
    exact, naive = references(model)
    arrays = plan.observe(batch, observed)
    assert np.array_equal(arrays[0], plan.forward(batch)), "the token vectors have changed"
    for found, right, plain in zip(arrays, exact, naive, strict=True):
        assert found.dtype == np.float32
        assert np.abs(found - right).max() <= 10 * np.abs(plain - right).max() + 1e-6 * max(1, np.abs(right).max())
    _, table, entropies = split(observed, arrays, LENGTHS)
    for head, (rows, nats) in enumerate(zip(table, entropies, strict=True)):
        kind = config.attention_kind(observed.weights[head][0])
        for p, h in zip(rows, nats, strict=True):
            p = p.astype(np.float64)
            assert np.abs(p.sum(axis=1) - 1).max(initial=0) < 3e-6
            assert np.abs(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=1) - h).max(initial=0) < 1e-5
            far = np.subtract.outer(np.arange(len(p)), np.arange(len(p)))
            hidden = (np.abs(far) > (len(p) if kind.window is None else kind.window)) | (kind.causal & (far < 0))
            assert not p[hidden].any()


@pytest.mark.parametrize("model", MODELS)
def test_the_weights_give_the_result_of_the_layer(model):
    """The attention of layer 0, made from its hidden states and these weights, leads to those of layer 1."""
    config = replace(MODELS[model], head_norm=False, attention_kinds=(AttentionKind(7),), layer_kinds=())
    weights, batch = make_weights(config), make_batch(config, [40])
    observed = Observed((0, 1), tuple((0, head) for head in range(config.num_heads)))
    plan = make_plan(config, weights, 2)
    x, after, *table = plan.observe(batch, observed)[1:]
    G, d = config.kv_heads, config.head_width
    value = x @ weights["layers.0.attention.value.weight"].T + weights.get("layers.0.attention.value.bias", 0)
    heads = value.reshape(-1, G, d).repeat(config.num_heads // G, axis=1)
    context = np.concatenate([p.reshape(40, 40) @ heads[:, h] for h, p in enumerate(table)], axis=1)
    y = (x + context @ weights["layers.0.attention.output.weight"].T
         + weights.get("layers.0.attention.output.bias", 0))
    rest = ReferenceBackend(np.float64).prepare(config, weights, RunConfig())
    assert np.abs(finish_layer(rest, config, y) - after).max() < 1e-5 * np.abs(after).max()


def finish_layer(plan, config, y):
    """Run the operations of layer 0 after its attention's output on y [T,D]."""
    from engine.backends.execute import Execution

    operations = [op for op in plan.program.operations if op.layer == 0]
    last = next(i for i, op in enumerate(operations) if isinstance(op, Attend)) + 1
    buffers = {"y": y[None].astype(np.float64)}
    Execution(plan.ops, plan.weights).run(operations[last + 1 :], buffers)
    return buffers["x"][0]


@pytest.mark.parametrize("model", MODELS)
def test_alone_and_in_a_batch_and_for_any_threads_the_same_bits(model):
    config = MODELS[model]
    weights, observed = make_weights(config), everything(config)
    batch = make_batch(config, LENGTHS)
    expected = split(observed, make_plan(config, weights, 1).observe(batch, observed), LENGTHS)
    for threads in (1, 2, 4):
        plan = make_plan(config, weights, threads)
        together = split(observed, plan.observe(batch, observed), LENGTHS)
        for i, T in enumerate(LENGTHS):
            alone = split(observed, plan.observe(one_sequence(batch, i), observed), [T])
            for kind in range(3):
                for a, b, c in zip(alone[kind], together[kind], expected[kind], strict=True):
                    assert np.array_equal(a[0], b[i])
                    assert np.array_equal(b[i], c[i])


def test_a_part_of_the_taps_has_the_same_bits():
    plan, batch = make_plan(POST, WEIGHTS, 2), make_batch(POST, [20, 90])
    whole = plan.observe(batch, everything(POST))
    some = Observed((2,), ((2, 1),), ((1, 0), (2, 1)))
    part = plan.observe(batch, some)
    heads = everything(POST).weights
    wanted = [0, 1 + 2, 4 + heads.index((2, 1)), 16 + heads.index((1, 0)), 16 + heads.index((2, 1))]
    for found, index in zip(part, wanted, strict=True):
        assert np.array_equal(found, whole[index])
    assert np.array_equal(plan.observe(batch, everything(POST))[7], whole[7])


@cache
def rounded(model, precision, rows, attention, bounded, queries):
    """Return what the roundings of some kernels give in float64; many kernels have the same roundings."""
    config = MODELS[model]
    plan = rounded_plan(config, make_weights(config), precision, rows=rows, attention=attention, bounded=bounded,
                        queries=queries)
    return plan.observe_unrounded(make_batch(config, LENGTHS), everything(config))


@pytest.mark.parametrize(("name", "precision"), [pair for pair in EVERY_PRODUCT if pair[1] != "float32"])
def test_other_precisions(name, precision):
    """The weights are those of the pass that runs, within the rounding of its queries and keys.

    Every second model, and the others in the next precision.
    """
    for model in list(MODELS)[EVERY_PRODUCT.index((name, precision)) % 2 :: 2]:
        config = MODELS[model]
        weights, batch, observed = make_weights(config), make_batch(config, LENGTHS), everything(config)
        product = isa.load(name).product(precision)
        plan = make_plan(config, weights, 2, name, precision=precision)
        right = rounded(model, precision, product.converts, not product.attends_in_float32, product.needs_bound,
                        rounds_queries(config, product))
        arrays = plan.observe(batch, observed)
        assert np.array_equal(arrays[0], plan.forward(batch))
        hidden, table, entropies = split(observed, arrays, LENGTHS)
        right_hidden, right_table, right_entropies = split(observed, right, LENGTHS)
        first = [i for i, (layer, _) in enumerate(observed.weights) if layer == 0]
        assert np.abs(np.concatenate(hidden[0]) - np.concatenate(right_hidden[0])).max() < 1e-4
        for i in range(len(table)):
            most = 2e-4 if i in first else 0.3      # an early number that is rounded the other way changes later layers
            for b in range(len(LENGTHS)):
                wrong = np.abs(table[i][b] - right_table[i][b]) >= most
                # With inputs of 8 bits, a number that is rounded the other way changes the rows that see its token.
                assert wrong.sum() <= (0.02 * wrong.size if FORMATS[precision].rounds_blocks else 0)
                queries = ~wrong.any(axis=1)
                assert np.abs(entropies[i][b] - right_entropies[i][b])[queries].max(initial=0) < 5 * most
                assert np.abs(table[i][b].sum(axis=1, dtype=np.float64) - 1).max(initial=0) < 3e-6


def test_long_sequences():
    """Several blocks of keys and several calls of attention for each head."""
    config = ModelConfig("test", 24, 1, 2, 12, 30, vocab_size=50, attention_kinds=(AttentionKind(300),))
    weights, batch, observed = make_weights(config), make_batch(config, [2300]), everything(config)
    right = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).observe_unrounded(batch, observed)
    for threads in (1, 2):
        found = make_plan(config, weights, threads, max_tokens=4096).observe(batch, observed)
        for a, b in zip(found, right, strict=True):
            assert np.abs(a - b).max() < 2e-5


def test_empty_batches():
    plan = make_plan(POST, WEIGHTS, 2)
    for lengths in ([], [0], [0, 0]):
        arrays = plan.observe(make_batch(POST, lengths), everything(POST))
        assert [array.size for array in arrays] == [0] * 28


def test_a_stop_ends_it():
    plan = make_plan(POST, WEIGHTS, 1)
    batch = make_batch(POST, [140] * 400)
    with pytest.raises(TimedOut):
        plan.observe(batch, everything(POST), stop=Stop(1e-9))
    assert np.array_equal(plan.observe(batch, Observed((1,)))[0], plan.forward(batch))


def test_the_packed_weights_are_shared():
    plan = make_plan(POST, WEIGHTS, 1)
    made = dict(plan._packer._made)
    plan.observe(make_batch(POST, [5]), everything(POST))
    assert plan._packer._made == made, "nothing was packed again"


def test_cuda_refuses_them_by_name():
    from engine.backends.numba_cuda.support import check

    for observed, told in ((Observed((1,)), "Store with array=1"), (Observed((), ((0, 0),)), "Attend with observed=")):
        with pytest.raises(UnsupportedError, match=told):
            check(with_observed(program_of(POST), observed))
