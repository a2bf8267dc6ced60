"""Generate tokens with a model that runs step by step: search, sampling, batching.

Nothing in this folder depends on the arithmetic of the model. A model is a `Decoder`
(`engine.backends.interfaces`), and `prepared.py` holds its plans.
"""

from . import other_names as other_names
