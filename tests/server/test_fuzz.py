"""Some hundred mutated requests; `make fuzz-requests` sends 100,000."""

import pytest

pytest.importorskip("uvicorn")

pytest.importorskip("jinja2")
pytest.importorskip("soundfile")

from .fuzz import MODELS, run


def test_mutated_requests_get_the_answers_of_mistakes():
    found = run(400, seed=0)
    for name in MODELS:
        assert found[name, 200] > 3, name
        assert found[name, 400] + found[name, 422] > 3, name
