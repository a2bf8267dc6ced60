"""Small models, batches and plans that several test modules use. Importing this skips a test module without kernels."""

import numpy as np
import pytest

from engine.backends.batch import Batch
from engine.model.config import ModelConfig
from engine.model.precision import LOADABLE
from engine.model.run_config import RunConfig
from engine.programs import program_of

from .batches import make_batch as make_batch
from .decoders import make_weights

cython_cpu = pytest.importorskip("engine.backends.cython_cpu", reason="the backend is not there")
isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
placing = pytest.importorskip("engine.backends.cpu.placing")
plan_module = pytest.importorskip("engine.backends.cpu.plan")

SMALL = ModelConfig("test", hidden_size=44, num_layers=3, num_heads=4, head_width=11, ffn_size=100, vocab_size=120,
                    max_positions=140, token_types=2)
SHAPES = {
    "awkward": SMALL,
    "one of everything": ModelConfig("test", 1, 1, 1, 1, 1, vocab_size=5, max_positions=140, token_types=1),
    "heads wider than the model": ModelConfig("test", 20, 2, 3, 17, 33, vocab_size=50, max_positions=140),
    "a head of 256": ModelConfig("test", 72, 1, 2, 256, 65, vocab_size=50, max_positions=140),
    "no tables but the words": ModelConfig("test", 24, 2, 2, 12, 48, vocab_size=50, embedding_norm=False),
    "tanh": ModelConfig("test", 64, 2, 2, 32, 128, vocab_size=50, max_positions=140, activation="gelu_tanh"),
    "relu": ModelConfig("test", 64, 2, 2, 32, 128, vocab_size=50, max_positions=140, activation="relu"),
    "deep": ModelConfig("test", 16, 2, 1, 16, 1100, vocab_size=50, max_positions=140),
}


def precisions_of(name=None):
    """Return the precisions that the compiled kernels of this name have, by default those that the engine chooses."""
    kernels = isa.load(name) if name else isa.chosen()
    return [precision for precision in LOADABLE if kernels.product(precision).exists]


def sets_of_models():
    """Return the names of the compiled kernels that run here, without those that only stand for others that do, too.

    Where AMX itself runs, tests of kernels and of digests compare its emulation with it. A build for a sanitizer, which
    cannot look into tiles, has the kernels `wide` as well.
    """
    names = isa.available()
    return [name for name in names if name != "amxemulated" or "amx" not in names or "wide" in names]


EVERY_PRODUCT = [(name, precision) for name in sets_of_models() for precision in precisions_of(name)]
"""(name of such kernels, a precision that they have)"""


def make_plan(config, weights, threads=1, name=None, max_tokens=2048, precision="float32"):
    """Return a plan on the compiled kernels of this name, by default on the kernels that the engine chooses."""
    kernels = isa.load(name) if name else isa.chosen()
    return plan_module.CpuPlan(kernels, config, weights, RunConfig(threads, precision, max_tokens))


def rounds_queries(config, product):
    """Return whether the products that make queries round them, before attention scales them."""
    return product.attends_rows and bool(placing.bfloat16_heads(program_of(config)))


def one_sequence(batch, i):
    """Return the i-th sequence of a batch as a batch of its own."""
    rows = slice(*batch.cu_seqlens[i : i + 2])
    return Batch(np.array([0, rows.stop - rows.start], np.int32), batch.input_ids[rows], None,
                 batch.position_ids[rows], batch.token_type_ids[rows])


WEIGHTS = make_weights(SMALL)
