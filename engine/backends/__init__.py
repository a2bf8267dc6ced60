"""The backends, and how one is chosen.

A backend turns a configuration and weights into a `Plan`; a plan turns a packed `Batch` into token vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, runtime_checkable

import numpy as np

from ..batch import Batch
from ..config import ModelConfig, RunConfig
from ..errors import BackendUnavailable, InputError
from .functional import Ops


class Plan(Protocol):
    """A model made ready to run: weights laid out for the kernels, workspace sized. Safe to call from many threads."""

    def forward(self, batch: Batch) -> np.ndarray:
        """Token vectors, float32 [N, D], of a batch's N real tokens."""


@runtime_checkable
class PoolingPlan(Plan, Protocol):
    """A plan that also pools where its token vectors are, so that these need not be copied. `Engine.encode` lets it."""

    def pool(self, batch: Batch, modes: Sequence[str], skip: int = 0) -> np.ndarray:
        """One vector for each sequence, float32 [B, len(modes)*D], as `engine.pooling.pool` makes them.

        modes: any of `engine.config.POOLINGS`, results side by side; skip: tokens at the start that take no part.
        """


class Backend(Protocol):
    """One way to run a model."""

    name: str

    def unavailable(self) -> str | None:
        """Why this backend cannot run here, in words for the user; None when it can."""

    def tuned(self) -> bool:
        """Whether its kernels are made for this CPU, rather than for any; asked only where it can run."""

    def describe(self) -> str:
        """What it would run on, for `engine info`: instruction set, device, versions."""

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Lay the weights out and return a plan; raises `UnsupportedError` for what the backend cannot run."""

    def ops(self, threads: int) -> Ops:
        """Its single operations, on up to so many threads."""


BACKENDS = {
    "cython": "engine.backends.cython_cpu",
    "numba": "engine.backends.numba_cpu",
    "cuda": "engine.backends.numba_cuda",
    "reference": "engine.backends.reference",
}
"""Name -> module whose `BACKEND` it is."""

AUTO = ("cython", "numba")
"""What `auto` tries: it takes the first that is tuned to this CPU, else the first that runs here.

Never the reference: being slow without a word would be a silent fallback. Nor cuda: a GPU is fast in bfloat16 only, is
often there for somebody else, and taking its memory, like changing the bits of results, shall be asked for by name.
"""


def get_backend(name: str) -> Backend:
    """The backend of that name, or with "auto" the one that AUTO says.

    Raises `BackendUnavailable`, with the reasons, and `InputError` for anything but a string.
    """
    if not isinstance(name, str):
        raise InputError(f"backend must be the name of a backend or 'auto', not {name!r}")
    if name != "auto" and name not in BACKENDS:
        raise BackendUnavailable(f"no backend is called {name!r}; choose auto, {', '.join(BACKENDS)}")
    able: list[Backend] = []
    reasons = []
    for candidate in AUTO if name == "auto" else (name,):
        backend: Backend = import_module(BACKENDS[candidate]).BACKEND
        reason = backend.unavailable()
        if reason is None:
            able.append(backend)
        else:
            reasons.append(f"{candidate}: {reason}")
    for backend in able:
        if backend.tuned():
            return backend
    if able:
        return able[0]
    raise BackendUnavailable("cannot run " + "; ".join(reasons))
