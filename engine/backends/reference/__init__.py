"""The reference: NumPy, slow and obvious, the definition of right.

formulas.py   each operation as its formula      plan.py      a forward pass, as the model's program says
attention.py  attention with all its options     rounded.py   the roundings that bfloat16 and int8 are defined by
ops.py        the operations as `engine.ops` calls them
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...config import ModelConfig, RunConfig
from ...errors import UnsupportedError
from .ops import ReferenceOps
from .plan import ReferencePlan


class ReferenceBackend:
    """See `engine.backends.Backend`. In float64 it tells how far off the others are.

    Threads are NumPy's own affair here, and `max_tokens` bounds nothing: one sequence is worked on at a time.
    """

    name = "reference"

    def __init__(self, dtype: type[np.floating] = np.float32):
        self.dtype = dtype

    def unavailable(self) -> str | None:
        """None: NumPy is always there."""
        return None

    def tuned(self) -> bool:
        """False: the formulas as they are."""
        return False

    def describe(self) -> str:
        """The precision and the NumPy in use."""
        return f"{np.dtype(self.dtype).name} in NumPy {np.__version__}, slow; for comparison"

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> ReferencePlan:
        """Convert the weights to this backend's dtype."""
        if run.precision != "float32":
            raise UnsupportedError(
                f"the reference backend computes in float32; precision {run.precision!r} is not there"
            )
        return ReferencePlan(config, weights, self.dtype, ReferenceOps())

    def ops(self, threads: int) -> ReferenceOps:
        """The formulas, in the precision of their arguments."""
        return ReferenceOps()


BACKEND = ReferenceBackend()
