"""Compute attention with your own score functions: ALiBi, packed documents and a learned distance bias.

    python examples/score_mods.py
"""

import functools
import math

import numpy as np

from engine.ops import alibi_slopes, attention

B, H, T, d = 2, 8, 256, 64


def alibi(score, b, h, q_index, kv_index, slopes):
    """Lower the score linearly with the distance: ALiBi (Press et al., arXiv 2108.12409)."""
    return score - slopes[h] * abs(q_index - kv_index)


def same_document(score, b, h, q_index, kv_index, document):
    """Hide the keys of other documents, so that one sequence can hold several documents."""
    return score if document[b, q_index] == document[b, kv_index] else -math.inf


def distance_bias(score, b, h, q_index, kv_index, table):
    """Add a learned number for each head and distance; all distances beyond the reach of the table share one."""
    reach = table.shape[1] // 2
    return score + table[h, min(max(q_index - kv_index, -reach), reach) + reach]


def examples(B: int, H: int, T: int) -> dict[str, functools.partial]:
    """Return the functions by name, with run-time arguments for B sequences of T tokens and H heads."""
    rng = np.random.default_rng(0)
    return {
        "ALiBi": functools.partial(alibi, slopes=alibi_slopes(H)),
        "packed documents": functools.partial(same_document, document=np.sort(rng.integers(0, 4, (B, T)))),
        "distance bias": functools.partial(distance_bias, table=rng.standard_normal((H, 33), np.float32)),
    }


def main() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, B, H, T, d), np.float32)
    plain = attention(q, k, v)
    for name, score_mod in examples(B, H, T).items():
        out = attention(q, k, v, score_mod=score_mod)
        print(f"{name:<17} out {list(out.shape)}, away from plain attention by up to {np.abs(out - plain).max():.2f}")


if __name__ == "__main__":
    main()
