"""What several folders of tests share."""

import pytest

from engine import BackendUnavailable
from engine.backends import BACKENDS, get_backend


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """The name of each backend that this machine has."""
    try:
        get_backend(request.param)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    return request.param
