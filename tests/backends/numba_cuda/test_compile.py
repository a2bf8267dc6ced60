"""Compile every kernel with ptxas: within its registers, without local memory, on tensor cores."""

import importlib
import pkgutil
import re

import pytest

from engine.backends.numba_cuda import kernels

from .gate import assembled, linked, tool

pytestmark = pytest.mark.skipif(tool("ptxas") is None, reason="needs ptxas: make test-cuda")


def catalogue():
    """Return every kernel of every module in kernels/."""
    for module in pkgutil.iter_modules(kernels.__path__):
        yield from importlib.import_module(f"{kernels.__name__}.{module.name}").catalogue()


@pytest.mark.parametrize("compiled", [assembled, linked])
@pytest.mark.parametrize("kernel", list(catalogue()), ids=lambda kernel: kernel.name)
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
