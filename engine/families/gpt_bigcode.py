"""StarCoder and SantaCoder (Li et al. 2023, arXiv 2305.06161): GPT-2's layers with one key head for all queries."""

from __future__ import annotations

from dataclasses import replace

from . import gpt2
from .fields import boolean, refuse_variants
from .parts import Part, Parts, Values


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"tie_word_embeddings": True})
    one_key_head = boolean(values, "multi_query", True)
    config = replace(gpt2.read_config(values, "gpt_bigcode", "gelu_pytorch_tanh"), num_kv_heads=int(one_key_head))
    names = gpt2.NAMES if one_key_head else replace(gpt2.NAMES, joined_by_head=("attention.qkv",))
    return Parts(Part(config, names))
