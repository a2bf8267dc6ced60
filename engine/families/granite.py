"""Granite 3 and the dense models of Granite 4 (IBM, 2024 and 2025): Llama's layers with multipliers.

Granite 4 has the layers of its mixtures of experts, of which a dense model has the shared one alone: its feed-forward
network, with gate and up in one tensor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..weights.blocks import plain_numbers
from . import llama
from .fields import integer, number, refuse_variants
from .gguf import Architecture, Shapes, Stated
from .names import JOINED_GATE
from .parts import Family, Part, Parts, Values, Weights

_MULTIPLIED = ("attention.output.weight", "attention.output.bias", "ffn.down.weight", "ffn.down.bias")
"""Ends of the names of the linear maps whose results are added to the residual stream."""
_ATTENDS = ("attention", "full_attention")     # names in layer_types of a layer with attention


_SHARED_MLP = llama.TIED.with_layer({"shared_mlp.input_linear": "ffn.gate_up", "shared_mlp.output_linear": "ffn.down"},
                                    without=("mlp.",), joined=JOINED_GATE)
"""The names of Granite 4, whose dense layers keep their maps where other layers have a shared expert."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    dense = values.get("model_type") == "granitemoehybrid"
    config = _read_fourth(values) if dense else llama.read_config(values, "granite", llama.LLAMA)
    scale, divisor = number(values, "attention_multiplier", 1.0), number(values, "logits_scaling", 1.0)
    if not 1e-6 < divisor < 1e6:
        raise WeightsError(f"logits_scaling must be a number between 1e-6 and 1e6, not {divisor}")
    config = replace(config, embedding_scale=number(values, "embedding_multiplier", 1.0), attention_scale=scale,
                     logits_scale=1.0 / divisor)
    multiplier = number(values, "residual_multiplier", 1.0)
    if not 1e-6 < abs(multiplier) < 1e6:
        raise WeightsError(f"residual_multiplier must be a number between 1e-6 and 1e6, not {multiplier}")
    names = llama.names_of(config, _SHARED_MLP if dense else llama.TIED)

    def multiplied(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
        """Return the weights with the residual multiplier moved into the maps before each residual."""
        return config, {name: plain_numbers(array) * np.float32(multiplier) if name.endswith(_MULTIPLIED) else array
                        for name, array in weights.items()}

    return Parts(Part(config, names, multiplied))


def _read_fourth(values: Values) -> ModelConfig:
    """Return the architecture of a dense model of Granite 4, without its multipliers."""
    positions, layers = values.get("position_embedding_type"), integer(values, "num_hidden_layers", 32)
    types = values.get("layer_types", values.get("layers_block_type"))
    if isinstance(types, list) and "mamba" in types:
        raise UnsupportedError("layer_types has layers of the kind 'mamba': the engine has no state space layers "
                               "(Mamba), and of Granite 4 it runs the models without them")
    refuse_variants(values, {"num_local_experts": 0, "position_embedding_type": positions})     # checked below
    if values.get("num_local_experts") is None:
        raise UnsupportedError("num_local_experts is not stated, and is 8 then; only 0, a model without experts, is "
                               "supported")
    if positions not in (None, "rope"):
        raise UnsupportedError(f"position_embedding_type = {shown(positions)} is not supported; only null and 'rope' "
                               "are")
    if not isinstance(types, list) or len(types) != layers or any(name not in _ATTENDS for name in types):
        raise UnsupportedError(f"layer_types {shown(types)} is not supported; expected {shown(layers)} layers, each "
                               "'attention': the engine has no state space layers")
    # The keys that are checked above mean something else to Llama's reader, or are refused by it.
    plain = {key: value for key, value in values.items() if key not in (
        "layer_types", "layers_block_type", "position_embedding_type")}  # fmt: skip
    config = llama.read_config(plain | {"intermediate_size": integer(values, "shared_intermediate_size", 1024)},
                               "granitemoehybrid", llama.Variant({}, llama.ATTENTION))
    return config if positions == "rope" else replace(config, attention_kinds=(AttentionKind(causal=True),))


def _of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Raise `UnsupportedError` for a GGUF file of a model without a rotary embedding."""
    if stated.get("rope.scaling.finetuned", True) is not True:
        raise UnsupportedError("granite.rope.scaling.finetuned says that the model has no rotary embedding, which is "
                               "not supported in a GGUF file")


FAMILIES = {"granite": Family(read_generator=read_generator), "granitemoehybrid": Family(read_generator=read_generator)}
ARCHITECTURES = {"granite": Architecture("granite", keys={
    "logit_scale": "logits_scaling", "residual_scale": "residual_multiplier",
    "embedding_scale": "embedding_multiplier", "attention.scale": "attention_multiplier"},
    change=_of_gguf, neighbours=True)}
