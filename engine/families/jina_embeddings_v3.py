"""jina-embeddings-v3 (Sturua et al. 2024, arXiv 2409.10173): XLM-RoBERTa with rotary positions, and adapters by task.

A config.json is in the dialect of the model's own code, whose model_type is "xlm-roberta", or of transformers 5.
"""

from __future__ import annotations

from functools import partial

from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import fields, heads
from .adapters import merge_adapters, task_names
from .fields import activation, integer, number, padding_id
from .names import EMBEDDINGS, FLASH_LAYER, JOINED_HEADS, POST_NORM_LAYER, Names
from .parts import Family, Part, Values

NAMES = Names(
    prefix="roberta.",
    embeddings={"emb_ln.weight": "embeddings.norm.weight", "emb_ln.bias": "embeddings.norm.bias"} | EMBEDDINGS,
    layers=("encoder.layers.", "layers."),
    layer=FLASH_LAYER | POST_NORM_LAYER,
    left_out=("pooler.", "classifier.", "lm_head.", "qa_outputs.", "embeddings.position_ids",
              "embeddings.token_type_ids"),
    heads=heads.ROBERTA,
    joined=JOINED_HEADS,
    adapters=True,
)

SUPPORTED = {"position_embedding_type": "rotary", "rotary_emb_interleaved": False, "rotary_emb_scale_base": None}


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    return Part(read_config(values), NAMES, adapters=partial(merge_adapters, values))


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, SUPPORTED)
    task_names(values)
    remote = values.get("model_type") == "xlm-roberta"
    key, theta = ("rotary_emb_base", 10000.0) if remote else ("rope_theta", 20000.0)
    shape = fields.sizes(values, hidden=1024, layers=24, heads=16, ffn=4096, vocab=250002, positions=8194)
    return ModelConfig(
        family="jina_embeddings_v3",
        **shape,
        position_table=False,
        token_types=integer(values, "type_vocab_size", 1),
        pad_token_id=padding_id(values, 1),
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        activation=activation(values, "hidden_act"),
        attention_kinds=(AttentionKind(**fields.rotary(values, key, theta, shape["head_width"])),),
    )


_FAMILY = Family(read_encoder, remote_code=("XLMRobertaLoRA", "XLMRobertaModel"))
FAMILIES = {"jina_embeddings_v3": _FAMILY}
BY_POSITIONS = {("xlm-roberta", "rotary"): _FAMILY}
