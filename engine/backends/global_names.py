"""Say which names a function may look up in its globals."""

from __future__ import annotations

from types import CodeType


def global_names(code: CodeType) -> set[str]:
    """Return the names that the code, or a function within it, may look up in the globals."""
    return set(code.co_names).union(*(global_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
