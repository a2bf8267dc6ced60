"""Every kernel test runs on every instruction set that this machine and this build have."""

import pytest

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")


@pytest.fixture(params=isa.INSTRUCTION_SETS)
def kernels(request):
    if reason := isa.why_not(request.param):
        pytest.skip(reason)
    return isa.load(request.param)
