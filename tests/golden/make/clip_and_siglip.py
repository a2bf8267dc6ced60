"""Make the golden files of the text encoders of CLIP and SigLIP: what transformers computes in float64.

    python -m tests.golden.make.clip_and_siglip [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors, expected.npz, of which scaffold.py says what it holds, and pooled.npz: for text i, ids_{i} [T] with
the special tokens, and pooled_{i}, the text embedding of transformers.

The computation, for one sequence of T tokens. D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    x = token_embedding[ids] + position_embedding[0 .. T-1]
    for each layer:
        a = layer_norm1(x)
        q, k, v = q_proj(a), k_proj(a), v_proj(a)                           as H heads of d
        p = softmax over s of (q_t . k_s) / sqrt(d)                         CLIP: only s <= t
        x = x + out_proj(heads of p v side by side)
        x = x + fc2(act(fc1(layer_norm2(x))))                               quick_gelu(x) = x / (1 + exp(-1.702 x))
    hidden = final_layer_norm(x)
    pooled = text_projection(hidden[first token eos])                       CLIP; nothing is scaled to unit length
    pooled = head(hidden[last])                                             SigLIP, of texts that are filled up

Each mistake has to change the vectors by at least 1e-3.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .scaffold import VOCAB, Golden, float64_throughout, open_model, save_expected, save_model, sizes, write_models

BOS, EOS, PAD = 3, 119, 1
FILLED = 300


sizes_of = partial(sizes, max_position_embeddings=300, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 4,
          "patch_size": 2}  # fmt: skip

CLIP_OWN = {
    "_commit_hash": None, "architectures": ["CLIPModel"], "initializer_factor": 1.0, "logit_scale_init_value": 2.6592,
    "model_type": "clip", "projection_dim": 21, "text_config": {
        "_name_or_path": "", "add_cross_attention": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "dropout": 0.0, "eos_token_id": 2, "hidden_act": "quick_gelu", "hidden_size": 42, "initializer_factor": 1.0,
        "initializer_range": 0.02, "intermediate_size": 61, "is_decoder": False, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 300, "model_type": "clip_text_model", "num_attention_heads": 3,
        "num_hidden_layers": 3, "pad_token_id": 1, "projection_dim": 21, "pruned_heads": {}, "vocab_size": VOCAB},
    "text_config_dict": None, "torch_dtype": "float32", "transformers_version": None,
    "vision_config": {"model_type": "clip_vision_model"} | VISION, "vision_config_dict": None,
}  # fmt: skip

MODELS = {
    "clip_own": Golden("CLIPModel", sizes_of(42, 3, 61, projection_dim=21, eos_token_id=2), torch.float16,
        own_config=CLIP_OWN),
    "clip_projected": Golden("CLIPTextModelWithProjection", sizes_of(36, 4, 47, 2, projection_dim=50,
        hidden_act="gelu"), torch.bfloat16),
    "clip_bare": Golden("CLIPTextModel", sizes_of(33, 3, 29, 2, layer_norm_eps=0.01), torch.bfloat16),
    "siglip_own": Golden("SiglipModel", sizes_of(42, 3, 61, 2), torch.float32),
    "siglip_text": Golden("SiglipTextModel", sizes_of(36, 4, 47, projection_size=25, layer_norm_eps=0.01,
        hidden_act="quick_gelu"), torch.bfloat16),
    "siglip2_text": Golden("Siglip2TextModel", sizes_of(34, 2, 29, 2, projection_size=40), torch.float16),
}  # fmt: skip


def save(folder: Path, golden: Golden) -> None:
    """Write a model; one of texts and images has a small part for the latter."""
    config = golden.config
    if golden.kind in ("CLIPModel", "SiglipModel"):
        config = {"text_config": config, "vision_config": VISION, "projection_dim": config.get("projection_dim", 42)}
    save_model(folder, replace(golden, config=config))


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz and pooled.npz of a model."""
    save_expected(folder, golden, kind=golden.type, part=lambda whole: getattr(whole, "text_model", whole), least=1e-3,
                  lengths=(1, 2, 17, 63, 64, 65, 129, 300))
    with float64_throughout(golden.type):
        np.savez_compressed(folder / "pooled.npz", **pooled(open_model(folder, golden.type), golden))


def pooled(model: Any, golden: Golden) -> dict[str, np.ndarray]:
    """Return texts of some lengths with their special tokens, and the text embeddings of transformers."""
    rng, arrays = np.random.default_rng(1), {}
    for i, length in enumerate((0, 1, 5, 64, 298)):
        ids = np.concatenate([[BOS], rng.integers(4, EOS, length), [EOS]])
        if golden.kind.startswith("Siglip"):
            ids = np.pad(ids, (0, FILLED - len(ids)), constant_values=PAD)
        elif length == 5:
            ids[3] = EOS  # the first one counts
        given = torch.from_numpy(ids)[None]
        with torch.inference_mode():
            if hasattr(model, "get_text_features"):
                found = model.get_text_features(given)
                vector = getattr(found, "pooler_output", found)
            else:
                found = model(given)
                vector = found.text_embeds if golden.kind.endswith("WithProjection") else found.pooler_output
        arrays |= {f"ids_{i}": ids.astype(np.uint8), f"pooled_{i}": vector[0].numpy().astype(np.float32)}
    return arrays


if __name__ == "__main__":
    write_models(MODELS, expect, save)
