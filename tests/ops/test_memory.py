"""Test that attention allocates memory for its result, not for its scores."""

import subprocess
import sys

import pytest

CODE = """
import resource
import numpy as np
from engine.ops import attention

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 8192, 64), np.float32)
attention(q[:, :, :99], k, v, backend="{backend}", {options})
before = peak()
out = attention(q, k, v, backend="{backend}", {options})
print(peak() - before - out.nbytes)
"""


@pytest.mark.parametrize("options", ["", "causal=True", "window=(64, 64)", "softcap=30.0, bias=np.zeros((8192,), 'f')"])
def test_no_scores_are_kept(backend, options):
    if backend == "reference":
        pytest.skip("the reference holds the scores of one head")
    code = CODE.format(backend=backend, options=options)
    extra = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert extra < 16 * 2**20, "all scores of a head would take 256 MiB"
