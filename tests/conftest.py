"""Define fixtures that several folders of tests use."""

import pytest

from engine import BackendUnavailable, UnsupportedError
from engine.backends import BACKENDS, get_backend


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """Return the name of each backend that runs single operations on this machine."""
    try:
        get_backend(request.param).ops(1)
    except (BackendUnavailable, UnsupportedError) as error:
        pytest.skip(str(error))
    return request.param
