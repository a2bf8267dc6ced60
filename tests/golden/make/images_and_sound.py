"""Make the golden files of ViT, DINOv2 and Whisper's encoder: what transformers computes in float64.

    python -m tests.golden.make.images_and_sound [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors and inputs.npz: for input i, given_{i} (an image [C, H, W] or frames [C, T], float32) and hidden_{i}
[T, D], float32.

The computation for an image; D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    patches = projection(each square of p x p pixels, as C p p numbers)     from the top left, row by row
    x = [class token, patches] + position_embeddings                        DINOv2: resized where the image is larger
                                                                            or smaller; bicubic, a = -0.75, and with
                                                                            registers a = -0.5 with antialiasing
    x = [x[0], register tokens, x[1:]]                                      DINOv2 with registers
    for each layer:
        x = x + scale1 * attention(norm1(x))                                ViT has no scale1 and no scale2
        x = x + scale2 * fc2(act(fc1(norm2(x))))                            or down(silu(gate) * up)
    hidden = layernorm(x)

And for frames: x = gelu(conv1(frames)), x = gelu(conv2(x)) with stride 2, x = x + positions; then layers without
scales, whose keys have no bias; the last norm is called layer_norm.

transformers computes DINOv2's resized positions in float32; `float64_throughout` replaces this float32 by float64. The
script stops unless each mistake of `mistakes`, made in the weights, changes the vectors by at least 1e-3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .scaffold import Golden, float64_throughout, open_model, write_models


@dataclass(frozen=True)
class Seen(Golden):
    """One golden model."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """Heights and widths of images, or numbers of frames."""


WHISPER = {"decoder_layers": 1, "decoder_attention_heads": 1, "decoder_ffn_dim": 4, "vocab_size": 20,
           "max_target_positions": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
           "decoder_start_token_id": 1}  # fmt: skip

MODELS = {
    "vit_own": Seen(
        "ViTForImageClassification",
        {"hidden_size": 42, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 61, "image_size": 12,
         "patch_size": 4}, torch.float32, sizes=((12, 12),) * 3),
    "vit_new": Seen(
        "ViTModel",
        {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 47, "image_size": 27,
         "patch_size": 3, "layer_norm_eps": 0.01, "num_channels": 1, "hidden_act": "gelu_new"},
        torch.bfloat16, sizes=((27, 27),) * 2, new_names=True),
    "vit_unbiased": Seen(
        "ViTModel",
        {"hidden_size": 33, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 29, "image_size": 5,
         "patch_size": 5, "qkv_bias": False}, torch.float16, sizes=((5, 5),) * 2),
    "dinov2_own": Seen(
        "Dinov2Model",
        {"hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 3, "mlp_ratio": 2, "image_size": 20,
         "patch_size": 4}, torch.float32, sizes=((20, 20), (12, 12), (31, 9), (4, 4), (21, 22), (40, 40))),
    "dinov2_giant": Seen(
        "Dinov2Model",
        {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_ratio": 3, "image_size": 18,
         "patch_size": 3, "use_swiglu_ffn": True, "layer_norm_eps": 0.01}, torch.float16,
        sizes=((18, 18), (12, 9), (15, 22), (33, 33))),
    "dinov2_registers": Seen(
        "Dinov2WithRegistersModel",
        {"hidden_size": 34, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2, "image_size": 20,
         "patch_size": 4, "num_register_tokens": 3, "qkv_bias": False}, torch.bfloat16,
        sizes=((20, 20), (12, 12), (8, 31), (44, 36), (4, 4))),
    "whisper_own": Seen(
        "WhisperForConditionalGeneration",
        WHISPER | {"d_model": 42, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 61,
                   "num_mel_bins": 7, "max_source_positions": 65}, torch.float16, sizes=((130,), (128,), (34,), (2,))),
    "whisper_model": Seen(
        "WhisperModel",
        WHISPER | {"d_model": 36, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 47,
                   "num_mel_bins": 11, "max_source_positions": 20}, torch.float32, sizes=((40,), (38,), (4,))),
    "whisper_relu": Seen(
        "WhisperForAudioClassification",
        WHISPER | {"d_model": 34, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 29,
                   "num_mel_bins": 3, "max_source_positions": 33, "activation_function": "relu"},
        torch.bfloat16, sizes=((66,), (2,))),
}  # fmt: skip


def save_inputs(folder: Path, golden: Seen) -> None:
    """Write inputs.npz beside a model, from the weights as they are stored."""
    rng, arrays = np.random.default_rng(0), {}
    with float64_throughout(golden.type):
        whole = open_model(folder, golden.type)
        channels = golden.config.get("num_mel_bins", golden.config.get("num_channels", 3))
        for i, size in enumerate(golden.sizes):
            given = rng.standard_normal((channels, *size)).astype(np.float32)
            hidden = run(whole, given)
            arrays |= {f"given_{i}": given, f"hidden_{i}": hidden.astype(np.float32)}
        for name, wrong in mistakes(whole, given):
            change = np.abs(wrong - hidden).max()
            print(f"{folder.name}, {name}: changes the result by {change:.4f}")
            if not change >= 1e-3:
                raise SystemExit("this mistake would not show")
    np.savez_compressed(folder / "inputs.npz", **arrays)
    print(f"{folder.name}: vectors up to {max(np.abs(a).max() for n, a in arrays.items() if 'hidden' in n):.1f}")


def run(whole: Any, given: np.ndarray) -> np.ndarray:
    """Return the vectors [T, D] of an image or of frames."""
    batch = torch.from_numpy(given).double()[None]
    with torch.inference_mode():
        if given.ndim == 3:
            base = getattr(whole, "vit", whole)
            hidden = base(batch).last_hidden_state
        else:
            encoder = whole.get_encoder() if hasattr(whole, "get_encoder") else whole.encoder
            table, longest = encoder.embed_positions.weight, encoder.config.max_source_positions
            encoder.config.max_source_positions = given.shape[1] // 2
            encoder.embed_positions = torch.nn.Embedding.from_pretrained(table[: given.shape[1] // 2])
            hidden = encoder(batch).last_hidden_state
            encoder.config.max_source_positions = longest
            encoder.embed_positions = torch.nn.Embedding.from_pretrained(table)
    if hidden.dtype != torch.float64:
        raise SystemExit(f"transformers computed in {hidden.dtype}")
    return hidden[0].numpy()


def mistakes(whole: Any, given: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, vectors) of each mistake that an implementation could make."""
    if given.ndim == 3:
        yield "rows and columns swapped", run(whole, np.ascontiguousarray(given.swapaxes(1, 2)))
        if len(given) > 1:
            yield "blue, green, red", run(whole, given[::-1].copy())
    else:
        yield "a frame later", run(whole, np.roll(given, 1, axis=1))
    parameters = dict(whole.named_parameters())
    for part in ("layer_scale1", "layer_scale2", "register_tokens", "cls_token", "position_embeddings",
                 "projection.bias", "embed_positions", "conv1.bias", "conv2.bias", "layernorm.bias"):
        chosen = {name: p for name, p in parameters.items() if part in name and "decoder" not in name}
        if not chosen:
            continue
        kept = {name: p.detach().clone() for name, p in chosen.items()}
        for name, parameter in chosen.items():
            parameter.data = torch.ones_like(parameter) if "scale" in name else torch.zeros_like(parameter)
        yield f"no {part}", run(whole, given)
        for name, parameter in chosen.items():
            parameter.data = kept[name]


if __name__ == "__main__":
    write_models(MODELS, save_inputs)
