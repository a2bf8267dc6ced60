"""Make the golden files of ModernBERT: what transformers computes in float64 with eager attention.

    python -m tests.golden.make.modernbert

The script writes three folders in tests/golden, each with config.json, model.safetensors and expected.npz:

    modernbert_new/     the config that transformers 5 writes; names without `model.`; layer_types that no single
                        global_attn_every_n_layers describes; bfloat16
    modernbert_old/     the config and the names of answerdotai/ModernBERT-base on the hub, with the head of a masked
                        language model; float32
    modernbert_biases/  an old config that transformers 5 has loaded and saved again, so that its config.json holds
                        global_attn_every_n_layers beside layer_types; biases everywhere; the head of a classifier;
                        an odd local_attention; norm_eps 0.01; float16

expected.npz holds, for sequence i of `LENGTHS`, ids_{i} [T], rows_{i} (token numbers, all of 0..T-1 where T is small)
and hidden_{i} [rows, D] in float32; and ids, mask, rows and hidden of one sequence whose attention_mask has holes.

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

transformers computes some steps in float32 whatever the model's dtype: the inverse frequencies, the angles, the
rotation and the softmax. `float64_throughout` replaces this float32 by float64 while transformers' own code runs. The
script computes everything a second time in NumPy, and stops unless the two agree within 1e-10. It also stops unless
each mistake of `mistakes` changes the stored rows of the sequence of 129 tokens by at least 1e-2.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import transformers.models.modernbert.modeling_modernbert as modeling
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
    PreTrainedModel,
)

from tests.tools.paths import ENCODERS

from .expected import VOCAB, make_expected

LENGTHS = (1, 2, 63, 64, 65, 66, 129, 300)
HOLES = (0, 5, 6, 7, 40, 41, 77, 100, 119)
"""Columns where the attention_mask of the sequence with holes, of 120 tokens, is 0; the last is ordinary padding."""

Tensors = dict[str, np.ndarray]

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


@dataclass(frozen=True)
class Plain:
    """What the NumPy computation needs beside the tensors, written out by hand rather than read by transformers."""

    heads: int
    kinds: str
    """A letter for each layer: G global, L local."""
    reach: int = 64
    """A local layer's tokens see this many tokens on each side."""
    thetas: tuple[float, float] = (160000.0, 10000.0)
    """Of global layers and of local ones."""
    eps: float = 1e-5
    interleaved: bool = False
    """Rotate columns 2c and 2c + 1 together, which ModernBERT does not do."""


def main() -> None:
    torch.set_num_threads(1)

    model = randomise(ModernBertModel(ModernBertConfig(**NEW)))
    model.to(torch.bfloat16).save_pretrained(ENCODERS / "modernbert_new")
    save_expected("modernbert_new", Plain(3, "GLGLL"))

    save_as_on_the_hub(ENCODERS / "modernbert_old")
    save_expected("modernbert_old", Plain(2, "GLLG"))

    model = randomise(ModernBertForSequenceClassification(ModernBertConfig(**BIASES)))
    model.to(torch.float16).save_pretrained(ENCODERS / "modernbert_biases")
    save_expected("modernbert_biases", Plain(2, "GLGLG", reach=25, thetas=(80000.0, 500.0), eps=0.01))


def randomise(model: PreTrainedModel) -> PreTrainedModel:
    """Fill a model with numbers that are large enough for a mistake to show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2)
    return model


def save_as_on_the_hub(folder: Path) -> None:
    """Write a model in the form of answerdotai/ModernBERT-base, where decoder.weight, which is tied, is not stored."""
    model = randomise(ModernBertForMaskedLM(ModernBertConfig(**OLD)))
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name != "decoder.weight"}
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(OLD, indent=2) + "\n", encoding="utf-8")

    _, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    if any(loading.values()):
        raise SystemExit(f"{folder}: transformers does not load the model as a whole: {loading}")


def save_expected(name: str, plain: Plain) -> None:
    """Write expected.npz beside the model of that name, from the weights as they are stored."""
    folder = ENCODERS / name
    tensors = {key.removeprefix("model."): tensor.double().numpy()
               for key, tensor in load_file(folder / "model.safetensors").items()}  # fmt: skip
    with float64_throughout():
        model = AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        make_expected(folder, partial(run, model), LENGTHS, step=lambda length: 1 if length <= 66 else 8, holes=HOLES,
                      second=partial(numpy_forward, tensors, plain),
                      mistakes=((name, partial(numpy_forward, *wrong)) for name, *wrong in
                                mistakes(tensors, plain)))  # fmt: skip


def run(model: PreTrainedModel, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        hidden = model(torch.from_numpy(ids)[None], torch.from_numpy(mask)[None].long()).last_hidden_state[0]
    if hidden.dtype != torch.float64:
        raise SystemExit(f"transformers computed in {hidden.dtype}")
    return hidden.numpy()


class Float64Torch:
    """The module torch, with float64 under the names of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


