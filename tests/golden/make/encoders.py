"""Make the golden files of BERT's nearest families, EmbeddingGemma, ESM and scaled rotary positions, in float64.

    python -m tests.golden.make.encoders [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.
tests/families/test_mistakes_show.py shows that the mistakes which an implementation could make change these vectors.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .scaffold import VOCAB, Golden, save_expected, save_model, sizes, write_models

DISTILBERT = {"vocab_size": VOCAB, "pad_token_id": 0}
gemma = partial(sizes, use_bidirectional_attention=True)
esm = partial(sizes, pad_token_id=1, mask_token_id=32, layer_norm_eps=1e-5, max_position_embeddings=340,
              is_folding_model=False, vocab_list=None)
deberta = partial(sizes, relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=-1,
                  position_biased_input=False, type_vocab_size=0, layer_norm_eps=1e-7)

MODELS = {
    "big_bird_sparse": Golden("BigBirdForMaskedLM", sizes(42, 3, 61, 2, attention_type="block_sparse", block_size=28,
        num_random_blocks=3, sep_token_id=66), torch.float32),
    "big_bird_full": Golden("BigBirdForSequenceClassification", sizes(36, 4, 47, block_size=2,
        attention_type="original_full", hidden_act="relu", rescale_embeddings=True), torch.bfloat16),
    "big_bird_unbiased": Golden("BigBirdModel", sizes(34, 2, 29, 2, attention_type="block_sparse", block_size=100,
        num_random_blocks=0, use_bias=False, type_vocab_size=1), torch.float16),
    "deberta1": Golden("DebertaForMaskedLM", deberta(42, 3, 61, 2), torch.float32, changes={"pos_att_type": "c2p|p2c"}),
    "deberta1_c2p": Golden("DebertaModel", deberta(36, 4, 47, pos_att_type=["c2p"], max_relative_positions=24,
        type_vocab_size=2, position_biased_input=True), torch.bfloat16),
    "deberta1_p2c": Golden("DebertaForSequenceClassification", deberta(30, 2, 35, 2, pos_att_type=["p2c"],
        max_relative_positions=100, hidden_act="gelu_new", layer_norm_eps=0.01), torch.float16),
    "dpr_question": Golden("DPRQuestionEncoder", sizes(42, 3, 61, 2), torch.float32),
    "dpr_context": Golden("DPRContextEncoder", sizes(36, 4, 47, 2, projection_dim=10), torch.bfloat16),
    "dpr_relu": Golden("DPRContextEncoder", sizes(34, 2, 29, hidden_act="relu", type_vocab_size=1), torch.float16),
    "esm2": Golden("EsmForMaskedLM", esm(36, 3, 61, 2, position_embedding_type="rotary", token_dropout=True,
        emb_layer_norm_before=False), torch.float32),
    "esm2_undropped": Golden("EsmModel", esm(32, 2, 47, position_embedding_type="rotary", token_dropout=False),
        torch.float32),     # transformers stores the frequencies, too, and bfloat16 would round them
    "esm1b": Golden("EsmForSequenceClassification", esm(34, 2, 29, 2, position_embedding_type="absolute",
        token_dropout=True, emb_layer_norm_before=True), torch.float16),
    "xlm_roberta_flash": Golden("XLMRobertaForSequenceClassification", sizes(36, 3, 47, 2, max_position_embeddings=322,
        pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-05), torch.bfloat16,
        changes={"auto_map": {"AutoModel": "modeling_xlm_roberta.XLMRobertaModel"}, "use_flash_attn": True}),
    "bert_limit": Golden("BertForSequenceClassification", sizes(42, 3, 61, max_position_embeddings=300,
        type_vocab_size=3), torch.bfloat16),
    "distilbert_limit": Golden("DistilBertForMaskedLM", DISTILBERT | {"dim": 42, "n_layers": 2, "n_heads": 3,
        "hidden_dim": 61, "max_position_embeddings": 300}, torch.float16),
    "distilbert_relu": Golden("DistilBertModel", DISTILBERT | {"dim": 36, "n_layers": 3, "n_heads": 4, "hidden_dim": 47,
        "max_position_embeddings": 301, "activation": "relu", "sinusoidal_pos_embds": True}, torch.bfloat16),
    "xlm_roberta": Golden("XLMRobertaForMaskedLM", sizes(42, 6, 61, 2, max_position_embeddings=302, pad_token_id=1,
        type_vocab_size=1, layer_norm_eps=1e-05), torch.float32),
    "camembert": Golden("CamembertModel", sizes(34, 2, 29, max_position_embeddings=304, pad_token_id=3,
        type_vocab_size=2, hidden_act="gelu_new", layer_norm_eps=0.01), torch.bfloat16),
    "gte_types": Golden("GteModel", sizes(34, 1, 45, 2, max_position_embeddings=300, type_vocab_size=2), torch.float16),
    "albert_shared": Golden("AlbertForMaskedLM", sizes(42, 3, 61, 4, embedding_size=20), torch.float32),
    "albert_groups": Golden("AlbertModel", sizes(36, 4, 47, 5, num_hidden_groups=2, embedding_size=36,
        hidden_act="gelu", layer_norm_eps=0.01), torch.bfloat16),
    "albert_relu": Golden("AlbertForTokenClassification", sizes(33, 3, 29, embedding_size=50, hidden_act="relu",
        type_vocab_size=1), torch.float16),
    "electra_small": Golden("ElectraForPreTraining", sizes(42, 3, 61, 2, embedding_size=22), torch.float32),
    "electra_base": Golden("ElectraModel", sizes(36, 4, 47, embedding_size=36, layer_norm_eps=0.01), torch.bfloat16),
    "electra_generator": Golden("ElectraForMaskedLM", sizes(34, 2, 29, 2, embedding_size=45, hidden_act="gelu_new",
        type_vocab_size=1), torch.float16),
    "gemma_new": Golden("Gemma3TextModel", gemma(42, 3, 29, 7, num_key_value_heads=1, head_dim=16,
        query_pre_attn_scalar=20, sliding_window=128), torch.float32),
    "gemma_old": Golden("Gemma3TextModel", gemma(36, 4, 31, 4, num_key_value_heads=2, head_dim=10,
        query_pre_attn_scalar=6, sliding_window=30, rope_parameters={"full_attention": {"rope_type": "default",
        "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}},
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"]), torch.bfloat16,
        changes={"rope_parameters": None, "rope_theta": 5000, "rope_local_base_freq": 300.0, "rope_scaling": None,
        "_sliding_window_pattern": 6, "cache_implementation": "hybrid"}),
    "gemma_biased": Golden("Gemma3ForCausalLM", gemma(33, 3, 47, num_key_value_heads=3, head_dim=12,
        query_pre_attn_scalar=9, sliding_window=15, rms_norm_eps=0.01, attention_bias=True, hidden_activation="silu",
        sliding_window_pattern=2), torch.float16),
    "gemma_linear": Golden("Gemma3TextModel", gemma(36, 3, 29, 2, num_key_value_heads=1, head_dim=14, sliding_window=40,
        sliding_window_pattern=2, rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 5000.0,
        "factor": 8.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}), torch.float32,
        changes={"rope_parameters": None, "rope_theta": 5000.0, "rope_local_base_freq": 300,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma_causal": Golden("Gemma3TextModel", gemma(38, 2, 27, 4, num_key_value_heads=1, head_dim=12,
        query_pre_attn_scalar=14, sliding_window=24, sliding_window_pattern=2, use_bidirectional_attention=False),
        torch.float32),
    "qwen3_yarn": Golden("Qwen3Model", sizes(33, 3, 31, 2, num_key_value_heads=1, head_dim=24,
        rope_parameters={"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0,
        "original_max_position_embeddings": 80}), torch.float32, changes={"rope_parameters": None, "rope_theta": 700.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 80}}),
    "jina_v3_yarn": Golden("JinaEmbeddingsV3Model", sizes(40, 2, 47, 2, rope_parameters={"rope_type": "yarn",
        "rope_theta": 90.0, "factor": 3.0, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False,
        "attention_factor": 1.5, "original_max_position_embeddings": 100}), torch.float32),
    "nomic_linear": Golden("NomicBertModel", sizes(40, 2, 31, 2, rope_parameters={"rope_type": "linear",
        "rope_theta": 300.0, "factor": 5.0}), torch.bfloat16),
    "gte_yarn": Golden("GteModel", sizes(36, 2, 29, 2, type_vocab_size=1, rope_parameters={"rope_type": "yarn",
        "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 80}), torch.float32),
    "modernbert_scaled": Golden("ModernBertModel", sizes(40, 2, 31, local_attention=60, global_attn_every_n_layers=2,
        cls_token_id=1, sep_token_id=2, rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 900.0,
        "factor": 3.0, "original_max_position_embeddings": 100}, "sliding_attention": {"rope_type": "linear",
        "rope_theta": 200.0, "factor": 4.0}}), torch.float16),
    "modernbert_linear": Golden("ModernBertModel", sizes(36, 2, 29, 2, local_attention=40, global_attn_every_n_layers=2,
        cls_token_id=1, sep_token_id=2, rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 900.0,
        "factor": 2.5}, "sliding_attention": {"rope_type": "linear", "rope_theta": 200.0, "factor": 2.5}}),
        torch.float32, changes={"rope_parameters": None, "global_rope_theta": 900.0, "local_rope_theta": 200,
        "rope_scaling": {"rope_type": "linear", "factor": 2.5}}),
    "eurobert_dynamic": Golden("EuroBertModel", sizes(36, 2, 31, 2, mask_token_id=3,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, "factor": 4.0}), torch.float32),
    "eurobert_llama3": Golden("EuroBertModel", sizes(44, 2, 61, 2, mask_token_id=3,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 120}), torch.float32),
}  # fmt: skip


def save(folder: Path, golden: Golden) -> None:
    """Write a model; the weights of Gemma's norms are one less than what it multiplies by."""
    save_model(folder, replace(golden, gain=0.0) if golden.kind.startswith("Gemma3") else golden)


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of a model; DPR's classes have no vectors of tokens, but BERT inside of them has."""
    if golden.kind.startswith("DPR"):
        save_expected(folder, golden, kind=golden.type, part=lambda dpr: getattr(dpr, dpr.base_model_prefix).bert_model)
    else:
        save_expected(folder, golden)
    if golden.changes.get("use_flash_attn"):
        rename_for_flash(folder / "model.safetensors")


def rename_for_flash(path: Path) -> None:
    """Give the tensors of XLM-RoBERTa the names of Jina's code, with queries, keys and values in one tensor."""
    tensors = load_file(path)
    words = {"embeddings.LayerNorm": "emb_ln", "encoder.layer.": "encoder.layers.",
             "attention.output.dense": "mixer.out_proj", "attention.output.LayerNorm": "norm1",
             "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2", "output.LayerNorm": "norm2"}
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in words.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    for name in [name for name in renamed if ".self.query." in name]:
        parts = [renamed.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        renamed[name.replace("attention.self.query", "mixer.Wqkv")] = torch.cat(parts)
    save_file(renamed, path, metadata={"format": "pt"})


if __name__ == "__main__":
    write_models(MODELS, expect, save)
