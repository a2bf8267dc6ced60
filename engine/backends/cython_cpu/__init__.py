"""The CPU backend: kernels compiled ahead of time from Cython, one module for each instruction set.

    isa.py        the kernels to use          table.pxd       the kernel table, which each kernels_<isa>.pyx fills
    panels.py     weights packed for them     tile.pxi ...    the kernels, written once over simd.h ... tiles.h
    placing.py    where its buffers lie
    lowering.py   a program as instructions   machine.pxi     the instructions; program.pxi runs, executor.pxi owns them
    schedule.py   groups of sequences         schedule.pxi    how threads share the instructions; pool.c the threads
    plan.py       a model ready to run        kernel_table.pxi, weights.pxi      the table and weights for Python
    decoder.py    a decoder, step by step     state.pxi attention over its cache, cache.py; maps.pxi logits and memories
    native_ops.py single operations           operations.pxi, attention_operation.pxi      their native calls
                                              vocabulary.pxi, best.pxi                     the best logits of a product
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ...config import ModelConfig, RunConfig
from ...errors import BackendUnavailable, UnsupportedError
from ...installation import explain_missing_kernels
from ...layout import Layout
from ...precision import COMPUTED
from .. import DecoderPlan, Plan
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
        """Describe in lines the instruction set in use, the sets that could be used, and what multiplies and why."""
        from . import isa

        chosen = isa.chosen()
        # Nobody gets those for tests without naming them.
        names = [name for name in isa.available() if name not in isa.FOR_TESTS or name == chosen.isa]
        first = f"{chosen.isa} kernels (of {', '.join(names)} here; ENGINE_ISA chooses)"
        return "\n".join([first, *isa.explain(chosen)])

    def layout(self, precision: str) -> Layout | None:
        """Return the layout of the panels of this CPU's kernels."""
        from . import isa
        from .panels import layout_of

        return layout_of(isa.chosen().product(precision))

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Pack the weights for this CPU's kernels."""
        from . import isa
        from .plan import CythonPlan

        _check_precision(run)
        return CythonPlan(isa.chosen(), config, weights, run)

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> DecoderPlan:
        """Pack the weights of a decoder for this CPU's kernels."""
        from . import isa
        from .decoder import CythonDecoder

        _check_precision(run)
        return CythonDecoder(isa.chosen(), config, weights, run)

    def ops(self, threads: int) -> Ops:
        """Return the single operations, which run on this CPU's kernels."""
        from . import isa
        from .native_ops import NativeOps

        return NativeOps(isa.chosen(), threads)


def _check_precision(run: RunConfig) -> None:
    if run.precision not in COMPUTED:
        raise UnsupportedError(f"the cython backend computes in {', '.join(COMPUTED)}; "
                               f"precision {run.precision!r} is not there")


BACKEND = CythonBackend()
