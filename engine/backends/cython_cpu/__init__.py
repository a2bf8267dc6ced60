"""The Cython backend: kernels compiled ahead of time, one module an instruction set; `engine.backends.cpu` runs them.

    isa.py        the kernels to use          kernels.pxi     all kernels of a set, which fill its kernel table
    kernels/      the kernels, written once over simd/simd.pxi and simd/tiles.h
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ...base.errors import BackendUnavailable, UnsupportedError
from ...base.install import explain_missing_kernels
from ...model.config import ModelConfig
from ...model.precision import COMPUTED, WAYS, not_there
from ...model.run_config import RunConfig
from ...weights.packed import PackedFormat
from ..interfaces import Decoder, Plan
from ..ops_interface import Ops


class CythonBackend:
    """Runs models on kernels compiled ahead of time; see `engine.backends.interfaces.Backend`."""

    name = "cython"
    batch_invariant = True

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

        return "ENGINE_ISA" in os.environ or isa.chosen().isa != "baseline"

    def describe(self) -> str:
        """Describe in lines the instruction set in use, the other usable sets, and the instructions of each product."""
        from . import isa

        chosen = isa.chosen()
        # The kernels for tests are listed only if ENGINE_ISA names them.
        names = [name for name in isa.available() if name not in isa.FOR_TESTS or name == chosen.isa]
        first = f"{chosen.isa} kernels (of {', '.join(names)} here; ENGINE_ISA chooses)"
        return "\n".join([first, *isa.explain(chosen)])

    def layout(self, precision: str, decodes: bool = False, portable: bool = False) -> PackedFormat:
        """Return the layout of the weight panels that this CPU's kernels read in a precision."""
        from ..cpu.packer import layout_of
        from . import isa

        return layout_of(isa.chosen().product(precision, decodes, portable))

    def no_portable_bits(self) -> str | None:
        """Return why this CPU's kernels cannot compute `bits="portable"`, the same bits on every CPU; None if they can.

        Portable bits need fused multiply-adds, which round once.
        """
        from ..cpu.packer import no_portable_bits
        from . import isa

        kernels = isa.chosen()
        return None if kernels.fused else no_portable_bits(kernels)

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Pack the weights for this CPU's kernels."""
        from ..cpu.plan import CpuPlan
        from . import isa

        _check_precision(run)
        return CpuPlan(isa.chosen(), config, weights, run)

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Decoder:
        """Pack the weights of a decoder for this CPU's kernels."""
        from ..cpu.decoder import CpuDecoder
        from . import isa

        _check_precision(run)
        return CpuDecoder(isa.chosen(), config, weights, run)

    def ops(self, threads: int, portable: bool = False) -> Ops:
        """Return the single operations, which run on this CPU's kernels."""
        from ..cpu.native_ops import NativeOps
        from . import isa

        return NativeOps(isa.chosen(), threads, portable)


def _check_precision(run: RunConfig) -> None:
    """Raise `UnsupportedError` for an unknown precision; `product_of` refuses a known one that these kernels lack."""
    if run.precision not in (*COMPUTED, *WAYS):
        from . import isa

        names = [*COMPUTED, *(name for name in WAYS if isa.chosen().product(name).exists)]
        raise UnsupportedError(not_there("cython", names, run.precision))


BACKEND = CythonBackend()
