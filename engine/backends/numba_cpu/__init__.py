"""The Numba backend: kernels that are compiled at first use for the CPU they run on, in the Cython backend's schedule.

    table.py rows.py  the kernel table, filled  target.py               the CPU, and the shapes for it
    compiling.py  annotations to C functions    pointers.py structs.py  C pointers and structs inside Numba functions
    cache.py      machine code on disk          vector.py emit.py       simd.h: for Numba functions, and as LLVM IR
    tile.py       generator of register tiles   dot.py pairs.py amx.py  dot.h, bfloat16.h and tiles.h, as LLVM IR
    linear.py bfloat16.py int8.py tiles.py operands.py attention.py relative.py scores.py weigh.py norm.py embed.py
    softmax.py rotary.py cached_attention.py choose.py elementwise.py roofline.py
                  the kernels; the .pxi file of the same name explains each
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np

from ...config import ModelConfig, RunConfig
from ...errors import UnsupportedError
from ...installation import explain_missing_kernels, install_command
from ...layout import Layout
from ...precision import COMPUTED
from .. import DecoderPlan, Plan
from ..functional import Ops


class NumbaBackend:
    """Runs models on kernels that Numba compiles for this CPU; see `engine.backends.Backend`."""

    name = "numba"

    def unavailable(self) -> str | None:
        """Return why Numba's kernels cannot run here, or None when they can."""
        if missing := [name for name in ("numba", "tqdm") if find_spec(name) is None]:
            return f"{' and '.join(missing)} not found; {install_command('numba')}"
        try:
            from ..cython_cpu import native  # noqa: F401
        except ImportError as error:
            return explain_missing_kernels(error)
        return None

    def tuned(self) -> bool:
        """Return True, because LLVM compiles for this CPU."""
        return True

    def describe(self) -> str:
        """Describe in lines the CPU, by LLVM's name for it, and what multiplies, and why AMX's tiles do not."""
        import numba

        from ..cython_cpu.native import ARCHITECTURE
        from . import rows, target

        lines = [f"kernels for {target.CPU}, vectors of {target.VL} floats, by Numba {numba.__version__}",
                 ", ".join(f"{name} by {row['instruction'].decode()}" for name, row in rows.ROWS.items())]
        if target.WHY_NO_TILES and ARCHITECTURE == "x86_64":
            lines.append(target.WHY_NO_TILES)
        return "\n".join(lines)

    def layout(self, precision: str) -> Layout | None:
        """Return the layout of the panels of these kernels."""
        from ..cython_cpu.panels import layout_of
        from . import table

        return layout_of(table.load(precision).product(precision))

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Compile the kernels, or load them from the cache, and pack the weights for them."""
        from ..cython_cpu.plan import CythonPlan
        from . import table

        _check_precision(run)
        return CythonPlan(table.load(run.precision), config, weights, run)

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> DecoderPlan:
        """Compile the kernels, or load them from the cache, and pack the weights of a decoder for them."""
        from ..cython_cpu.decoder import CythonDecoder
        from . import table

        _check_precision(run)
        return CythonDecoder(table.load(run.precision, decoding=True), config, weights, run)

    def ops(self, threads: int) -> Ops:
        """Return the single operations, which run on these kernels."""
        from ..cython_cpu.native_ops import NativeOps
        from . import table

        return NativeOps(table.load(), threads)


def _check_precision(run: RunConfig) -> None:
    if run.precision not in COMPUTED:
        raise UnsupportedError(f"the numba backend computes in {', '.join(COMPUTED)}; precision "
                               f"{run.precision!r} is not there")


BACKEND = NumbaBackend()
