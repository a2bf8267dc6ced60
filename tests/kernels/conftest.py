"""Every kernel test runs on every instruction set that this machine and this build have, and on Numba's kernels."""

import pytest

pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

from .tools import PROVIDERS, load, why_not


@pytest.fixture(params=PROVIDERS)
def kernels(request):
    if reason := why_not(request.param):
        pytest.skip(reason)
    return load(request.param)
