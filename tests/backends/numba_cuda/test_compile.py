"""Compile every kernel with ptxas: within its registers, without local memory, on tensor cores."""

import importlib
import os
import pkgutil
import re

import pytest

from engine.backends.numba_cuda import kernels
from engine.backends.numba_cuda.ptx.epilogue import ACTIVATIONS
from engine.backends.numba_cuda.toolchain import device_function, types

from .gate import assembled, linked, tool

pytestmark = pytest.mark.skipif(tool("ptxas") is None, reason="needs ptxas: make test-cuda")


def shifted(score, b, h, q_index, kv_index, shifts):
    return score + shifts[h] * abs(q_index - kv_index)


VARIANTS = {
    "attention": lambda k: [*(k.attention_kernel(d, rows) for d in k.WIDTHS for rows in (64, 128)
                              if rows == 64 or d <= k.WIDEST_OF_128_ROWS),
                            *(k.attention_kernel(d, 64, **{change: True}) for d in (64, 256)
                              for change in ("capped", "biased", "relative")),
                            *(k.attention_kernel(d, 128, apart=True) for d in (64, 96, 128)),
                            k.attention_kernel(256, 64, capped=True, apart=True)],
    "attention_hopper": lambda k: [*(k.attention_kernel(d, rows) for d in k.WIDTHS for rows in (64, 128)),
                                   *(k.attention_kernel(d, rows, biased=True) for d in k.WIDTHS for rows in (64, 128)),
                                   *(k.attention_kernel(d, 128, capped=True) for d in k.WIDTHS),
                                   *(k.attention_kernel(d, 128, apart=True) for d in k.WIDTHS),
                                   k.attention_kernel(128, 64, capped=True, apart=True)],
    "copy": lambda k: [k.copy_kernel(bfloat16) for bfloat16 in (True, False)],
    "embedding": lambda k: [k.embedding_kernel("layer", 32), k.embedding_kernel(None, 128),
                            k.embedding_kernel("rms", 512)],
    "float32": lambda k: [k.linear_kernel("gelu", gate=True), k.linear_kernel(residual=True), k.attention_kernel(256),
                          k.attention_kernel(32, capped=True, biased=True, relative=True)],
    "heads": lambda k: [k.heads_kernel(norm, bfloat16) for norm in k.NORMS for bfloat16 in (True, False)],
    "linear": lambda k: [k.linear_kernel("gelu"), k.linear_kernel(residual=True),
                         *(k.linear_kernel(name, tile=k.SMALL) for name in ACTIVATIONS
                           if name not in ("identity", "gelu")),
                         k.linear_kernel(residual=True, tile=k.SMALL), k.linear_kernel(wide=True),
                         *(k.linear_kernel("gelu", tile=tile, gate=True) for tile in (k.LARGE, k.SMALL))],
    "linear_few": lambda k: [k.linear_kernel("gelu"), k.linear_kernel(residual=True),
                             k.linear_kernel("gelu_tanh", tokens=16, gate=True),
                             k.linear_kernel("silu", tokens=16, wide=True)],
    "linear_hopper": lambda k: [k.lay_out_kernel(), k.linear_kernel("gelu"), k.linear_kernel(residual=True),
                                k.linear_kernel("gelu", tile=k.ALTERNATE),
                                k.linear_kernel(residual=True, tile=k.SMALL), k.linear_kernel(wide=True),
                                *(k.linear_kernel("gelu", tile=tile, gate=True)
                                  for tile in (k.LARGE, k.ALTERNATE, k.SMALL))],
    "norm": lambda k: [k.norm_kernel(kind, threads) for kind in ("layer", "rms") for threads in k.THREADS],
    "operations": lambda k: [k.unpadded_norm_kernel(), k.unpadded_norm_kernel(rms=True, biased=False),
                             k.softmax_kernel(), k.activation_kernel("gelu", gated=True),
                             k.rotation_kernel(interleaved=True), k.rotation_kernel(interleaved=False),
                             k.column_maxima_kernel(), k.gather_kernel("float32"), k.gather_kernel("uint8"),
                             k.widen_kernel(), k.round_kernel(), k.sum_kernel()],
    "pooling": lambda k: [k.pooling_kernel(mode) for mode in ("cls", "max", "weightedmean")],
    "strided_attention": lambda k: [k.strided_attention_kernel(2), k.strided_attention_kernel(16),
                                    k.strided_attention_kernel(4, device_function(shifted), (types.float32[::1],))],
}
"""The variants of each module of kernels that are compiled: all of them, or the largest and the most unusual ones."""


def catalogue():
    """Return every variant of every module in kernels/; a module without variants is an error."""
    for module in pkgutil.iter_modules(kernels.__path__):
        yield from VARIANTS[module.name](importlib.import_module(f"{kernels.__name__}.{module.name}"))


def cases():
    """Yield each kernel with what compiles it: one of the two in turns, or with ALL_CUDA=1 both."""
    for number, kernel in enumerate(catalogue()):
        ways = [assembled, linked]
        yield from ((kernel, way) for way in (ways if os.environ.get("ALL_CUDA") else [ways[number % 2]]))


@pytest.mark.parametrize(("kernel", "compiled"), list(cases()), ids=lambda one: getattr(one, "name", None))
def test_kernel_keeps_its_budget(kernel, compiled, tmp_path):
    # ptxas for the lowest architecture, nvJitLink for Hopper: both for both would take twice as long.
    found = compiled(kernel, (9, 0, "a") if compiled is linked else kernel.arch, tmp_path)
    assert (found.stack, found.spills, found.warnings) == (0, 0, [])
    assert found.registers <= kernel.registers
    assert found.registers * kernel.threads * kernel.blocks_per_sm <= 65536
    if found.instructions:
        assert {name: found.instructions[name] for name in kernel.instructions} == dict(kernel.instructions)
        if kernel.name.startswith("attention wgmma"):
            # The exponentials of 64 scores run between the wait for the scores and the wait for the older sums.
            assert re.split(r"WARPGROUP\.DEPBAR", found.code)[2].count("MUFU.EX2") >= 64
