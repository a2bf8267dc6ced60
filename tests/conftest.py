"""What several folders of tests share."""

import pytest

from engine import BackendUnavailable, UnsupportedError
from engine.backends import BACKENDS, get_backend


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """The name of each backend that has single operations on this machine."""
    try:
        get_backend(request.param).ops(1)
    except (BackendUnavailable, UnsupportedError) as error:
        pytest.skip(str(error))
    return request.param
