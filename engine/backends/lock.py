"""Let one call at a time use the memory of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import BackendUnavailable
from ..base.install import explain_missing_kernels

if TYPE_CHECKING:
    from .cpu.native.native import TurnLock


def new_turn() -> TurnLock:
    """Return the right to use a plan's memory, as turn.pxi describes it. No fork can leave it locked.

    Raises `BackendUnavailable` where the compiled modules are missing.
    """
    try:
        from .cpu.native.native import TurnLock  # here, because `import engine` shall work without compiled modules
    except ImportError as error:
        raise BackendUnavailable(explain_missing_kernels(error)) from error
    return TurnLock()
