"""The CPU backend: kernels compiled ahead of time from Cython, one module for each instruction set.

    isa.py        the kernels to use          table.pxd       the kernel table, which each kernels_<isa>.pyx fills
    panels.py     weights packed for them     tile.pxi ...    the kernels, written once over simd.h, dot.h, bfloat16.h
    lowering.py   a program as instructions   program.pxi     the instructions; executor.pxi owns them and their memory
    schedule.py   groups of sequences         schedule.pxi    how threads share the instructions; pool.c the threads
    plan.py       a model ready to run        kernel_table.pxi, weights.pxi      the table and weights for Python
    native_ops.py single operations           operations.pxi, attention_operation.pxi      their native calls
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ...config import ModelConfig, RunConfig
from ...errors import BackendUnavailable, UnsupportedError
from ...installation import explain_missing_kernels
from ...precision import COMPUTED
from .. import Plan
from ..functional import Ops


class CythonBackend:
    """Runs models on kernels compiled ahead of time; see `engine.backends.Backend`."""

    name = "cython"

    def unavailable(self) -> str | None:
        """Return why the compiled kernels cannot run here, or None when they can."""
        try:
            from . import isa

            isa.chosen()
        except ImportError as error:
            return explain_missing_kernels(error)
        except BackendUnavailable as error:
            return str(error)
        return None

    def tuned(self) -> bool:
        """Return whether there are kernels for this CPU's vectors, or ENGINE_ISA names the kernels to use."""
        from . import isa

        return "ENGINE_ISA" in os.environ or isa.chosen().isa != "portable"

    def describe(self) -> str:
        """Describe the instruction set in use, and list the sets that could be used."""
        from . import isa

        chosen = isa.chosen().isa
        # "wide" is for tests only, and nobody gets it without naming it.
        names = [name for name in isa.available() if name != "wide" or name == chosen]
        return f"{chosen} kernels (of {', '.join(names)} here; ENGINE_ISA chooses)"

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Pack the weights for this CPU's kernels."""
        from . import isa
        from .plan import CythonPlan

        if run.precision not in COMPUTED:
            raise UnsupportedError(f"the cython backend computes in {', '.join(COMPUTED)}; "
                                   f"precision {run.precision!r} is not there")
        return CythonPlan(isa.chosen(), config, weights, run)

    def ops(self, threads: int) -> Ops:
        """Return the single operations, which run on this CPU's kernels."""
        from . import isa
        from .native_ops import NativeOps

        return NativeOps(isa.chosen(), threads)


BACKEND = CythonBackend()
