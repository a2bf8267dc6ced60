"""Test that attention allocates memory for its result, not for its scores; the reference holds those of one head."""

import json
import subprocess
import sys

CODE = """
import json
import resource
import numpy as np
from engine.ops import attention

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4096, 64), np.float32)
found = []
for options in ({}, {"causal": True}, {"window": (64, 64)}, {"softcap": 30.0, "bias": np.zeros((4096,), "f")}):
    attention(q[:, :, :99], k, v, backend="BACKEND", **options)
    before = peak()
    out = attention(q, k, v, backend="BACKEND", **options)
    found.append(peak() - before - out.nbytes)
print(json.dumps(found))
"""


def test_no_scores_are_kept(compiled_backend):
    """All scores of a head would take 64 MiB, so that each kind of attention would raise the peak above the others."""
    code = CODE.replace("BACKEND", compiled_backend)
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    extra = json.loads(run.stdout)
    assert len(extra) == 4
    assert max(extra) < 16 * 2**20
