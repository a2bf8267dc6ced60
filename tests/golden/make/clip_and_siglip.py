"""Make the golden files of the text encoders of CLIP and SigLIP: what transformers computes in float64.

    python -m tests.golden.make.clip_and_siglip [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors, expected.npz, of which expected.py says what it holds, and pooled.npz: for text i, ids_{i} [T] with
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

The script computes everything a second time in NumPy, and stops unless the two agree within 1e-10. It also stops unless
each mistake of `mistakes` changes the stored rows of the sequence of 129 tokens by at least 1e-3.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from .expected import VOCAB, Golden, make_expected, sparse, write_models
from .rotary_encoders import Tensors, float64_throughout, gelu, run

LENGTHS = (1, 2, 17, 63, 64, 65, 129, 300)
BOS, EOS, PAD = 3, 119, 1
FILLED = 300


@dataclass(frozen=True)
class Plain:
    """What the NumPy computation needs beside the tensors, written out by hand rather than read by transformers."""

    heads: int
    eps: float
    activation: str
    causal: bool


SIZES = {"vocab_size": VOCAB, "max_position_embeddings": 300, "pad_token_id": PAD, "bos_token_id": BOS,
         "eos_token_id": EOS}  # fmt: skip
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
    "clip_own": Golden(
        "CLIPModel",
        SIZES | {"hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 61, "num_hidden_layers": 3,
                 "projection_dim": 21, "eos_token_id": 2},
        torch.float16, Plain(3, 1e-5, "quick_gelu", True), own_config=CLIP_OWN),
    "clip_projected": Golden(
        "CLIPTextModelWithProjection",
        SIZES | {"hidden_size": 36, "num_attention_heads": 4, "intermediate_size": 47, "num_hidden_layers": 2,
                 "projection_dim": 50, "hidden_act": "gelu"},
        torch.bfloat16, Plain(4, 1e-5, "gelu", True)),
    "clip_bare": Golden(
        "CLIPTextModel",
        SIZES | {"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 29, "num_hidden_layers": 2,
                 "layer_norm_eps": 0.01},
        torch.bfloat16, Plain(3, 0.01, "quick_gelu", True)),
    "siglip_own": Golden(
        "SiglipModel",
        SIZES | {"hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 61, "num_hidden_layers": 2},
        torch.float32, Plain(3, 1e-6, "gelu_tanh", False)),
    "siglip_text": Golden(
        "SiglipTextModel",
        SIZES | {"hidden_size": 36, "num_attention_heads": 4, "intermediate_size": 47, "num_hidden_layers": 3,
                 "projection_size": 25, "layer_norm_eps": 0.01, "hidden_act": "quick_gelu"},
        torch.bfloat16, Plain(4, 0.01, "quick_gelu", False)),
    "siglip2_text": Golden(
        "Siglip2TextModel",
        SIZES | {"hidden_size": 34, "num_attention_heads": 2, "intermediate_size": 29, "num_hidden_layers": 2,
                 "projection_size": 40},
        torch.float16, Plain(2, 1e-6, "gelu_tanh", False)),
}  # fmt: skip


def main() -> None:
    write_models(MODELS, save_model, save_expected)


def save_model(folder: Path, golden: Golden) -> None:
    """Write a model of random numbers that are large enough for a mistake to show."""
    kind = getattr(transformers, golden.kind)
    config = golden.config
    if golden.kind in ("CLIPModel", "SiglipModel"):
        config = {"text_config": config, "vision_config": VISION, "projection_dim": config.get("projection_dim", 42)}
    model = kind(kind.config_class(**config))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.2)
    model.to(golden.dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def save_expected(folder: Path, golden: Golden) -> None:
    """Write expected.npz and pooled.npz beside a model, from the weights as they are stored."""
    kind = getattr(transformers, golden.kind)
    with float64_throughout(golden.kind):
        whole, loading = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                              output_loading_info=True)  # fmt: skip
        if any(loading.values()):
            raise SystemExit(f"{folder}: transformers does not load the model as a whole: {loading}")
        tower = getattr(whole.eval(), "text_model", whole)
        tensors = {name: tensor.numpy() for name, tensor in tower.state_dict().items()}
        make_expected(folder, partial(run, tower), LENGTHS, step=sparse, least=1e-3,
                      second=partial(numpy_forward, tensors, golden.plain),
                      mistakes=((name, partial(numpy_forward, *wrong)) for name, *wrong in
                                mistakes(tensors, golden.plain)))  # fmt: skip
        np.savez_compressed(folder / "pooled.npz", **pooled(whole, golden))


def pooled(model: Any, golden: Golden) -> Tensors:
    """Return texts of some lengths with their special tokens, and the text embeddings of transformers."""
    rng, arrays = np.random.default_rng(1), {}
    for i, length in enumerate((0, 1, 5, 64, 298)):
        ids = np.concatenate([[BOS], rng.integers(4, EOS, length), [EOS]])
        if not golden.plain.causal:
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


def numpy_forward(tensors: Tensors, plain: Plain, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """Compute what the docstring above says, in float64: hidden [T, D]."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + plain.eps)
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    acts = {
        "gelu": gelu, "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)), "silu": lambda x: x / (1 + np.exp(-x)),
        "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    }  # fmt: skip
    T = len(ids)
    x = tensors["embeddings.token_embedding.weight"][ids] + tensors["embeddings.position_embedding.weight"][:T]
    for i in range(max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layers.")) + 1):
        layer = f"encoder.layers.{i}"
        a = norm(f"{layer}.layer_norm1", x)
        q, k, v = (linear(f"{layer}.self_attn.{part}_proj", a).reshape(T, plain.heads, -1).swapaxes(0, 1)
                   for part in "qkv")  # fmt: skip
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        if plain.causal:
            scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + linear(f"{layer}.self_attn.out_proj", (weights @ v).swapaxes(0, 1).reshape(T, -1))
        a = norm(f"{layer}.layer_norm2", x)
        x = x + linear(f"{layer}.mlp.fc2", acts[plain.activation](linear(f"{layer}.mlp.fc1", a)))
    return norm("final_layer_norm", x)


def mistakes(tensors: Tensors, plain: Plain) -> Iterator[tuple[str, Tensors, Plain]]:
    """Yield (name, tensors, plain) of each mistake that an implementation could make."""
    swapped = {name.replace("q_proj", "*").replace("k_proj", "q_proj").replace("*", "k_proj"): array
               for name, array in tensors.items()}  # fmt: skip
    yield "queries and keys swapped", swapped, plain
    norms = {name.replace("norm1", "*").replace("norm2", "norm1").replace("*", "norm2"): array
             for name, array in tensors.items()}  # fmt: skip
    yield "the norms of a layer swapped", norms, plain
    yield "the other mask", tensors, replace(plain, causal=not plain.causal)
    for other in {"gelu", "quick_gelu", "silu", "gelu_tanh"} - {plain.activation}:
        if {plain.activation, other} != {"gelu", "gelu_tanh"}:
            yield f"{other} in place of {plain.activation}", tensors, replace(plain, activation=other)
    position = "embeddings.position_embedding.weight"
    yield "positions from 1", tensors | {position: np.roll(tensors[position], -1, axis=0)}, plain
    yield "another epsilon", tensors, replace(plain, eps=0.1)
    for part in ("q_proj.bias", "v_proj.bias", "out_proj.bias", "fc1.bias", "fc2.bias", "norm.bias"):
        yield f"no {part}", {n: a * (not n.endswith(part)) for n, a in tensors.items()}, plain


if __name__ == "__main__":
    main()
