"""StableLM (Stability AI, 2023 and 2024): Llama's layers with LayerNorm, of whose heads a quarter rotates.

StableLM 2 12B computes attention and feed-forward side by side, from one norm.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.config import QKV_MAPS
from . import llama
from .fields import boolean, refuse_variants
from .gguf import Architecture, Shapes, Stated
from .parts import Family, Part, Parts, Values, with_one_norm

_VARIANT = llama.Variant({"vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912,
                          "max_position_embeddings": 4096, "layer_norm_eps": 1e-5},
                         {"use_qkv_bias": QKV_MAPS}, share=0.25, eps="layer_norm_eps")


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"qk_layernorm": False})
    # The family has no key head_dim: heads are hidden_size / heads wide.
    config = llama.read_config({key: value for key, value in values.items() if key != "head_dim"}, "stablelm",
                               _VARIANT)
    parallel = boolean(values, "use_parallel_residual", False)
    if parallel:
        config = replace(config, norm_place="parallel")
    names = llama.names_of(config)
    names = replace(names, embeddings=llama.with_norm_bias(names))
    # `with_one_norm` copies the one norm of a layer to both of its halves.
    return Parts(Part(config, names, with_one_norm) if parallel else Part(config, names))


def _of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Add to `values` whether heads have norms, by the tensors in the file."""
    values["qk_layernorm"] = "blk.0.attn_q_norm.weight" in shapes


FAMILIES = {"stablelm": Family(read_generator=read_generator)}
ARCHITECTURES = {"stablelm": Architecture(
    "stablelm", eps="layer_norm_eps", keys={"use_parallel_residual": "use_parallel_residual"}, change=_of_gguf,
    partial="partial_rotary_factor")}
