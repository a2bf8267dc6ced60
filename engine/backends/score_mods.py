"""Compile a caller's score function for the attention kernels of any CPU backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .numba_cpu.score_mod import ScoreModCode


def compiled(score_mod: Callable[..., float] | None) -> ScoreModCode | None:
    """Return the machine code of a score function, which Numba makes; None for None.

    Raises `BackendUnavailable` where Numba is missing, and `InputError` for a function that it cannot compile.
    """
    if score_mod is None:
        return None
    from .numba_cpu.score_mod import compile_score_mod

    return compile_score_mod(score_mod)
