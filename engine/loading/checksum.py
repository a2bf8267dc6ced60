"""The checksum of a model: of everything that its results depend on, and of nothing else."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from ..weights.model import Model
from .npz_model import contents


def checksum(model: Model) -> str:
    """Return the SHA-256 of a model in hexadecimal: of its weights, its tokenizer and its configuration.

    The file format does not matter: a folder and the `.npz` that `engine convert` makes of it have one checksum, unless
    the conversion changed the numbers. It reads all weights, about 1 GB a second.
    """
    document, arrays = contents(model)
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
