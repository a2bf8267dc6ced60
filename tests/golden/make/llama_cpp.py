"""Make the golden logits and texts of SmolLM2-135M-Instruct on llama.cpp, of its Q4_1 file and of the same in F32.

    PYTHONPATH=asv_bench python -m tests.golden.make.llama_cpp SmolLM2-135M-Instruct.Q4_1.gguf

It needs llama-cpp-python and gguf (asv_bench/peers/requirements.txt). The package gguf writes the F32 file. The cache
is in float32 in both runs, so the runs differ in one thing: for products with quantized weights, llama.cpp rounds the
inputs to 8 bits with a scale for each 32. A model in NumPy below measures what this rounding changes.

llama_cpp.npz holds for each prompt i

    text_{i}, ids_{i}           the prompt, and its ids [T] by llama.cpp's tokenizer
    best_{i}, values_{i}        [T,8]: the largest logits after each token, in F32
    quantized_{i}               [T,8]: the logits of the same tokens from the Q4_1 file
    rounding_{i}                the root of the mean square of what the rounding changes in them, by NumPy's model
    greedy_{i}                  up to `NEW_TOKENS` tokens in F32

A greedy text ends before an end token, and where the largest logit leads by less than 1e-3.
"""

import ctypes
import re
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from peers.llama_language import LlamaLanguage, rewrite

from tests.tools.paths import DECODERS

PROMPTS = (
    "<|im_start|>user\nWrite a long story about a lighthouse and the sea.<|im_end|>\n<|im_start|>assistant\n",
    "The first computer was",
    "def fibonacci(n):\n    \"\"\"Return the n-th number of 1, 1, 2, 3, 5, 8, 13.\"\"\"\n",
    "Der Zug fährt um 17:45 Uhr ab — 北京, naïve café 🙂.",
)
NEW_TOKENS, MARGIN, END = 200, 1e-3, 2
HEADS, KEY_HEADS, WIDTH, LAYERS, THETA, EPSILON = 9, 3, 64, 30, 100000.0, 1e-5


def tokenize(model: LlamaLanguage, text: str) -> list[int]:
    """Return the ids of a text by llama.cpp's tokenizer, special tokens included."""
    api, data, room = model.api, text.encode(), (ctypes.c_int32 * 1024)()
    vocabulary = api.llama_model_get_vocab(api.llama_get_model(model.context))
    count = api.llama_tokenize(vocabulary, data, len(data), room, len(room), True, True)
    assert 0 < count <= len(room), count
    return list(room[:count])


def greedy(model: LlamaLanguage, ids: list[int]) -> list[int]:
    """Return the most likely tokens, up to `NEW_TOKENS`."""
    model.clear()
    [logits], found, position = model.logits([(0, 0, ids)]), [], len(ids)
    while len(found) < NEW_TOKENS:
        second, first = np.sort(np.partition(logits, -2)[-2:])
        token = int(logits.argmax())
        if first - second < MARGIN or token == END:
            break
        found.append(token)
        [logits] = model.logits([(0, position, [token])])
        position += 1
    return found


def rounded(x: np.ndarray) -> np.ndarray:
    """Round rows to 8 bits with a scale for each 32 numbers, as llama.cpp rounds the inputs of quantized products."""
    blocks = x.reshape(len(x), -1, 32)
    scale = np.abs(blocks).max(axis=2, keepdims=True) / 127
    integers = np.rint(blocks / np.where(scale == 0, 1, scale))
    return (integers * scale.astype(np.float16)).astype(x.dtype).reshape(x.shape)


def formula(weights: dict[str, np.ndarray], ids: list[int], *, rounds: bool) -> np.ndarray:
    """Return the logits [T,V] in float64, with rounded inputs of linear maps where `rounds`."""
    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return (rounded(x) if rounds else x) @ weights[f"{name}.weight"].T.astype(np.float64)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * weights[f"{name}.weight"]

    def heads(name: str, x: np.ndarray, count: int) -> np.ndarray:
        return linear(name, x).reshape(len(x), count, WIDTH).swapaxes(0, 1)

    def rotated(x: np.ndarray) -> np.ndarray:   # neighbours are pairs
        turned = x.reshape(*x.shape[:2], -1, 2) @ np.array([1, 1j])
        angles = np.arange(len(ids))[:, None] * THETA ** (-np.arange(0, WIDTH, 2) / WIDTH)
        turned = turned * np.exp(1j * angles)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    x = weights["token_embd.weight"][ids].astype(np.float64)
    hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for i in range(LAYERS):
        layer = f"blk.{i}."
        y = norm(f"{layer}attn_norm", x)
        q = rotated(heads(f"{layer}attn_q", y, HEADS))
        k = rotated(heads(f"{layer}attn_k", y, KEY_HEADS)).repeat(HEADS // KEY_HEADS, axis=0)
        v = heads(f"{layer}attn_v", y, KEY_HEADS).repeat(HEADS // KEY_HEADS, axis=0)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH) + hidden
        p = np.exp(scores - scores.max(axis=2, keepdims=True))
        context = (p / p.sum(axis=2, keepdims=True)) @ v
        x = x + linear(f"{layer}attn_output", context.swapaxes(0, 1).reshape(len(ids), -1))
        y = norm(f"{layer}ffn_norm", x)
        gate = linear(f"{layer}ffn_gate", y)
        x = x + linear(f"{layer}ffn_down", gate / (1 + np.exp(-gate)) * linear(f"{layer}ffn_up", y))
    return linear("token_embd", norm("output_norm", x))


def main(path: Path) -> None:
    """Write the file."""
    weights = {tensor.name: np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
               for tensor in gguf.GGUFReader(path).tensors}
    assert all(re.fullmatch(r"blk\.\d+\.\w+\.weight|token_embd\.weight|output_norm\.weight", name) for name in weights)
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        wide = Path(folder) / "float32.gguf"
        rewrite(path, wide, "F32")
        plain, quantized = (LlamaLanguage(file, 1, 1, exact=True) for file in (wide, path))
        for i, text in enumerate(PROMPTS):
            ids = tokenize(plain, text)
            assert ids == tokenize(quantized, text)
            found = []
            for model in (plain, quantized):
                model.clear()
                found.append(model.logits([(0, 0, ids)], every=True))
            best = np.argsort(-found[0], axis=1, kind="stable")[:, :8]
            values, coarse, exact, rough = (np.take_along_axis(logits, best, axis=1) for logits in (
                *found, formula(weights, ids, rounds=False), formula(weights, ids, rounds=True)))
            tokens = greedy(plain, ids)
            rounding = np.sqrt(((rough - exact) ** 2).mean())
            print(f"{len(ids)} tokens: F32 differs from NumPy by at most {np.abs(values - exact).max():.2g}, Q4_1 by "
                  f"{np.sqrt(((coarse - exact) ** 2).mean()):.3f} (root of the mean square; rounding {rounding:.3f}); "
                  f"{len(tokens)} new tokens")
            arrays |= {f"text_{i}": np.array(text), f"ids_{i}": np.array(ids, np.int32), f"values_{i}": values,
                       f"best_{i}": best.astype(np.int32), f"quantized_{i}": coarse,
                       f"rounding_{i}": np.array(rounding), f"greedy_{i}": np.array(tokens, np.int32)}
    np.savez_compressed(DECODERS / "llama_cpp.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
