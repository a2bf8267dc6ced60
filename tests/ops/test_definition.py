"""Test the reference's attention against the definition, written with loops over numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from engine.ops import attention

from .problems import problems


def by_definition(q, k, v, *, scale=None, causal=False, window=None, mask=None, bias=None, softcap=0.0, kv_lengths=None,
                  q_offset=None, score_mod=None):  # fmt: skip
    """Compute attention as `engine.ops.attention` describes it, one number after the other."""
    (B, H, T, d), (_, G, S, e) = q.shape, v.shape
    everywhere = np.full((B, H, T, S), True)
    mask = everywhere if mask is None else everywhere & mask
    bias = np.zeros(mask.shape) if bias is None else bias + np.zeros(mask.shape)
    out = np.zeros((B, H, T, e))
    for b, h, t in np.ndindex(B, H, T):
        g = h // (H // G)
        p = t + (0 if q_offset is None else q_offset if np.ndim(q_offset) == 0 else q_offset[b])
        weights = {}
        for s in range(S):
            left, right = window or (None, None)
            if (
                (causal and s > p)
                or (left is not None and s < p - left)
                or (right is not None and s > p + right)
                or (kv_lengths is not None and s >= kv_lengths[b])
                or not mask[b, h, t, s]
            ):
                continue
            score = sum(float(q[b, h, t, i]) * float(k[b, g, s, i]) for i in range(d))
            score *= 1 / math.sqrt(d) if scale is None else scale
            score = softcap * math.tanh(score / softcap) if softcap else score
            score += bias[b, h, t, s]
            score = score if score_mod is None else score_mod(score, b, h, t, s)
            if score != -math.inf:
                weights[s] = score
        top = max(weights.values(), default=0.0)
        total = sum(math.exp(score - top) for score in weights.values())
        for s, score in weights.items():
            out[b, h, t] += math.exp(score - top) / total * v[b, g, s].astype(np.float64)
    return out


@settings(max_examples=60, deadline=None)
@given(problem=problems(longest=8, widest=4, nan_where_seen=False))
def test_every_option(problem):
    expected = problem.call(by_definition)
    assert np.isfinite(expected).all()
    out = problem.call(attention, np.float64, backend="reference")
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-9 * np.abs(expected).max(initial=1.0))


@pytest.mark.parametrize("hide", [False, True])
def test_score_mod(hide):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, n, 3)) for heads, n in ((4, 5), (2, 6), (2, 6)))
    told = set()

    def score_mod(score, b, h, q_index, kv_index):
        told.add((b, h, q_index, kv_index))
        return -math.inf if hide and kv_index % 2 else score * (h + 1) + 10 * b - abs(q_index - kv_index)

    options = {"score_mod": score_mod, "causal": True, "softcap": 0.5, "bias": rng.standard_normal((4, 1, 6))}
    out = attention(q, k, v, backend="reference", **options)
    assert told == {(b, h, t, s) for b in range(2) for h in range(4) for t in range(5) for s in range(t + 1)}
    np.testing.assert_allclose(out, by_definition(q, k, v, **options), atol=1e-12)
