"""Test GPU kernels without a GPU: run as Python, and compiled. All tests are skipped without the extra [cuda]."""

import pytest

from engine import BackendUnavailable

try:
    import engine.backends.numba_cuda.toolchain  # noqa: F401
except BackendUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)
