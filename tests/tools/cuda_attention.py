"""What changes the scores of attention on a GPU, and attention with it in float64."""

from itertools import pairwise

import numpy as np

from engine.backends.numba_cuda.kernels.attention import UNBOUNDED
from engine.backends.numba_cuda.ptx.scores import CAP_RATE
from engine.backends.reference.formulas import softmax
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

CHANGES = {"cap": {"cap": 1.5}, "bias": {"biased": True}, "cap and bias": {"cap": 1.5, "biased": True},
           "relative": {"relative": True}}
"""The changes that tests make, as options of `Change`."""


class Change:
    """What changes the scores of H heads: a cap, biases by distance with slopes, terms of relative positions."""

    def __init__(self, H=1, cap=0.0, biased=False, relative=False, N=1, radius=5, rows=8):
        rng = np.random.default_rng(8)
        self.cap, self.radius = cap, radius
        self.line = rng.standard_normal((H, 2 * radius + 1), np.float32) if biased else None
        self.slopes = rng.standard_normal(H, np.float32) / 50
        self.terms = to_bfloat16(rng.standard_normal((N, 2 * H * rows), np.float32) * 3) if relative else None
        self.numbers = rng.integers(0, rows, 2 * radius + 1, np.int32)
        self.options = {"capped": cap > 0, "biased": biased, "relative": relative}

    def arguments(self, d, dtype=np.uint16):
        """Return the arguments of a kernel for a scale of d^-0.5."""
        line, cap = np.zeros((1, 1), np.float32) if self.line is None else self.line, self.cap * d**0.5
        terms = np.zeros((1, 1), np.uint16) if self.terms is None else self.terms
        terms = terms if dtype == np.uint16 else from_bfloat16(terms)
        return (np.float32(CAP_RATE / cap if cap else 0), np.float32(cap), line * np.float32(d**0.5),
                self.slopes * np.float32(d**0.5), terms, self.numbers)

    def __call__(self, scores, h, begin, scale):
        """Return the changed scores [T, T] of a sequence that begins at a token."""
        T, distance = len(scores), np.subtract.outer(np.arange(len(scores)), np.arange(len(scores)))
        near = np.clip(distance, -self.radius, self.radius) + self.radius
        if self.terms is not None:
            terms = from_bfloat16(self.terms[begin:begin + T]).reshape(T, 2, len(self.slopes), -1)[:, :, h]
            row = self.numbers[near]
            scores = scores + (terms[np.arange(T)[:, None], 0, row] + terms[np.arange(T), 1, row]) * scale
        scores = self.cap * np.tanh(scores / self.cap) if self.cap else scores
        return scores if self.line is None else scores + self.line[h, near] + self.slopes[h] * np.abs(distance)


def definition(qkv, cu_seqlens, d, H, window=(UNBOUNDED, UNBOUNDED), keys=None, change=None):
    """Compute the same in float64, sequence by sequence."""
    x = from_bfloat16(qkv).astype(np.float64).reshape(len(qkv), -1, d)
    G = (x.shape[1] - H) // 2
    result = np.zeros((len(x), H, d))
    for number, (begin, end) in enumerate(pairwise(cu_seqlens)):
        t, s = np.arange(end - begin)[:, None], np.arange(end - begin)
        seen = (s >= t - window[0]) & (s <= t + window[1]) & (s < (end - begin if keys is None else keys[number]))
        for h in range(H):
            k, v = x[begin:end, H + h // (H // G)], x[begin:end, H + G + h // (H // G)]
            scores = x[begin:end, h] @ k.T * d**-0.5
            scores = scores if change is None else change(scores, h, begin, d**-0.5)
            result[begin:end, h] = softmax(np.where(seen, scores, -np.inf)) @ v
    return result
