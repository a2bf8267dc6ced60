"""The Numba backend: kernels that are compiled at first use for the CPU they run on; `engine.backends.cpu` runs them.

    table.py rows.py      the kernel table, filled        target.py    the CPU, and the shapes for it
    compiled.py           the kernels compiled ahead of time that fill the rest: tiles, and weights in blocks
    kernels/              the kernels; the .pxi file of the same name in cython_cpu/kernels explains each
        tile.py           generator of register tiles     dot.py    dot products of 8-bit integers, as LLVM IR
    compiler/compiling.py annotations to C functions      pointers.py structs.py   C pointers and structs for Numba
        cache.py          machine code on disk            vector.py emit.py  vectors, as LLVM IR
        score_mod.py score_walk.py                        score functions of users
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec

import numpy as np

from ...base.errors import UnsupportedError
from ...base.install import explain_missing_kernels, install_command
from ...model.config import ModelConfig
from ...model.precision import COMPUTED, FORMATS, WAYS, not_there
from ...model.run_config import RunConfig
from ...weights.packed import PackedFormat
from ..interfaces import Decoder, Plan
from ..ops_interface import Ops


class NumbaBackend:
    """Runs models on kernels that Numba compiles for this CPU; see `engine.backends.interfaces.Backend`."""

    name = "numba"
    batch_invariant = True

    def unavailable(self) -> str | None:
        """Return why Numba's kernels cannot run here, or None when they can."""
        if missing := [name for name in ("numba", "tqdm") if find_spec(name) is None]:
            return f"{' and '.join(missing)} not found; {install_command('numba')}"
        try:
            from ..cpu.native import native  # noqa: F401
        except ImportError as error:
            return explain_missing_kernels(error)
        return None

    def tuned(self) -> bool:
        """Return True, because LLVM compiles for this CPU."""
        return True

    def describe(self) -> str:
        """Describe in lines LLVM's name of the CPU, the instructions of products, and which of them Numba leaves."""
        import numba

        from ..cpu.native.native import ARCHITECTURE
        from . import compiled, target
        from .table import table

        beside = compiled.chosen()
        lines = [f"kernels for {target.CPU}, vectors of {target.VL} floats, by Numba {numba.__version__}"
                 f"{f', beside {beside} kernels' if beside else ''}",
                 ", ".join(f"{name} by {instruction}" for name, instruction in table().instructions().items())]
        if beside:
            products = ", ".join(sorted(table().from_compiled))
            lines.append(f"{products} on the {beside} kernels, which are compiled ahead of time")
        else:
            in_blocks = ", ".join(name for name in COMPUTED if FORMATS[name].block > 1)
            lines.append(f"no {in_blocks}, which run on kernels that are compiled ahead of time: {compiled.explain()}")
        if beside != "amx" and ARCHITECTURE == "x86_64" and (reason := compiled.why_not("amx")):
            lines.append(reason)
        return "\n".join(lines)

    def layout(self, precision: str, decodes: bool = False, portable: bool = False) -> PackedFormat:
        """Return the layout of the weight panels that these kernels read in a precision."""
        from ..cpu.packer import layout_of
        from . import table

        kernels = table.load(precision, decoding=decodes, portable=portable)
        return layout_of(kernels.product(precision, decodes, portable))

    def no_portable_bits(self) -> str | None:
        """Return why the kernels that Numba compiles here have no portable bits, or None if they have them."""
        from . import target

        return None if target.FUSED else ("Numba compiles for a CPU without fused multiply-adds, which portable bits "
                                          'need; use bits="fastest", or a CPU with AVX2 and FMA')

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Compile the kernels, or load them from the cache, and pack the weights for them."""
        from ..cpu.plan import CpuPlan
        from . import table

        _check_precision(run)
        return CpuPlan(table.load(run.precision, portable=run.portable), config, weights, run)

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Decoder:
        """Compile the kernels, or load them from the cache, and pack the weights of a decoder for them."""
        from ..cpu.decoder import CpuDecoder
        from . import table

        _check_precision(run)
        kernels = table.load(run.precision, decoding=True, portable=run.portable)
        return CpuDecoder(kernels, config, weights, run)

    def ops(self, threads: int, portable: bool = False) -> Ops:
        """Return the single operations, which run on these kernels."""
        from ..cpu.native_ops import NativeOps
        from . import table

        return NativeOps(table.load(), threads, portable, partial(table.load, portable=portable))


def _check_precision(run: RunConfig) -> None:
    """Raise `UnsupportedError` for a precision in which no kernels compute, such as float16."""
    if run.precision not in (*COMPUTED, *WAYS):     # a way that these kernels lack gets a message of its own
        from ..cpu.native.native import product_name
        from .table import table

        instructions = table().instructions()
        names = [name for name in (*COMPUTED, *WAYS) if product_name(name, False) in instructions]
        raise UnsupportedError(not_there("numba", names, run.precision))


BACKEND = NumbaBackend()
