"""Make the golden files of ModernBERT: what transformers computes in float64 with eager attention.

    python -m tests.golden.make.modernbert

The script writes three folders in tests/golden, which hold what scaffold.py says:

    modernbert_new/     the config that transformers 5 writes; names without `model.`; layer_types that no single
                        global_attn_every_n_layers describes; bfloat16
    modernbert_old/     the config and the names of answerdotai/ModernBERT-base on the hub, with the head of a masked
                        language model; float32
    modernbert_biases/  an old config that transformers 5 has loaded and saved again, so that its config.json holds
                        global_attn_every_n_layers beside layer_types; biases everywhere; the head of a classifier;
                        an odd local_attention; norm_eps 0.01; float16

The computation, for one sequence of T tokens. D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    norm(x) = (x - mean(x)) / sqrt(var(x) + norm_eps) * weight + bias       var divides by D; bias only if norm_bias
    x = norm_embeddings(tok_embeddings[ids])                                no positions and no token types are added
    for layer i = 0 .. L-1:
        a = x if i == 0 else attn_norm_i(x)                                 layer 0 has no attn_norm
        q, k, v = Wqkv_i(a) reshaped to [T, 3, H, d]                        bias only if attention_bias
        for token t and column c < d/2, with the angle m = t * theta_i ** (-2c / d), in q and in k:
            (q[c], q[c + d/2]) = (q[c] cos m - q[c + d/2] sin m,  q[c + d/2] cos m + q[c] sin m)
        p = softmax over s of (q_t . k_s) / sqrt(d)                         only keys s with mask[s] = 1 and, in a local
                                                                            layer, |t - s| <= local_attention // 2
        x = x + Wo_i(heads of p v side by side)                             attn.Wo; bias only if attention_bias
        g, u = first F columns, last F columns of Wi_i(mlp_norm_i(x))       ffn.gate, ffn.up; bias only if mlp_bias
        x = x + Wo_i(act(g) * u)                                            mlp.Wo; act is the exact GELU (erf)
    hidden = final_norm(x)

Layer i is global where layer_types[i] is "full_attention" or, without layer_types, where
i % global_attn_every_n_layers == 0. theta_i is rope_parameters.full_attention.rope_theta (global_rope_theta) in a
global layer and rope_parameters.sliding_attention.rope_theta (local_rope_theta) in a local one. t and s count the
columns of attention_mask, its zeros included. layer_norm_eps and position_embedding_type are not read.
"""

from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM

from .scaffold import VOCAB, Golden, open_model, save_expected, write_config, write_models

HOLES = (0, 5, 6, 7, 40, 41, 77, 100, 119)
"""Columns where the attention_mask of the sequence with holes, of 120 tokens, is 0; the last is ordinary padding."""

NEW = {
    "vocab_size": VOCAB, "hidden_size": 42, "num_hidden_layers": 5, "num_attention_heads": 3, "intermediate_size": 30,
    "max_position_embeddings": 320, "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2,
    "sep_token_id": 2, "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention",
                                       "sliding_attention"],
}  # fmt: skip

OLD = {
    "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean",
    "cls_token_id": 1, "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0,
    "eos_token_id": 2, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "hidden_size": 36, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
    "intermediate_size": 22, "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0,
    "max_position_embeddings": 320, "mlp_bias": False, "mlp_dropout": 0.0, "model_type": "modernbert",
    "norm_bias": False, "norm_eps": 1e-05, "num_attention_heads": 2, "num_hidden_layers": 4, "pad_token_id": 0,
    "position_embedding_type": "absolute", "reference_compile": None, "repad_logits_with_grad": False,
    "sep_token_id": 2, "sparse_pred_ignore_index": -100, "sparse_prediction": False, "tie_word_embeddings": True,
    "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": VOCAB,
}  # fmt: skip

BIASES = {
    "vocab_size": VOCAB, "hidden_size": 44, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 29,
    "max_position_embeddings": 320, "pad_token_id": 3, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2,
    "sep_token_id": 2, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
    "norm_eps": 0.01, "local_attention": 51, "global_attn_every_n_layers": 2, "global_rope_theta": 80000.0,
    "local_rope_theta": 500.0, "num_labels": 3,
}  # fmt: skip

MODELS = {
    "modernbert_new": Golden("ModernBertModel", NEW, torch.bfloat16),
    "modernbert_old": Golden("ModernBertForMaskedLM", OLD, torch.float32, own_config=OLD, new_names=True),
    "modernbert_biases": Golden("ModernBertForSequenceClassification", BIASES, torch.float16),
}


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of a model; the one in the form of the hub has to be whole with its head."""
    if golden.own_config:
        write_config(folder, golden.own_config)
        open_model(folder, AutoModelForMaskedLM)
    save_expected(folder, golden, holes=HOLES, step=lambda length: 1 if length <= 66 else 8)


if __name__ == "__main__":
    write_models(MODELS, expect)
