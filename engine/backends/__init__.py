"""List the backends by name, and choose the one that runs a call or a model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..base.errors import BackendUnavailable, InputError, UnsupportedError, shown
from ..model.bits import PORTABLE, check_bits
from .interfaces import Backend, DecodingBackend

if TYPE_CHECKING:
    from ..weights.model import Transformer

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
        raise BackendUnavailable(f"no backend is called {shown(name)}; choose auto, {', '.join(BACKENDS)}: cuda runs "
                                 "on an NVIDIA GPU, and the others on CPUs")
    usable: list[Backend] = []
    reasons = []
    for candidate in AUTO if name == "auto" else (name,):
        backend: Backend = import_module(BACKENDS[candidate]).BACKEND
        reason = backend.unavailable()
        if reason is None:
            usable.append(backend)
            continue
        if name == "auto" and candidate == "cython" and (isa := os.environ.get("ENGINE_ISA")):
            # The user named kernels, so that another backend, which has other bits, would be a surprise.
            raise BackendUnavailable(f"ENGINE_ISA is {shown(isa)}, and these kernels of the backend cython cannot "
                                     f"run: {reason}; correct ENGINE_ISA, unset it, or name another backend")
        reasons.append(f"{candidate}: {reason}")
    for backend in usable:
        if backend.tuned():
            return backend
    if usable:
        return usable[0]
    raise BackendUnavailable("cannot run " + "; ".join(reasons))


def choose_backend(name: Any, bits: Any, parts: Iterable[Transformer] = ()) -> Backend:
    """Return the backend of this name, as `get_backend` does, after checking that it can run the parts of a model.

    bits: the argument of the caller; raises `InputError` for a value that is none of `BITS`. Raises `UnsupportedError`
    if the backend has no portable bits and the caller wants them, runs no decoders and a part is one, or does not read
    the packed weights of a part.
    """
    backend = get_backend(name)
    portable = check_bits(bits) == PORTABLE
    if portable and (reason := backend.no_portable_bits()) is not None:
        raise UnsupportedError(reason)
    for part in parts:
        if part.config.decodes and not isinstance(backend, DecodingBackend):
            raise UnsupportedError(f"this model has a decoder, and the backend {backend.name} runs none, for texts or "
                                   "for heads that read it; pass backend='auto', for the fastest one of CPUs")
        _check_layout(backend, part, portable)
    return backend


def _check_layout(backend: Backend, part: Transformer, portable: bool) -> None:
    """Raise `UnsupportedError` if the linear maps of a part are packed, and the backend reads another layout."""
    if part.layout is None:
        return
    readable = backend.layout(part.layout.precision, part.config.decodes, portable)
    if readable != part.layout:
        reads = "no packed file" if readable is None else str(readable)
        raise UnsupportedError(f"the file is packed as {part.layout}; the backend {backend.name} reads {reads} here"
                               f"{' for portable bits' * portable}. Load the original model, or pack it on this "
                               f"machine: engine convert --packed{' --bits portable' * portable}")
