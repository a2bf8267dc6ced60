"""Run every kernel test on every instruction set of this machine and this build, and on Numba's kernels."""

import pytest

tools = pytest.importorskip(f"{__package__}.tools", reason="the compiled kernels are not built")


@pytest.fixture(params=tools.available())
def kernels(request):
    """Return each kernel table that runs here. test_providers.py says which do not, and why."""
    return tools.load(request.param)
