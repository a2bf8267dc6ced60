"""Phi-3 (Abdin et al. 2024, arXiv 2404.14219), Phi-3.5 and Phi-4-mini: Llama's layers in tensors that join maps.

Long contexts have LongRoPE (Ding et al. 2024, arXiv 2402.13753): a table of rotary positions up to the length of the
training, and another one beyond it. Phi-4-mini rotates three quarters of each head.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..base.functions import log, power
from ..model.config import ModelConfig
from . import fields, llama
from .gguf import NAMES as GGUF_NAMES
from .gguf import Architecture, Shapes, Stated
from .names import JOINED_GATE, JOINED_HEADS
from .parts import Family, Part, Parts, Values

_TIED = llama.TIED.with_layer({"self_attn.qkv_proj": "attention.qkv", "mlp.gate_up_proj": "ffn.gate_up"}, without=(
    "self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"), joined=JOINED_HEADS | JOINED_GATE)
_VARIANT = llama.Variant({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "pad_token_id": 32000,
                          "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}, windowed=True, share=1.0)
_LONG = ("longrope", "su", "yarn")
"""The names of LongRoPE in files: the first files of Phi-3 call it "su" or "yarn"."""
_KEYS = {"type", "rope_type", "rope_theta", "short_factor", "long_factor", "original_max_position_embeddings", "factor",
         "attention_factor"}  # fmt: skip


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    stated = values.get("rope_scaling") or values.get("rope_parameters") or {}
    name = stated.get("rope_type", stated.get("type")) if isinstance(stated, dict) else None
    if name not in _LONG:
        return Parts(_part(llama.read_config(values, "phi3", _VARIANT)))
    scaling: Values = {key: value for key, value in stated.items() if value is not None}
    if others := scaling.keys() - _KEYS - {"partial_rotary_factor"}:
        raise UnsupportedError(f"{shown(min(others))} in the LongRoPE of rope_scaling or rope_parameters is not "
                               "supported")
    plain = {key: scaling[key] for key in ("rope_theta", "partial_rotary_factor") if key in scaling}
    config = llama.read_config(values | {"rope_scaling": None, "rope_parameters": plain}, "phi3", _VARIANT)
    trained = fields.integer(values, "original_max_position_embeddings",
                             fields.integer(scaling, "original_max_position_embeddings", 4096))
    if not 2 <= trained <= config.max_positions:
        raise WeightsError(f"original_max_position_embeddings must be from 2 to {config.max_positions}, the value of "
                           f"max_position_embeddings, not {shown(trained)}")
    short = _scaled(config, scaling, "short_factor", trained)       # the table up to the length of the training
    return Parts(_part(replace(short, max_positions=trained)),
                 long_decoder=_part(_scaled(config, scaling, "long_factor", trained)))


def _part(config: ModelConfig) -> Part:
    return Part(config, llama.names_of(config, _TIED))


def _scaled(config: ModelConfig, scaling: Values, key: str, trained: int) -> ModelConfig:
    """Return the configuration with rotary frequencies divided by a table of LongRoPE.

    scaling: the contents of rope_scaling, whose `key` lists a divisor for each pair of columns that rotate. trained:
    the longest sequence of the training, in tokens.
    """
    [kind] = config.attention_kinds
    assert kind.rotary_theta is not None
    width = kind.rotary_width or config.head_width
    divisors = scaling.get(key)
    if not (isinstance(divisors, list) and len(divisors) == width // 2
            and all(type(value) in (int, float) and 1e-3 <= value <= 1e9 for value in divisors)):
        raise WeightsError(f"{key} must be a list of {width // 2} numbers from 0.001 to 1e9, one for each pair of "
                           f"columns that rotate, not {shown(divisors)}")
    frequencies = [float(power(kind.rotary_theta, -2 * i / width)) / value for i, value in enumerate(divisors)]
    longer = fields.number(scaling, "factor", config.max_positions / trained)
    factor = math.sqrt(1 + float(log(longer)) / float(log(trained))) if longer > 1.0 else 1.0
    scaled = replace(kind, rotary_frequencies=tuple(frequencies),
                     rotary_factor=fields.number(scaling, "attention_factor", factor))
    return replace(config, attention_kinds=(scaled,))


def _of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Add the window to `values`; 0 in a file means none."""
    values["sliding_window"] = stated.get("attention.sliding_window") or None


FAMILIES = {"phi3": Family(read_generator=read_generator)}
ARCHITECTURES = {"phi3": Architecture(
    "phi3", change=_of_gguf, reads=("attention.sliding_window",), partial="partial_rotary_factor",
    names=GGUF_NAMES.with_layer({"ffn_up": "ffn.gate_up"}, joined=JOINED_HEADS | JOINED_GATE))}
