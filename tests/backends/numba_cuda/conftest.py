"""The fixture of a backend "cuda" whose GPU is emulated."""

import pytest

from engine.backends import numba_cuda
from engine.ops import arguments

from ...tools.emulated_device import EmulatedDevice


@pytest.fixture
def emulated(monkeypatch):
    """Return the emulated device on which backend="cuda" runs everywhere."""
    device = EmulatedDevice()
    monkeypatch.setattr(numba_cuda.CudaBackend, "unavailable", lambda self: None)
    monkeypatch.setattr(numba_cuda, "_gpu", lambda: device)
    arguments._ops.cache_clear()
    yield device
    arguments._ops.cache_clear()
