"""OLMo 2 and 3 (OLMo Team 2025, arXiv 2501.00656) and EXAONE 4: Llama's layers with norms behind their parts.

OLMo has a norm of all queries of a token together, and one of its keys; EXAONE has one of each head. OLMo 3 and the
large EXAONE 4 see a window in three of four layers. That EXAONE rotates in these layers alone.
"""

from __future__ import annotations

from dataclasses import replace

from . import llama
from .parts import Part, Parts, Values

_LAYER = {name: ours for name, ours in llama.TIED.layer.items() if not name.endswith("layernorm")}
TIED = replace(llama.TIED, layer={**_LAYER, "post_attention_layernorm": "attention.post_norm",
                                  "post_feedforward_layernorm": "ffn.post_norm"})


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    config = llama.read_config(values, str(values.get("model_type")))
    config = replace(config, norm_place="reordered", joint_norm=not config.head_norm)
    return Parts(Part(config, llama.names_of(config, TIED)))
