"""Test GPU kernels without a GPU: run as Python, and compiled. Without the extra [cuda-compile] all are skipped."""

import pytest

from engine import BackendUnavailable

try:
    import engine.backends.numba_cuda.compiler  # noqa: F401
except BackendUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)
