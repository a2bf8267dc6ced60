"""Search vectors in usearch: in float32, or in int8 or bits with the best found ordered again in float32.

    pip install usearch
    python examples/stores/usearch_index.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?"

An index is a graph (HNSW), so that a search reads few vectors.
"""

import sys
from pathlib import Path

import numpy as np
from usearch.index import Index

from engine import Engine

OVERSAMPLE = 4


class Store:
    """Three indexes of the same vectors of length 1."""

    def __init__(self, vectors: np.ndarray):
        width, keys = vectors.shape[1], np.arange(len(vectors))
        self.float32 = Index(ndim=width, metric="ip", dtype="f32", expansion_search=128)
        self.int8 = Index(ndim=width, metric="ip", dtype="i8", expansion_search=128)
        self.binary = Index(ndim=width, metric="hamming", dtype="b1", expansion_search=128)
        self.scale = np.float32(127) / np.abs(vectors).max()      # one for all dimensions, so that the order stays
        self.float32.add(keys, vectors)
        self.int8.add(keys, self.coded(vectors, "int8"))
        self.binary.add(keys, self.coded(vectors, "binary"))

    def coded(self, vectors: np.ndarray, precision: str) -> np.ndarray:
        """Return float32 vectors as int8 [n,D], or as bits: uint8 [n,D/8]."""
        if precision == "binary":
            return np.packbits(vectors > 0, axis=1)
        return np.round(vectors * self.scale).clip(-127, 127).astype(np.int8)

    def vectors(self) -> np.ndarray:
        """Return the float32 vectors, with the bits that they came with."""
        return np.stack(self.float32.get(np.arange(len(self.float32))))

    def search(self, queries: np.ndarray, count: int, precision: str = "float32") -> np.ndarray:
        """Return the numbers of the nearest vectors of each query, [q,count], the nearest first."""
        if precision == "float32":
            return self.float32.search(queries, count).keys
        found = getattr(self, precision).search(self.coded(queries, precision), OVERSAMPLE * count).keys
        again = np.stack([np.stack(self.float32.get(row)) @ query for row, query in zip(found, queries, strict=True)])
        return np.take_along_axis(found, np.argsort(-again, axis=1)[:, :count], axis=1)


def main(model: str, file: str, query: str) -> None:
    engine, texts = Engine.load(model), Path(file).read_text(encoding="utf-8").splitlines()
    store = Store(engine.encode(texts, normalize_embeddings=True))
    found = store.search(engine.encode([query], normalize_embeddings=True), 3, "int8")[0]
    print(*(texts[number] for number in found), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
