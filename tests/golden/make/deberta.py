"""Make the golden files of DeBERTa v2 and v3: what transformers computes in float64.

    python -m tests.golden.make.deberta [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.

The computation, for one sequence of T tokens; D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    x = LayerNorm(word_embeddings[ids] + position_embeddings[0..T-1] + token_type_embeddings[types])
                                                                    tables that a model lacks add nothing
    R = rel_embeddings, or encoder.LayerNorm(rel_embeddings)        [2 * span, D]
    for each layer:
        q, k, v = query_proj(x), key_proj(x), value_proj(x)         as H heads of d
        K, Q = key_proj(R), query_proj(R)                           or pos_key_proj(R), pos_query_proj(R); as heads
        b(t, s) = bucket(t - s) + span, cut to 0 .. 2 * span - 1    of the row of a distance
        score(t, s) = (q_t . k_s + q_t . K[b(t, s)] + k_s . Q[b(t, s)]) / sqrt(n d)
                                                                    n terms; the second is c2p, the third p2c
        x = LayerNorm(x + dense(softmax(score) v))
        x = LayerNorm(x + dense(gelu(dense(x))))

    bucket(n) = n                           without buckets, or where |n| is at most h, the half of their number
    bucket(n) = sign(n) * (h + ceil((h - 1) * log(|n| / h) / log((limit - 1) / h)))                     else
"""

from pathlib import Path

import torch
from transformers import AutoConfig

from .scaffold import VOCAB, Golden, save_expected, save_model, write_models

SIZES = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 320, "pad_token_id": 0,
         "relative_attention": True}  # fmt: skip

V3 = {
    "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 33, "initializer_range": 0.02, "intermediate_size": 46, "max_position_embeddings": 320,
    "relative_attention": True, "position_buckets": 32, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False,
    "num_attention_heads": 3, "num_hidden_layers": 3, "type_vocab_size": 0, "vocab_size": VOCAB,
}  # fmt: skip

MODELS = {
    "deberta_v3": Golden("DebertaV2ForSequenceClassification", V3, torch.float16, V3, wrong=(
        {"max_relative_positions": 323}, {"position_buckets": 0, "max_relative_positions": 32})),
    "deberta_p2c": Golden(
        "DebertaV2Model",
        SIZES | {"hidden_size": 30, "num_attention_heads": 2, "intermediate_size": 35, "layer_norm_eps": 0.01,
                 "type_vocab_size": 2, "max_relative_positions": 24, "pos_att_type": ["p2c"], "share_att_key": True},
        torch.bfloat16),
    "deberta_c2p": Golden(
        "DebertaV2Model",
        SIZES | {"hidden_size": 28, "num_attention_heads": 4, "intermediate_size": 37, "position_buckets": 8,
                 "max_relative_positions": 20, "pos_att_type": ["c2p"], "norm_rel_ebd": "layer_norm",
                 "position_biased_input": False},
        torch.float32, wrong=({"max_relative_positions": 23}, {"position_buckets": 0, "max_relative_positions": 8})),
    "deberta_own": Golden(
        "DebertaV2ForMaskedLM",
        SIZES | {"hidden_size": 34, "num_attention_heads": 2, "intermediate_size": 31, "position_buckets": 12,
                 "max_relative_positions": 10, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm",
                 "position_biased_input": False},
        torch.bfloat16, wrong=({"max_relative_positions": 13}, {"position_buckets": 0, "max_relative_positions": 12})),
}  # fmt: skip


def save(folder: Path, golden: Golden) -> None:
    """Write a model whose numbers follow in the generator on the ones that its class begins with."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(**({"model_type": "deberta-v2"} | golden.config))
    save_model(folder, golden, golden.type(config))


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of a model."""
    save_expected(folder, golden, lengths=(1, 2, 16, 17, 18, 66, 129, 300))


if __name__ == "__main__":
    write_models(MODELS, expect, save)
