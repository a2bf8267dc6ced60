"""The keys and values of sources: what the program of cross-attention writes to the memory of each source."""

from itertools import pairwise

import numpy as np
import pytest

from engine import InputError
from engine.model.run_config import RunConfig
from engine.programs import cross_program
from engine.programs.operations import Buffer, Linear, LinearPart, Store
from engine.programs.program import Program

from ...tools.decoders import DECODERS, make_weights, sources
from ...tools.plans import EVERY_PRODUCT

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
decoder_module = pytest.importorskip("engine.backends.cpu.decoder")
lowering = pytest.importorskip("engine.backends.cpu.lowering")

GUARD = np.float32(12345.5)
LENGTHS = (1, 7, 64, 65, 200)


class Sources:
    """The program of a decoder, ready to run."""

    def __init__(self, config, precision, name, threads):
        product = isa.load(name).product(precision)
        self.config, self.weights = config, make_weights(config)
        packer = lowering.Packer(product, self.weights)
        self.executor = lowering.lower(cross_program(config), product, packer, threads)
        self.width = packer.padded(config.head_width, 1)

    def run(self, lengths):
        """Return the memory [layers, 2, heads, S, width] of each source; guard values lie around each."""
        vectors, cu_seqlens = sources(self.config, lengths)
        shape = self.config.num_layers, 2, self.config.kv_heads
        memories = [np.full(int(np.prod(shape)) * n * self.width + 32, GUARD) for n in lengths]
        addresses = np.array([memory[16:].ctypes.data for memory in memories], np.uintp)
        sequences = np.array([(first, n, 0) for first, n in zip(cu_seqlens, lengths, strict=False)])
        self.executor.forward(sequences, np.array([(1, n) for n in lengths]), False, None, vectors, None, None, [],
                              results=addresses)
        for memory in memories:
            assert (memory[:16] == GUARD).all()
            assert (memory[-16:] == GUARD).all()
        return [memory[16:-16].reshape(*shape, n, self.width) for memory, n in zip(memories, lengths, strict=True)]

    def expected(self, lengths, dtype):
        """Return the same by the formula, without the columns that pad a head."""
        vectors, cu_seqlens = sources(self.config, lengths)
        config, found = self.config, []
        for first, last in pairwise(cu_seqlens):
            out = np.empty((config.num_layers, 2, config.kv_heads, last - first, config.head_width), dtype)
            for layer in range(config.num_layers):
                for i, name in enumerate(("key", "value")):
                    prefix = f"layers.{layer}.cross.{name}"
                    w, bias = (self.weights.get(f"{prefix}.{kind}", np.zeros(1)) for kind in ("weight", "bias"))
                    y = vectors[first:last].astype(dtype) @ w.T.astype(dtype) + bias.astype(dtype)
                    out[layer, i] = y.reshape(last - first, config.kv_heads, -1).transpose(1, 0, 2)
            found.append(out)
        return found


@pytest.mark.parametrize("name", isa.available())
@pytest.mark.parametrize("model", ["2017", "pre-norm"])
def test_float32_against_float64(model, name):
    found = Sources(DECODERS[model], "float32", name, 2)
    d = found.config.head_width
    for out, exact, naive in zip(found.run(LENGTHS), found.expected(LENGTHS, np.float64),
                                 found.expected(LENGTHS, np.float32), strict=True):
        assert np.abs(out[..., :d] - exact).max() <= 4 * np.abs(naive - exact).max() + 1e-6 * np.abs(exact).max()
        assert (out[..., d:] == 0).all()


@pytest.mark.parametrize(("name", "precision"), EVERY_PRODUCT)
def test_bits_depend_neither_on_threads_nor_on_other_sources(precision, name):
    by_threads = {threads: Sources(DECODERS["2017"], precision, name, threads) for threads in (1, 2, 3, 4)}
    expected, all_at_once = [by_threads[1].run([n])[0] for n in LENGTHS], by_threads[1].run([sum(LENGTHS)])[0]
    for found in by_threads.values():
        together = found.run(LENGTHS)
        # `sources` gives each call the same vectors from the start, so only the first source has those of `expected`.
        assert np.array_equal(together[0], expected[0])
        for n, own in zip(LENGTHS, expected, strict=True):
            assert np.array_equal(found.run([n])[0], own)
        assert np.array_equal(np.concatenate(together, 3), all_at_once)


def test_a_source_without_vectors_is_refused():
    config = DECODERS["2017"]
    decoder = decoder_module.CpuDecoder(isa.chosen(), config, make_weights(config), RunConfig(1))
    request = decoder.open()
    with pytest.raises(InputError, match="has no vectors"):
        decoder.cache_sources([request], np.zeros((0, 38), np.float32), np.array([0, 0], np.int32))


def test_heads_that_are_not_all_results_are_refused():
    product = isa.load("baseline").product("float32")
    heads = Linear("x", (LinearPart("w", None, "k", 8, 2),))
    packer = lowering.Packer(product, {"w": np.ones((8, 8), np.float32)})
    for operations in ((heads, Store("k"), Store("x", array=1)), (heads, Store("k", array=1))):
        with pytest.raises(ValueError, match="are not all results"):
            lowering.lower(Program(operations, (("x", Buffer(8)),)), product, packer, 1)
