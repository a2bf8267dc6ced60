"""Test that the tests run with the packages of the extras [cuda] and [cuda-compile]."""

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")


def test_tests_run_with_what_the_extra_pins():
    here = Path(__file__)
    project = tomllib.loads((here.parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tested = (here.parent / "requirements.txt").read_text(encoding="utf-8").splitlines()
    extras = project["optional-dependencies"]
    assert {*extras["cuda"], *extras["cuda-compile"]} - {"encoder-engine[cuda]"} <= set(tested)
