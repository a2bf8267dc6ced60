"""Search vectors in LanceDB: in float32, or in int8 or bits with the best found ordered again in float32.

    pip install lancedb
    python examples/stores/lancedb_table.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?" database/

A table is a folder of files, and takes columns of Arrow as they are. The index IVF_SQ keeps 8 bits a dimension beside
them; `refine_factor` looks up so many times more of them, and orders these by their float32.
"""

import sys
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfSq

from engine import Engine

OVERSAMPLE = 4


class Store:
    """A table with vectors of length 1 in float32, with an index in int8, and in bits, eight in a byte."""

    def __init__(self, vectors: np.ndarray, path: str):
        columns = {"float32": vectors, "binary": np.packbits(vectors > 0, axis=1)}
        table = {name: pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
                 for name, array in columns.items()}
        table["id"] = pa.array(np.arange(len(vectors)))
        self.table = lancedb.connect(path).create_table("items", pa.table(table), mode="overwrite")
        if len(vectors) >= 256:     # an index cannot learn from fewer rows
            self.table.create_index("float32", config=IvfSq(distance_type="cosine", num_partitions=1))

    def vectors(self) -> np.ndarray:
        """Return the float32 vectors, with the bits that they came with."""
        return np.stack(self.table.to_arrow().sort_by("id")["float32"].to_numpy())

    def search(self, queries: np.ndarray, count: int, precision: str = "float32") -> np.ndarray:
        """Return the numbers of the nearest vectors of each query, [q,count], the nearest first."""
        return np.stack([self.nearest(query, count, precision) for query in queries])

    def nearest(self, query: np.ndarray, count: int, precision: str) -> np.ndarray:
        if precision == "binary":
            search = self.table.search(np.packbits(query > 0), vector_column_name="binary").distance_type("hamming")
            found = search.limit(OVERSAMPLE * count).to_arrow()
            return found["id"].to_numpy()[np.argsort(-(np.stack(found["float32"].to_numpy()) @ query))[:count]]
        search = self.table.search(query, vector_column_name="float32").distance_type("cosine").limit(count)
        search = search.refine_factor(OVERSAMPLE) if precision == "int8" else search.bypass_vector_index()
        return search.to_arrow()["id"].to_numpy()


def main(model: str, file: str, query: str, folder: str) -> None:
    engine, texts = Engine.load(model), Path(file).read_text(encoding="utf-8").splitlines()
    store = Store(engine.encode(texts, normalize_embeddings=True), folder)
    print(*(texts[i] for i in store.search(engine.encode([query], normalize_embeddings=True), 3)[0]), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
