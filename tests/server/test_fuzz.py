"""Some hundred mutated requests; `make fuzz-requests` sends 100,000."""

import pytest

pytest.importorskip("uvicorn")

from .fuzz import run


def test_mutated_requests_get_the_answers_of_mistakes():
    found = run(400, seed=0)
    assert found[200] > 60
    assert found[400] + found[422] > 100
