"""Run every kernel test on every instruction set of this machine and this build, and on Numba's kernels."""

import pytest

tools = pytest.importorskip(f"{__package__}.tools", reason="the compiled kernels are not built")


@pytest.fixture(params=tools.PROVIDERS)
def kernels(request):
    if reason := tools.why_not(request.param):
        pytest.skip(reason)
    return tools.load(request.param)
