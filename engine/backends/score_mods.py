"""Compile a caller's score function for the attention kernels of any CPU backend, and explain its failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from .ops_interface import AttentionCall
from .reference.attention import attention

if TYPE_CHECKING:
    from .numba_cpu.compiler.score_mod import ScoreModCode


def compiled(score_mod: Callable[..., float] | None) -> ScoreModCode | None:
    """Return the machine code of a score function, which Numba makes; None for None.

    Raises `BackendUnavailable` where Numba is missing, and `InputError` for a function that it cannot compile.
    """
    if score_mod is None:
        return None
    from .numba_cpu.compiler.score_mod import compile_score_mod

    return compile_score_mod(score_mod)


def check_results(call: AttentionCall, out: np.ndarray) -> None:
    """Raise `InputError` if the score function of a call failed for a key that its query sees; out is the result.

    Kernels compute scores in blocks, and call the function for hidden keys too. Where it fails, its result is NaN,
    which does not reach the result if the key is hidden. So only queries whose result is NaN are computed again, in
    Python.
    """
    for b, h, t in np.argwhere(np.isnan(out).any(axis=3)).tolist():
        with np.errstate(all="ignore"):
            python_result = attention(_one_query(call, b, h, t))
        if not np.isnan(python_result).any():  # a function by numba.njit that it calls runs in Python without checks
            raise InputError(f"score_mod failed for a key of b={b}, h={h}, q_index={t}: a function that it calls has a "
                             "subscript outside its array, or raises an exception")


def _one_query(call: AttentionCall, b: int, h: int, t: int) -> AttentionCall:
    """Return the call for query t alone, with a score function whose error says where it fails."""
    score_mod: Any = call.score_mod

    def explained(score: float, _b: int, _h: int, _t: int, s: int) -> float:
        try:
            return score_mod(score, b, h, t, s)
        except Exception as error:
            raise InputError(f"score_mod failed at b={b}, h={h}, q_index={t}, kv_index={s}: "
                             f"{type(error).__name__}: {error}") from error

    group = call.q.shape[1] // call.k.shape[1]
    # The only query has index 0, not t, so its band moves by t.
    query, keys = np.s_[b:b + 1, h:h + 1, t:t + 1], np.s_[b:b + 1, h // group:h // group + 1]
    return replace(call, q=call.q[query], k=call.k[keys], v=call.v[keys], low=call.low[b:b + 1] + t,
                   high=call.high[b:b + 1] + t, lengths=call.lengths[b:b + 1],
                   bias=None if call.bias is None else call.bias[query],
                   mask=None if call.mask is None else call.mask[query], score_mod=explained)
