"""GLM-4 9B (GLM Team 2024, arXiv 2406.12793): Llama's layers, of whose heads one half rotates, neighbours together."""

from __future__ import annotations

from dataclasses import replace

from . import llama
from .names import JOINED_GATE
from .parts import Part, Parts, Values

_LAYER = {name: ours for name, ours in llama.TIED.layer.items() if name not in ("mlp.gate_proj", "mlp.up_proj")}
TIED = replace(llama.TIED, layer={**_LAYER, "mlp.gate_up_proj": "ffn.gate_up"}, joined=JOINED_GATE)


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    config = llama.read_config(values, "glm")
    return Parts(Part(config, llama.names_of(config, TIED)))
