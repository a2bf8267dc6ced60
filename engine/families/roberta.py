"""Read RoBERTa (Liu et al. 2019), XLM-RoBERTa and CamemBERT: BERT whose positions start after the padding id.

The code of jina-reranker-v2 computes the same as XLM-RoBERTa and gives the tensors the names of `FLASH_LAYER`.
"""

from __future__ import annotations

from dataclasses import replace

from ..model.config import ModelConfig
from . import bert, heads
from .fields import integer
from .names import FLASH_LAYER, JOINED_HEADS
from .parts import Values, plain

NAMES = replace(
    bert.NAMES,
    prefix="roberta.",
    embeddings={**bert.NAMES.embeddings, "emb_ln.weight": "embeddings.norm.weight",
                "emb_ln.bias": "embeddings.norm.bias"},
    layers=("encoder.layer.", "encoder.layers."),
    layer={**bert.NAMES.layer, **FLASH_LAYER},
    joined=JOINED_HEADS,
    left_out=("pooler.", "classifier.", "lm_head.", "qa_outputs.",
              "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=heads.ROBERTA,
)


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    defaults = {"pad_token_id": 1, "vocab_size": 50265 if values.get("model_type") == "roberta" else 30522}
    config = bert.read_config(defaults | values)
    padding = integer(values, "pad_token_id", 1)  # null is an error here, because positions count from this id
    return replace(config, family="roberta", position_offset=padding + 1)


FAMILIES = {
    "camembert": plain(read_config, NAMES, classes="Camembert"),
    "roberta": plain(read_config, NAMES, classes="Roberta"),
    "xlm-roberta": plain(read_config, NAMES, classes="XLMRoberta", remote_code=("XLMRobertaModel",)),
}
