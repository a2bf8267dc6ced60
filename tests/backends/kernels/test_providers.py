"""Which kernel tables the tests of this folder run on: one skipped test for each that does not run here."""

import pytest

from . import tools


@pytest.mark.parametrize("name", tools.PROVIDERS)
def test_kernels_run_here(name):
    if reason := tools.why_not(name):
        pytest.skip(reason)
    kernels = tools.load(name)
    assert name in ("numba", kernels.isa)
    assert kernels.VL >= 4


def test_lists_of_kernels_by_what_they_have():
    """The lists name what each table says, and no table is left out because it was never asked."""
    for name in tools.available():
        product = tools.load(name).product("bfloat16")
        assert product.exists
        assert (name in tools.ATTENDING_IN_BFLOAT16) == (not product.attends_in_float32), name
        assert (name in tools.WRITING_OPERANDS) == bool(product.operands_depth), name
        assert (name in tools.ATTENDING_ROWS) == bool(product.attends_rows), name
