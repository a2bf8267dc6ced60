"""Test whole forward passes on the emulated device, with the code that runs on a GPU."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends.batch import Batch
from engine.backends.numba_cuda.kernels.copy import copy_kernel
from engine.backends.numba_cuda.kernels.float32 import ACTIVATIONS
from engine.backends.numba_cuda.kernels.linear_hopper import ALTERNATE, LARGE
from engine.backends.numba_cuda.kernels.linear_hopper import SMALL as SMALL_TILE
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.numba_cuda.products import hopper_tile
from engine.backends.numba_cuda.ptx.epilogue import ACTIVATIONS as EPILOGUES
from engine.backends.numba_cuda.support import layouts
from engine.backends.numba_cuda.weights import upload_weights
from engine.backends.numba_cuda.workspace import Workspace
from engine.backends.reference import ReferenceBackend
from engine.backends.reference.ops import ReferenceOps
from engine.backends.reference.plan import ReferencePlan
from engine.base.errors import InputError, UnsupportedError
from engine.encoding.pooling import pool
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ACTIVATIONS as NAMES
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs import program_of
from engine.programs.program import Program

from ...tools.batches import make_batch
from ...tools.cuda_emulator import EmulationError
from ...tools.decoders import make_weights
from ...tools.emulated_device import EmulatedDevice
from ...tools.encoders import engine_of
from ...tools.rounded import bfloat16
from ...tools.tiny_models import D, random_model
from ...tools.tiny_text import tiny_text

SMALL = ModelConfig("test", hidden_size=32, num_layers=1, num_heads=1, head_width=32, ffn_size=40, vocab_size=30,
                    max_positions=20, token_types=2)
BARE = ModelConfig("test", hidden_size=8, num_layers=1, num_heads=1, head_width=5, ffn_size=12, embedding_norm=False,
                   activation="relu")


def make_plan(config, precision="float32", max_tokens=16, capability=(8, 0)):
    return CudaPlan(EmulatedDevice(capability), config, make_weights(config), RunConfig(1, precision, max_tokens))


def exact(config, batch):
    return ReferenceBackend(np.float64).prepare(config, make_weights(config), RunConfig()).forward_unrounded(batch)


def relative(out, expected):
    return np.linalg.norm(out - expected) / np.linalg.norm(expected)


class RoundedOps(ReferenceOps):
    """The operands of linear maps and of attention rounded to bfloat16; the weights of softmax are not rounded."""

    def linear(self, x, weight, bias, activation, residual):
        return super().linear(bfloat16(x), bfloat16(weight), bias, activation, residual)

    def attention(self, call):
        return super().attention(replace(call, q=bfloat16(call.q), k=bfloat16(call.k), v=bfloat16(call.v)))


@pytest.mark.parametrize(("capability", "d"), [((8, 0), 32), ((9, 0), 32), ((9, 0), 64), ((8, 0), 1), ((9, 0), 256)],
                         ids=str)
def test_bfloat16(capability, d):
    """Cases: mma.sync for everything; wgmma for linear maps; wgmma for attention too, if the head width allows it; the
    narrowest and the widest heads.
    """
    config = replace(SMALL, head_width=d)
    batch = make_batch(config, [3, 0, 9])
    out = make_plan(config, "bfloat16", capability=capability).forward(batch)
    rounded = ReferencePlan(config, make_weights(config), np.float64, RoundedOps())
    assert relative(out, rounded.forward_unrounded(batch)) <= 3e-3
    assert relative(out, exact(config, batch)) <= 1.5e-2


KINDS = {
    "all keys": {},
    "causal": {"attention_kinds": (AttentionKind(causal=True, rotary_theta=100.0),)},
    "window": {"attention_kinds": (AttentionKind(window=2),)},
    "window of 0": {"attention_kinds": (AttentionKind(window=0),)},
    "ALiBi": {"attention_bias": "alibi"},
    "relative": {"relative": RelativePositions(terms=("c2p", "p2c"), limit=6)},
}
"""Kinds of attention, as options of a config."""


@pytest.mark.parametrize(("capability", "d"), [((8, 0), 32), ((9, 0), 64)], ids=str)
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_neighbours_do_not_matter(capability, d, options):
    """A sequence has the same bits alone and between others."""
    config = replace(SMALL, head_width=d, **options)
    plan = make_plan(config, "bfloat16", capability=capability)
    batch = make_batch(config, [3, 12, 1])
    rows = slice(3, 15)
    alone = Batch(np.array([0, 12], np.int32), batch.input_ids[rows], None, batch.position_ids[rows],
                  batch.token_type_ids[rows])
    np.testing.assert_array_equal(plan.forward(alone), plan.forward(batch)[rows])


@pytest.mark.parametrize(("capability", "precision", "bound"), [
    ((8, 0), "float32", 1e-5), ((8, 0), "bfloat16", 1.5e-2), ((9, 0), "bfloat16", 1.5e-2)], ids=str)
def test_tokens_that_are_no_keys(capability, precision, bound):
    """With a window the last tokens see no key at all, and NaN of a token that is no key reaches that token alone."""
    config = replace(SMALL, head_width=64, attention_kinds=(AttentionKind(window=2),))
    batch = replace(make_batch(config, [3, 8]), keys=np.array([2, 4], np.int32))
    out = make_plan(config, precision, capability=capability).forward(batch)
    assert relative(out, exact(config, batch)) <= bound
    rows = np.random.default_rng(0).standard_normal((11, 32), np.float32)
    rows[10] = np.nan
    embedded = replace(batch, input_ids=None, inputs_embeds=rows)
    out = make_plan(config, precision, capability=capability).forward(embedded)
    assert np.flatnonzero(np.isnan(out).any(axis=1)).tolist() == [10]


def test_positions_beyond_the_tables_are_computed():
    """The tables of angles grow, and the passes that read the old ones are recorded anew."""
    config = replace(BARE, head_width=4, attention_kinds=(AttentionKind(rotary_theta=10.0),), max_positions=100)
    plan = make_plan(config, max_tokens=4)
    batch = make_batch(config, [3])
    plan.forward(batch)
    later = replace(batch, position_ids=batch.position_ids * 40)
    assert relative(plan.forward(later), exact(config, later)) <= 1e-5
    assert relative(plan.forward(batch), exact(config, batch)) <= 1e-5


def test_groups_share_the_memory_and_keep_apart():
    """Three groups use two slots; the last group has the shape of the first and replays its launches."""
    plan = make_plan(BARE, max_tokens=3)
    batch = make_batch(BARE, [3, 0, 2, 1, 1])
    out = plan.forward(batch)
    assert relative(out, exact(BARE, batch)) <= 1e-5
    some = Batch(batch.cu_seqlens[:5], None, batch.inputs_embeds[:6], batch.position_ids[:6], batch.token_type_ids[:6])
    assert np.array_equal(plan.forward_on_device(some).numpy(), out[:6])
    modes = ["mean", "max"]
    skips = np.array([1, 0, 0, 2])      # of the sequences of three groups, of which one is empty
    assert np.array_equal(plan.pool(some, modes, skips), pool(out, some.cu_seqlens, modes, skips))


class OnlyPools(CudaPlan):
    def forward(self, batch):
        raise AssertionError("the token vectors were copied from the device")


def test_encode_pools_on_the_device(monkeypatch):
    """Two batches are pooled with two modes side by side, without the tokens of a prompt."""
    model = random_model(tiny_text(pooling=("max", "mean"), include_prompt=False), num_layers=1)
    backend = SimpleNamespace(name="emulated", batch_invariant=True, prepare=partial(OnlyPools, EmulatedDevice()))
    expected = engine_of(model, backend="reference")
    monkeypatch.setattr("engine.interface.engine.choose_backend", lambda *arguments: backend)
    engine = engine_of(model, max_batch_tokens=12)
    sentences = ["dog", "the cat sat", ""]
    vectors = engine.encode(sentences, prompt="query: ")
    assert vectors.shape == (3, 2 * D)
    assert relative(vectors, expected.encode(sentences, prompt="query: ")) <= 1e-5


def test_no_tokens():
    plan = make_plan(BARE)
    for lengths in ([], [0, 0]):
        batch = make_batch(BARE, lengths)
        assert plan.forward(batch).shape == (0, 8)
        assert plan.forward_on_device(batch).shape == (0, 8)
        assert np.array_equal(plan.pool(batch, ["cls", "max"]), np.zeros((len(lengths), 16)))


def test_what_is_refused():
    plan = make_plan(BARE, max_tokens=5)
    with pytest.raises(InputError, match="6 tokens exceeds max_batch_tokens=5"):
        plan.forward(make_batch(BARE, [6]))
    with pytest.raises(InputError, match="modes must be some of cls, mean"):
        plan.pool(make_batch(BARE, [2]), ["cls", "median"])
    with pytest.raises(UnsupportedError, match="heads of up to 256 columns, and this model's have 257; precision='fl"):
        make_plan(replace(BARE, head_width=257), "bfloat16")


@pytest.mark.parametrize(("grid", "arguments", "told"), [
    ((0,), {}, "a launch needs blocks"),
    ((1,), {"x": np.zeros((2, 8))}, "float64 of shape"),
    ((1,), {"x": np.zeros((1, 2, 8), np.float32)}, r"not float32 of shape \(1, 2, 8\)"),
    ((1,), {"out": np.zeros((2, 8), np.float32)}, "not float32 of shape")])
def test_the_emulated_device_takes_no_launch_that_a_gpu_would_not(grid, arguments, told):
    given = {"x": np.zeros((2, 8), np.float32), "out": np.zeros((2, 8), np.uint16)}
    with pytest.raises(EmulationError, match=told):
        EmulatedDevice().launch(copy_kernel(True), grid, *(given | arguments).values())


@pytest.mark.parametrize(("N", "M", "activation", "tile"), [
    (16_384, 768, None, ALTERNATE), (16_384, 768, "gelu", LARGE), (512, 3072, "gelu", ALTERNATE),
    (512, 768, None, SMALL_TILE),
])
def test_the_tile_of_a_linear_map_on_hopper(N, M, activation, tile):
    assert hopper_tile(N, M, 132, activation) is tile


def test_activations():
    """Every activation has a kernel in both precisions."""
    assert set(NAMES) == set(ACTIVATIONS) - {None} == set(EPILOGUES) - {"identity"}


BEYOND_BERT = {
    "pre-norm": {"norm_place": "pre"},
    "pre-norm, layer 0 without its norm": {"norm_place": "pre", "first_attention_norm": False},
    "pre-norm, no embedding norm": {"norm_place": "pre", "embedding_norm": False},
    "no biases": {"norm_place": "pre", "norm_bias": False, "biases": ()},
    "biases of queries and values": {"biases": ("query", "value")},
    "no position table": {"position_table": False, "norm_bias": False},
}


@pytest.mark.parametrize("changes", BEYOND_BERT.values(), ids=BEYOND_BERT)
def test_options_beyond_bert(changes):
    sizes = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "head_width": 5, "ffn_size": 12}
    config = replace(SMALL, **sizes, norm_eps=0.1, activation="gelu_tanh", **changes)
    batch = make_batch(config, [2, 0, 1])
    assert relative(make_plan(config).forward(batch), exact(config, batch)) <= 1e-5


def test_pre_norm_in_bfloat16():
    config = replace(SMALL, num_layers=2, norm_place="pre", norm_bias=False, biases=("up",), first_attention_norm=False)
    batch = make_batch(config, [2, 3], seed=5)
    out = make_plan(config, "bfloat16").forward(batch)
    rounded = ReferencePlan(config, make_weights(config), np.float64, RoundedOps())
    assert relative(out, rounded.forward_unrounded(batch)) <= 3e-3
    assert relative(out, exact(config, batch)) <= 1.5e-2


def test_maps_of_several_layers_are_uploaded_once():
    """Operations that name the same parameters share one array, which also holds zeros for absent biases."""
    config = replace(BARE, biases=("key",))
    operations = program_of(config).operations
    twice = Program((*operations[:-1], *operations[1:]))
    weights = make_weights(config)
    uploaded = upload_weights(EmulatedDevice(), twice, weights, {}, lambda weight: weight, layouts(twice, lambda d: 32),
                              16, lambda table: table)
    assert len(uploaded.linears) == 4
    qkv = next(affine for (parts, *_), affine in uploaded.linears.items() if len(parts) == 3)
    weight, bias = qkv.weight.reshape(3, 32, 8), qkv.bias.reshape(3, 32)       # a head of 5 columns takes 32
    names = ("query", "key", "value")
    assert np.array_equal(weight[:, :5], [weights[f"layers.0.attention.{n}.weight"] for n in names])
    assert np.array_equal(bias[:, :5], [[0] * 5, weights["layers.0.attention.key.bias"], [0] * 5])
    assert not weight[:, 5:].any()
    assert not bias[:, 5:].any()


def test_memory_of_a_token():
    """bfloat16: 4 D bytes for each of x and y, and operands of D, 3 H d, H d and F columns."""
    device, sizes = EmulatedDevice(), []
    device.allocate = lambda shape, dtype: sizes.append((*shape, np.dtype(dtype).itemsize)) or np.empty(shape, dtype)
    program = program_of(replace(SMALL, num_heads=2))
    Workspace(device, program, 100, np.dtype(np.uint16), layouts(program, lambda d: d))
    N, D, width, F = 104, 32, 64, 40
    assert sorted(sizes[3:]) == sorted(
        [(N, D, 4), (N, D, 4), (N, D, 2), (N, 3 * width, 2), (N, width, 2), (N, F, 2)])
