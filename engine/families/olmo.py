"""OLMo (Groeneveld et al. 2024, arXiv 2402.00838): Llama's layers with LayerNorms that have no weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.config import ModelConfig
from ..weights.parameters import expected_shapes
from . import llama
from .fields import refuse_variants
from .gguf import Architecture
from .parts import Family, Part, Parts, Values, Weights

_VARIANT = llama.Variant({"vocab_size": 50304, "pad_token_id": 1}, llama.ATTENTION)


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"clip_qkv": None})
    config = replace(llama.read_config(values, "olmo", _VARIANT), norm="layer", norm_bias=False, norm_eps=1e-5)
    names = llama.names_of(config)
    names = replace(names, embeddings={name: ours for name, ours in names.embeddings.items() if "norm" not in name},
                    layer={name: ours for name, ours in names.layer.items() if "norm" not in name})
    return Parts(Part(config, names, _with_norms))


def _with_norms(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the weights with added weights of norms, all of them 1, which share one array [D]."""
    ones = np.ones(config.hidden_size, np.float32)
    return config, weights | {name: ones for name in expected_shapes(config) if name.endswith("norm.weight")}


FAMILIES = {"olmo": Family(read_generator=read_generator)}
ARCHITECTURES = {"olmo": Architecture("olmo", eps=None, keys={"attention.clamp_kqv": "clip_qkv"}, neighbours=True)}
