"""Define what a backend is, list the backends, and choose one.

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
    """A model that is ready to run: it holds the weights, laid out for the kernels, and a workspace.

    Any thread may call it.
    """

    def forward(self, batch: Batch, deadline: float = 0.0) -> np.ndarray:
        """Return the token vectors, float32 [N, D], of the N real tokens of a batch.

        deadline: time.monotonic() at which to stop with `TimedOut`; 0 for none. A plan that cannot stop raises
        `UnsupportedError` for any other number.
        """


@runtime_checkable
class PoolingPlan(Plan, Protocol):
    """A plan that also pools token vectors on its device, so that `Engine.encode` need not copy them from there."""

    def pool(self, batch: Batch, modes: Sequence[str], skip: int = 0) -> np.ndarray:
        """Return one vector for each sequence, float32 [B, len(modes)*D], as `engine.pooling.pool` does.

        modes: any of `engine.config.POOLINGS`; their results lie side by side. skip: number of tokens at the start of
        each sequence that are not pooled.
        """


class Backend(Protocol):
    """One way to run a model."""

    name: str

    def unavailable(self) -> str | None:
        """Return the reason, in words for the user, why this backend cannot run here; None when it can."""

    def tuned(self) -> bool:
        """Return whether its kernels are made for this CPU, rather than for any CPU; called only where it can run."""

    def describe(self) -> str:
        """Describe what it would run on, for `engine info`: instruction set, device, versions."""

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Lay the weights out and return a plan; raises `UnsupportedError` if the backend cannot run the model."""

    def ops(self, threads: int) -> Ops:
        """Return the single operations of this backend, which run on up to `threads` threads."""


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
