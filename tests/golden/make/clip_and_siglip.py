"""Make the golden files of the text encoders of CLIP and SigLIP: what transformers computes in float64.

    python -m tests.golden.make.clip_and_siglip [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors, expected.npz, of which scaffold.py says what it holds, and pooled.npz: for text i, ids_{i} [T] with
the special tokens, and pooled_{i}, the text embedding of transformers.

Each mistake has to change the vectors by at least 1e-3.
"""

from typing import Any

import numpy as np
import torch

from .scaffold import Golden, float64_throughout, open_model, save_expected, write_models

BOS, EOS, PAD = 3, 119, 1
FILLED = 300

MODELS = (
    Golden("clip_own", dtype=torch.float16), Golden("clip_projected"), Golden("clip_bare"),
    Golden("siglip_own"), Golden("siglip_text"), Golden("siglip2_text"),
)  # fmt: skip


def expect(golden: Golden) -> None:
    """Write the expected.npz and pooled.npz of a model."""
    save_expected(golden, kind=golden.type, part=lambda whole: getattr(whole, "text_model", whole), least=1e-3,
                  lengths=(1, 2, 17, 63, 64, 65, 129, 300))
    with float64_throughout(golden.type):
        np.savez_compressed(golden.folder / "pooled.npz", **pooled(open_model(golden.folder, golden.type), golden))


def pooled(model: Any, golden: Golden) -> dict[str, np.ndarray]:
    """Return texts of some lengths with their special tokens, and the text embeddings of transformers."""
    rng, arrays = np.random.default_rng(1), {}
    for i, length in enumerate((0, 1, 5, 64, 298)):
        ids = np.concatenate([[BOS], rng.integers(4, EOS, length), [EOS]])
        if golden.name.startswith("siglip"):
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
                vector = found.text_embeds if golden.name == "clip_projected" else found.pooler_output
        arrays |= {f"ids_{i}": ids.astype(np.uint8), f"pooled_{i}": vector[0].numpy().astype(np.float32)}
    return arrays


if __name__ == "__main__":
    write_models(MODELS, expect)
