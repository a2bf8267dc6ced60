"""The reference backend: slow and simple NumPy code, which defines the right result.

formulas.py   each operation as its formula      plan.py      a forward pass, by the model's program
attention.py  attention with all its options     decoder.py   a decoder, step by step, with its cache
ops.py        the operations as `engine.ops` calls them
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base.errors import UnsupportedError
from ...model.config import ModelConfig
from ...model.precision import not_there
from ...model.run_config import RunConfig
from ..interfaces import refuse_decoder
from .decoder import ReferenceDecoder
from .ops import ReferenceOps
from .plan import ReferencePlan


class ReferenceBackend:
    """Runs models with NumPy; see `interfaces.Backend`. In float64 it shows the errors of the other backends.

    NumPy decides how many threads it uses. `max_tokens` has no effect, because sequences are computed one at a time.
    """

    name = "reference"
    batch_invariant = False     # the rows of NumPy's products have other bits in other batches

    def __init__(self, dtype: type[np.floating] = np.float32):
        self.dtype = dtype

    def unavailable(self) -> str | None:
        """Return None, because NumPy is always installed."""
        return None

    def tuned(self) -> bool:
        """Return False, because the formulas are not tuned to any CPU."""
        return False

    def describe(self) -> str:
        """Describe the precision and the version of NumPy."""
        return f"{np.dtype(self.dtype).name} in NumPy {np.__version__}, slow; for comparison"

    def layout(self, precision: str, decodes: bool = False, portable: bool = False) -> None:
        """Return None, because this backend packs nothing."""

    def no_portable_bits(self) -> str:
        """Return why this backend has no portable bits."""
        return ('the reference backend multiplies by NumPy, whose library chooses code by the CPU, so that it has no '
                'portable bits; use backend="cython" or backend="numba", or bits="fastest"')

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> ReferencePlan:
        """Convert the weights to this backend's dtype."""
        refuse_decoder(config)
        _check_precision(run)
        return ReferencePlan(config, weights, self.dtype, ReferenceOps())

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray],
                        run: RunConfig) -> ReferenceDecoder:
        """Convert the weights of a decoder to this backend's dtype."""
        _check_precision(run)
        return ReferenceDecoder(config, weights, self.dtype, ReferenceOps(), run.cache_precision)

    def ops(self, threads: int, portable: bool = False) -> ReferenceOps:
        """Return the formulas, which compute in the precision of their arguments."""
        return ReferenceOps()


def _check_precision(run: RunConfig) -> None:
    """Raise `UnsupportedError` for another precision than float32."""
    if run.precision != "float32":
        raise UnsupportedError(not_there("reference", ["float32"], run.precision))


BACKEND = ReferenceBackend()
