"""Operations are tested on every backend that this machine has."""

import pytest

from engine import BackendUnavailable
from engine.backends import BACKENDS, get_backend


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    try:
        chosen = get_backend(request.param)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    if not hasattr(chosen, "ops"):
        pytest.skip(f"{request.param} has no single operations")
    return request.param
