"""Track the bits of outputs, so that the page of asv shows at which commit they changed; CHANGELOG.md says why."""

import hashlib
from pathlib import Path

import numpy as np

from engine.model.precision import LOADABLE

from .models import load, random_ids

GOLDEN = Path(__file__).parents[2] / "tests/golden/encoders"
MODELS = ("distilbert", "gte_new", "mpnet_own", "t5_own")
"""Their weights are stored in float32, so that each precision rounds them."""
LENGTHS = (1, 17, 40, 64, 65)
THREADS = 1
"""Results have the same bits on any number of threads."""


class Outputs:
    params = (list(MODELS), list(LOADABLE))
    param_names = ("model", "precision")

    def setup(self, model, precision):
        self.engine = load(GOLDEN / model, THREADS, precision)
        most = min(64, self.engine.config.vocab_size)
        self.batch = [ids.astype(np.int64) for ids in random_ids(LENGTHS, most)]

    def track_digest(self, model, precision):
        """Return the first 48 bits of SHA-256 over the vectors of a batch; a float64 holds them exactly.

        The number depends on the instruction set of the machine, and is equal or different, not better or worse.
        """
        vectors = self.engine.forward(self.batch)
        sha = hashlib.sha256()
        for own in vectors:
            sha.update(np.ascontiguousarray(own, "<f4").tobytes())
        return int.from_bytes(sha.digest()[:6], "big")

    track_digest.unit = "digest"
