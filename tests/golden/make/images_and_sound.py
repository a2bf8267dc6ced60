"""Make the golden files of ViT, DeiT, DINOv2 and Whisper's encoder: what transformers computes in float64.

    python -m tests.golden.make.images_and_sound [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors and inputs.npz: for input i, given_{i} (an image [C, H, W] or frames [C, T], float32) and hidden_{i}
[T, D], float32.

transformers computes DINOv2's resized positions in float32; `float64_throughout` replaces this float32 by float64. The
script stops unless each mistake of `mistakes`, made in the weights, changes the vectors by at least 1e-3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .scaffold import Golden, float64_throughout, open_model, write_models


@dataclass(frozen=True)
class Seen(Golden):
    """One golden model."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """Heights and widths of images, or numbers of frames."""


MODELS = (
    Seen("vit_own", sizes=((12, 12),) * 3),
    Seen("vit_new", new_names=True, sizes=((27, 27),) * 2),
    Seen("vit_unbiased", sizes=((5, 5),) * 2),
    Seen("deit_own", sizes=((12, 12),) * 2),
    Seen("dinov2_own", sizes=((20, 20), (12, 12), (31, 9), (4, 4), (21, 22), (40, 40))),
    Seen("dinov2_giant", sizes=((18, 18), (12, 9), (15, 22), (33, 33))),
    Seen("dinov2_registers", sizes=((20, 20), (12, 12), (8, 31), (44, 36), (4, 4))),
    Seen("clip_vision", sizes=((12, 12),) * 2),
    Seen("siglip_vision", sizes=((12, 12),) * 2),
    Seen("whisper_own", sizes=((130,), (128,), (34,), (2,))),
    Seen("whisper_model", sizes=((40,), (38,), (4,))),
    Seen("whisper_relu", sizes=((66,), (2,))),
)  # fmt: skip


def save_inputs(golden: Seen) -> None:
    """Write inputs.npz beside a model, from the weights as they are stored."""
    rng, arrays = np.random.default_rng(0), {}
    with float64_throughout(golden.type):
        whole = open_model(golden.folder, golden.type)
        channels = getattr(golden.config, "num_mel_bins", getattr(golden.config, "num_channels", 3))
        for i, size in enumerate(golden.sizes):
            given = rng.standard_normal((channels, *size)).astype(np.float32)
            hidden = run(whole, given)
            arrays |= {f"given_{i}": given, f"hidden_{i}": hidden.astype(np.float32)}
        for name, wrong in mistakes(whole, given):
            change = np.abs(wrong - hidden).max()
            print(f"{golden.name}, {name}: changes the result by {change:.4f}")
            if not change >= 1e-3:
                raise SystemExit("this mistake would not show")
    np.savez_compressed(golden.folder / "inputs.npz", **arrays)
    print(f"{golden.name}: vectors up to {max(np.abs(a).max() for n, a in arrays.items() if 'hidden' in n):.1f}")


def run(whole: Any, given: np.ndarray) -> np.ndarray:
    """Return the vectors [T, D] of an image or of frames."""
    batch = torch.from_numpy(given).double()[None]
    with torch.inference_mode():
        if given.ndim == 3:
            base = getattr(whole, "vit", getattr(whole, "deit", whole))
            hidden = base(batch).last_hidden_state
            if hasattr(base, "pre_layrnorm"):     # of CLIP, which norms the rows that it reads
                hidden = base.post_layernorm(hidden)
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
    for part in ("layer_scale1", "layer_scale2", "register_tokens", "cls_token", "distillation_token",
                 "position_embeddings", "projection.bias", "pre_layrnorm.bias", "class_embedding", "embed_positions",
                 "conv1.bias", "conv2.bias", "layernorm.bias"):
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
