"""The description of how a model is run, `RunConfig`: threads, precision, and tokens in one pass."""

from __future__ import annotations

from dataclasses import dataclass

from .bits import FASTEST, PORTABLE
from .precision import FORMATS


@dataclass(frozen=True)
class RunConfig:
    """The settings with which a backend runs a model."""

    threads: int = 1
    """Number of threads of one forward pass, including the calling thread."""
    precision: str = "float32"
    """Precision of linear weights and of the operands that they multiply, one of `engine.model.precision`. Everything
    else is float32. A backend refuses a precision that it lacks."""
    max_tokens: int = 8192
    """Largest number of tokens that are computed together. It bounds the workspace but not the size of a batch, because
    a larger batch runs as several groups of sequences."""
    cache_tokens: int | None = None
    """The most tokens of all open requests of a decoder together; None for any number."""
    cache: str | None = None
    """Precision of the keys and values that a decoder keeps: "float32", "bfloat16" or "int8", which has a scale for
    each token and key head. None for that of `FORMATS[precision].cache`."""
    bits: str = FASTEST
    """Whose bits results have, one of `engine.model.bits`. A backend refuses portable bits if it lacks them."""

    @property
    def portable(self) -> bool:
        """Return whether results have the bits that all CPUs have in common."""
        return self.bits == PORTABLE

    @property
    def cache_precision(self) -> str:
        """Return the precision of the keys and values that a decoder keeps."""
        return self.cache or FORMATS[self.precision].cache
