"""SmolLM3 (Bakouch et al. 2025): the layers of Llama, of which every fourth one does not rotate queries and keys."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import WeightsError, shown
from ..model.attention import AttentionKind
from . import fields, llama
from .gguf import Architecture
from .parts import Family, Part, Parts, Values

_VARIANT = llama.Variant({
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    "pad_token_id": 128004,
}, llama.LLAMA.biases, theta=2000000.0)  # fmt: skip


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    config = llama.read_config(values, "smollm3", _VARIANT)
    rotates = _layers_that_rotate(values, config.num_layers)
    if not all(rotates):
        # Llama's one kind, 0, rotates, and the new kind, 1, does not.
        config = replace(config, attention_kinds=(*config.attention_kinds, AttentionKind(causal=True)),
                         layer_kinds=tuple(int(not turns) for turns in rotates))
    return Parts(Part(config, llama.names_of(config)))


def _layers_that_rotate(values: Values, num_layers: int) -> list[bool]:
    """Return for each layer whether it rotates queries and keys.

    In spite of its name, no_rope_layers has 1 for a layer that rotates, and 0 for a layer that does not.
    """
    stated, every = values.get("no_rope_layers"), fields.integer(values, "no_rope_layer_interval", 4)
    if stated is None:
        if every < 1:
            raise WeightsError(f"no_rope_layer_interval must be at least 1, not {shown(every)}")
        return [(i + 1) % every != 0 for i in range(num_layers)]
    if not isinstance(stated, list) or len(stated) != num_layers or not all(turns in (0, 1) for turns in stated):
        raise WeightsError(f"no_rope_layers must be a list of {num_layers} numbers, 0 or 1, not {shown(stated)}")
    return [turns == 1 for turns in stated]


FAMILIES = {"smollm3": Family(read_generator=read_generator)}
ARCHITECTURES = {"smollm3": Architecture("smollm3", neighbours=True)}
