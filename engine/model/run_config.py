"""The settings with which a model runs: `RunOptions`, the arguments of each `load`, and `RunConfig` for a backend."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.arguments import count_or_none, positive_int, positive_int_or_none
from ..base.cpus import choose_threads
from ..base.errors import InputError
from ..base.options import Options, option
from .bits import FASTEST, PORTABLE
from .precision import FORMATS, cache_name

KEPT = 4096
"""The most tokens of prefixes that a model keeps between two calls, unless the caller says otherwise."""


@dataclass(frozen=True)
class RunConfig:
    """The settings with which a backend runs one part of a model, an encoder or a decoder."""

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


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """The options of each `load` that say how a model is run; `load` of each class explains them.

    Only models that generate have max_rows, cache_tokens, keep_tokens and cache.
    """

    backend: str = "auto"
    threads: int | None = None
    max_batch_tokens: int = option(8192, positive_int)
    precision: str | None = None
    max_rows: int = option(64, positive_int)
    cache_tokens: int | None = option(None, positive_int_or_none)
    keep_tokens: int | None = option(None, count_or_none)
    cache: str | None = option(None, lambda name, value: cache_name(value))
    bits: str = FASTEST

    @property
    def kept(self) -> int:
        """The most tokens that the cache keeps between calls; raises `InputError` for more than it may hold."""
        if self.keep_tokens is None:
            return KEPT if self.cache_tokens is None else min(KEPT, self.cache_tokens)
        if self.cache_tokens is not None and self.keep_tokens > self.cache_tokens:
            raise InputError(f"keep_tokens={self.keep_tokens:,} must not be above cache_tokens={self.cache_tokens:,}, "
                             "which bounds all tokens of the cache, with those that are kept")
        return self.keep_tokens

    def config(self, precision: str) -> RunConfig:
        """Return the settings of a part of a model that is computed in this precision; raises `InputError`."""
        return RunConfig(choose_threads(self.threads), precision, self.max_batch_tokens, self.cache_tokens, self.cache,
                         self.bits)
