"""Make the golden files of torch.nn.TransformerEncoder: its token vectors in float64.

    python -m tests.golden.make.torch_transformer

The script writes transformer_{post,pre,bare}.npz in tests/golden. Each holds the tensors of the state dict under
torch's names, the word table as `words` [V,D], num_heads, and for sequence i of `LENGTHS` the arrays ids_{i} [T] and
hidden_{i} [T,D] in float32. The input of the encoder is words[ids] * sqrt(D) plus the sinusoids of Vaswani et al.
(arXiv 1706.03762), section 3.5, which the script computes entry by entry.
"""

import math

import numpy as np
import torch

from tests.tools.paths import ENCODERS

LENGTHS = (1, 2, 17, 65, 130)
VOCAB = 60
MODELS = {
    # name: D, heads, F, layers, norm_first, final norm, biases, activation
    "post": (42, 3, 61, 3, False, False, True, "relu"),
    "pre": (33, 3, 29, 2, True, True, True, "gelu"),
    "bare": (40, 5, 47, 2, False, True, False, "relu"),
}


def sinusoid(position: int, column: int, width: int) -> float:
    angle = position / 10000 ** (column // 2 * 2 / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


def main() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for name, (D, heads, F, layers, norm_first, final_norm, bias, act) in MODELS.items():
        layer = torch.nn.TransformerEncoderLayer(D, heads, F, 0.0, act, norm_first=norm_first, bias=bias,
                                                 batch_first=True)  # fmt: skip
        norm = torch.nn.LayerNorm(D, bias=bias) if final_norm else None
        model = torch.nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.normal_(1.0 if "norm" in key and key.endswith("weight") else 0.0, 0.2)
        arrays = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
        words = rng.standard_normal((VOCAB, D), np.float32) * np.float32(0.3)
        model = model.double().eval()
        for i, length in enumerate(LENGTHS):
            ids = rng.integers(0, VOCAB, length)
            table = np.array([[sinusoid(t, c, D) for c in range(D)] for t in range(length)])
            x = words[ids].astype(np.float64) * math.sqrt(D) + table
            with torch.inference_mode():
                hidden = model(torch.from_numpy(x)[None])[0].numpy()
            arrays |= {f"ids_{i}": ids.astype(np.uint8), f"hidden_{i}": hidden.astype(np.float32)}
        np.savez_compressed(ENCODERS / f"transformer_{name}.npz", words=words, num_heads=np.array(heads), **arrays)


if __name__ == "__main__":
    main()
