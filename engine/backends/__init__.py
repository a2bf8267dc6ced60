"""List the backends, and choose one."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ..base.errors import BackendUnavailable, InputError, UnsupportedError, shown
from ..model.bits import PORTABLE, check_bits
from ..weights.packed import PackedFormat
from .interfaces import Backend

BACKENDS = {
    "cython": "engine.backends.cython_cpu",
    "numba": "engine.backends.numba_cpu",
    "cuda": "engine.backends.numba_cuda",
    "reference": "engine.backends.reference",
}
"""The name of each backend, and the module that defines it as `BACKEND`."""

AUTO = ("cython", "numba")
"""The backends that `auto` tries: it picks the first that is tuned to this CPU, else the first that runs here.

`auto` never picks the reference backend, because it is slow and the user would not be told. It never picks cuda either:
a GPU is fast in bfloat16 only, is often reserved for other work, and gives other bits. The user has to name cuda.
"""


def get_backend(name: str) -> Backend:
    """Return the backend of this name, or for "auto" the backend that `AUTO` describes.

    Raises `BackendUnavailable`, with the reasons, and `InputError` for anything but a string.
    """
    if not isinstance(name, str):
        raise InputError(f"backend must be the name of a backend or 'auto', not {shown(name)}")
    if name != "auto" and name not in BACKENDS:
        raise BackendUnavailable(f"no backend is called {shown(name)}; choose auto, {', '.join(BACKENDS)}")
    able: list[Backend] = []
    reasons = []
    for candidate in AUTO if name == "auto" else (name,):
        backend: Backend = import_module(BACKENDS[candidate]).BACKEND
        reason = backend.unavailable()
        if reason is None:
            able.append(backend)
            continue
        if name == "auto" and candidate == "cython" and (asked := os.environ.get("ENGINE_ISA")):
            # The user named kernels, so that another backend, which has other bits, would be a surprise.
            raise BackendUnavailable(f"ENGINE_ISA is {shown(asked)}, and these kernels of the backend cython cannot "
                                     f"run: {reason}; correct ENGINE_ISA, unset it, or name another backend")
        reasons.append(f"{candidate}: {reason}")
    for backend in able:
        if backend.tuned():
            return backend
    if able:
        return able[0]
    raise BackendUnavailable("cannot run " + "; ".join(reasons))


def check_portable(backend: Backend, bits: Any) -> bool:
    """Return whether `bits`, an argument of a caller, asks for portable bits.

    Raises `InputError` for a value that is none of `BITS`, and `UnsupportedError` if the backend has no portable bits.
    """
    if check_bits(bits) != PORTABLE:
        return False
    if (reason := backend.no_portable_bits()) is not None:
        raise UnsupportedError(reason)
    return True


def check_layout(backend: Backend, layout: PackedFormat | None, decodes: bool, portable: bool = False) -> None:
    """Raise `UnsupportedError` unless a backend reads packed linear maps of this layout; None is plain weights.

    decodes: whether they are those of a decoder. portable: whether results shall have portable bits.
    """
    if layout is None:
        return
    readable = backend.layout(layout.precision, decodes, portable)
    if readable != layout:
        reads = "no packed file" if readable is None else str(readable)
        raise UnsupportedError(f"the file is packed as {layout}; the backend {backend.name} reads {reads} here"
                               f"{' for portable bits' * portable}. Load the original model, or pack it on this "
                               f"machine: engine convert --packed{' --bits portable' * portable}")
