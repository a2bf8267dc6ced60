"""Search vectors in FAISS: in float32, or in int8 or bits with the best found ordered again in float32.

    pip install faiss-cpu
    python examples/stores/faiss_index.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?"

The vectors have length 1, so that the inner product is the cosine. int8 has one scale for all dimensions, which keeps
the order.
"""

import sys
from pathlib import Path

import faiss
import numpy as np

from engine import Engine

OVERSAMPLE = 4
"""How many times as many vectors int8 and bits look up, as float32 then returns."""


class Store:
    """Three indexes of the same vectors; those of int8 and of bits take a quarter and a 32nd of the memory."""

    def __init__(self, vectors: np.ndarray):
        width = vectors.shape[1]
        self.float32, self.binary = faiss.IndexFlatIP(width), faiss.IndexBinaryFlat(width)
        self.int8 = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit_direct_signed,
                                               faiss.METRIC_INNER_PRODUCT)
        self.scale = np.float32(127) / np.abs(vectors).max()
        self.float32.add(vectors)
        self.int8.add(np.round(vectors * self.scale))
        self.binary.add(np.packbits(vectors > 0, axis=1))

    def vectors(self) -> np.ndarray:
        """Return the float32 vectors, with the bits that they came with."""
        return self.float32.reconstruct_n(0, self.float32.ntotal)

    def search(self, queries: np.ndarray, count: int, precision: str = "float32") -> np.ndarray:
        """Return the numbers of the nearest vectors of each query, int64 [q,count], the nearest first."""
        if precision == "float32":
            return self.float32.search(queries, count)[1]
        index = self.int8 if precision == "int8" else self.binary
        asked = np.round(queries * self.scale) if precision == "int8" else np.packbits(queries > 0, axis=1)
        found = index.search(asked, OVERSAMPLE * count)[1]
        again = np.stack([self.float32.reconstruct_batch(row) @ query
                          for row, query in zip(found, queries, strict=True)])
        return np.take_along_axis(found, np.argsort(-again, axis=1)[:, :count], axis=1)


def main(model: str, file: str, query: str) -> None:
    engine, texts = Engine.load(model), Path(file).read_text(encoding="utf-8").splitlines()
    store = Store(engine.encode(texts, normalize_embeddings=True))
    for precision in ("float32", "int8", "binary"):
        found = store.search(engine.encode([query], normalize_embeddings=True), 3, precision)[0]
        print(f"{precision:8}", *(texts[number] for number in found), sep="\n    ")


if __name__ == "__main__":
    main(*sys.argv[1:])
