"""StarCoder2 (Lozhkov et al. 2024, arXiv 2402.19173): Llama's attention with LayerNorm, biases and no gate."""

from __future__ import annotations

from dataclasses import replace

from . import llama
from .parts import Part, Parts, Values

_LAYER = {name: ours for name, ours in llama.TIED.layer.items() if not name.startswith("mlp.")}
TIED = replace(llama.TIED, embeddings={**llama.TIED.embeddings, "norm.bias": "final_norm.bias"},
               layer={**_LAYER, "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"})


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    config = replace(llama.read_config(values, "starcoder2"), gated=False)
    return Parts(Part(config, llama.names_of(config, TIED)))
