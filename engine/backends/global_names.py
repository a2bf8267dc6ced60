"""Find the global names that a function reads, for the compilers of kernels and of score functions."""

from __future__ import annotations

from types import CodeType


def global_names(code: CodeType) -> set[str]:
    """Return the names that the code, or a function within it, may look up in the globals, attributes included."""
    functions_within = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(global_names, functions_within))
