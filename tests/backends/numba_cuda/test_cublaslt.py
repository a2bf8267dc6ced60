"""Test the wrapper of cuBLASLt, as far as is possible without a GPU."""

import pytest

from asv_bench.gpu.cublaslt import Linear


class Refusing:
    """A library whose functions all fail."""

    def __getattr__(self, name):
        return lambda *arguments: 7


def test_a_status_names_the_function():
    with pytest.raises(RuntimeError, match="cublasLtCreate failed with cublasStatus_t 7"):
        Linear(Refusing(), 8, 8, 8, 0)


def test_gelu_and_a_residual_exclude_each_other():
    with pytest.raises(ValueError, match="before GELU"):
        Linear(Refusing(), 8, 8, 8, 0, gelu=True, residual=True)
