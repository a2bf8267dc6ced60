"""Test the functions of examples/score_mods.py on every backend that compiles them."""

import runpy

import numpy as np
import pytest

from engine import BackendUnavailable, UnsupportedError
from engine.backends import BACKENDS, get_backend
from engine.ops import attention

from ..tools.paths import ROOT

pytest.importorskip("numba", reason="score_mod is compiled by Numba")
B, H, T, d = 2, 3, 45, 16
EXAMPLES = runpy.run_path(str(ROOT / "examples" / "score_mods.py"))["examples"](B, H, T)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
@pytest.mark.parametrize("score_mod", EXAMPLES.values(), ids=EXAMPLES)
def test_example_agrees_with_the_reference(backend, score_mod):
    try:
        get_backend(backend).ops(1)
    except (BackendUnavailable, UnsupportedError) as error:
        pytest.skip(str(error))
    q, k, v = np.random.default_rng(0).standard_normal((3, B, H, T, d), np.float32)
    exact = attention(*(x.astype(np.float64) for x in (q, k, v)), score_mod=score_mod, backend="reference")
    naive = attention(q, k, v, score_mod=score_mod, backend="reference")
    out = attention(q, k, v, score_mod=score_mod, backend=backend)
    assert np.abs(exact - attention(q, k, v, backend="reference")).max() > 0.1, "it changes something"
    assert np.abs(out - exact).max() <= 3 * np.abs(naive - exact).max() + np.finfo(np.float32).eps * np.abs(v).max()
