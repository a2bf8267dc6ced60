"""Make the golden files of BERT's nearest families, EmbeddingGemma, ESM and scaled rotary positions, in float64.

    python -m tests.golden.make.encoders [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.
"""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .scaffold import Golden, save_expected, save_model, write_models

MODELS = tuple(Golden(name) for name in (
    "big_bird_sparse", "big_bird_full", "big_bird_unbiased", "deberta1", "deberta1_c2p", "deberta1_p2c", "dpr_question",
    "dpr_context", "dpr_relu", "esm2", "esm2_undropped", "esm1b", "xlm_roberta_flash", "bert_limit", "distilbert_limit",
    "distilbert_relu", "xlm_roberta", "camembert", "gte_types", "albert_shared", "albert_groups", "albert_relu",
    "electra_small", "electra_base", "electra_generator", "gemma_new", "gemma_old", "gemma_biased", "gemma_linear",
    "gemma_causal", "qwen3_yarn", "jina_v3_yarn", "nomic_linear", "gte_yarn", "modernbert_scaled", "modernbert_linear",
    "eurobert_dynamic", "eurobert_llama3"))  # fmt: skip


def save(golden: Golden) -> None:
    """Write a model; the weights of Gemma's norms are one less than what it multiplies by."""
    save_model(replace(golden, gain=0.0) if golden.name.startswith("gemma") else golden)


def expect(golden: Golden) -> None:
    """Write the expected.npz of a model; DPR's classes have no vectors of tokens, but BERT inside of them has."""
    if golden.name.startswith("dpr"):
        save_expected(golden, kind=golden.type, part=lambda dpr: getattr(dpr, dpr.base_model_prefix).bert_model)
    else:
        save_expected(golden)
    if golden.own_config.get("use_flash_attn"):
        rename_for_flash(golden.folder / "model.safetensors")


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