@contextmanager
def float64_throughout() -> Iterator[None]:
    """Let transformers' own ModernBERT code compute in float64 where it asks for float32."""
    with patch.object(modeling, "torch", Float64Torch()), patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def numpy_forward(tensors: Tensors, plain: Plain, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute what the docstring above says, in float64: hidden [T, D]."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0.0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + plain.eps)
        return scaled * tensors[f"{name}.weight"] + tensors.get(f"{name}.bias", 0.0)

    T = len(ids)
    distances = np.abs(np.arange(T)[:, None] - np.arange(T))
    x = norm("embeddings.norm", tensors["embeddings.tok_embeddings.weight"][ids])
    for i, kind in enumerate(plain.kinds):
        layer = f"layers.{i}"
        a = norm(f"{layer}.attn_norm", x) if f"{layer}.attn_norm.weight" in tensors else x
        q, k, v = linear(f"{layer}.attn.Wqkv", a).reshape(T, 3, plain.heads, -1).transpose(1, 2, 0, 3)
        theta = plain.thetas["GL".index(kind)]
        q, k = (rotate(part, theta, plain.interleaved) for part in (q, k))
        seen = mask & ((kind == "G") | (distances <= plain.reach))
        scores = np.where(seen, q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + linear(f"{layer}.attn.Wo", (weights @ v).swapaxes(0, 1).reshape(T, -1))
        gate, up = np.split(linear(f"{layer}.mlp.Wi", norm(f"{layer}.mlp_norm", x)), 2, axis=-1)
        x = x + linear(f"{layer}.mlp.Wo", gelu(gate) * up)
    return norm("final_norm", x)


def rotate(x: np.ndarray, theta: float, interleaved: bool) -> np.ndarray:
    """Turn [H, T, d] by the angles of positions 0..T-1."""
    T, d = x.shape[1:]
    angles = np.outer(np.arange(T), [theta ** (-2 * c / d) for c in range(d // 2)])
    first, second = (slice(0, d, 2), slice(1, d, 2)) if interleaved else (slice(0, d // 2), slice(d // 2, d))
    turned = np.empty_like(x)
    turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    turned[..., second] = x[..., second] * np.cos(angles) + x[..., first] * np.sin(angles)
    return turned


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def mistakes(tensors: Tensors, plain: Plain) -> Iterator[tuple[str, Tensors, Plain]]:
    """Yield (name, tensors, plain) of each mistake that an implementation could make."""

    def changed(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Tensors:
        return {name: change(array) if part in name else array for name, array in tensors.items()}

    def swap_halves(a: np.ndarray) -> np.ndarray:
        return np.concatenate([a[len(a) // 2 :], a[: len(a) // 2]])

    def swap_first_two_thirds(a: np.ndarray) -> np.ndarray:
        return np.concatenate([a[D : 2 * D], a[:D], a[2 * D :]])

    def as_three_per_head(a: np.ndarray) -> np.ndarray:
        return a.reshape(plain.heads, 3, -1, a.shape[1]).swapaxes(0, 1).reshape(a.shape)

    D = len(tensors["final_norm.weight"])
    yield "gate and up swapped", changed("mlp.Wi.", swap_halves), plain
    yield "Wqkv read as [H][3][d]", changed("Wqkv.weight", as_three_per_head), plain
    yield "query and key swapped", changed("Wqkv.weight", swap_first_two_thirds), plain
    yield "the thetas swapped", tensors, replace(plain, thetas=plain.thetas[::-1])
    yield "the global theta everywhere", tensors, replace(plain, thetas=plain.thetas[:1] * 2)
    yield "the local theta everywhere", tensors, replace(plain, thetas=plain.thetas[1:] * 2)
    yield "interleaved columns", tensors, replace(plain, interleaved=True)
    yield "a window of one token less on each side", tensors, replace(plain, reach=plain.reach - 1)
    yield "a window of one token more on each side", tensors, replace(plain, reach=plain.reach + 1)
    yield "a window of local_attention on each side", tensors, replace(plain, reach=2 * plain.reach)
    yield "all layers global", tensors, replace(plain, kinds="G" * len(plain.kinds))
    yield "layers of the other kind", tensors, replace(plain, kinds=plain.kinds.translate({71: "L", 76: "G"}))
    yield "a norm in layer 0", tensors | {"layers.0.attn_norm.weight": np.ones(D)}, plain
    for kind in ("norm", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"):
        if any(f"{kind}.bias" in name for name in tensors):
            yield f"no bias in {kind}", changed(f"{kind}.bias", np.zeros_like), plain
    if plain.eps != 1e-5:
        yield "norm_eps left at 1e-5", tensors, replace(plain, eps=1e-5)


if __name__ == "__main__":
    main()
