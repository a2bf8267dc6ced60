"""Every kernel test runs on every instruction set that this machine and this build have, and on Numba's kernels."""

import pytest

tools = pytest.importorskip(f"{__package__}.tools", reason="the compiled kernels are not built")


@pytest.fixture(params=tools.PROVIDERS)
def kernels(request):
    if reason := tools.why_not(request.param):
        pytest.skip(reason)
    return tools.load(request.param)
