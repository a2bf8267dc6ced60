"""StableLM (Stability AI, 2023 and 2024): Llama's layers with LayerNorm, of whose heads a quarter rotates.

StableLM 2 12B computes attention and feed-forward side by side, from one norm.
"""

from __future__ import annotations

from dataclasses import replace

from . import llama
from .fields import boolean, refuse_variants
from .parts import Part, Parts, Values, with_one_norm


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"qk_layernorm": False})
    config = llama.read_config({key: value for key, value in values.items() if key != "head_dim"}, "stablelm")
    parallel = boolean(values, "use_parallel_residual", False)
    if parallel:
        config = replace(config, norm_place="parallel")
    names = llama.names_of(config)
    names = replace(names, embeddings={**names.embeddings, "norm.bias": "final_norm.bias"})
    return Parts(Part(config, names, with_one_norm) if parallel else Part(config, names))
