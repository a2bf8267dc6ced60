"""Search vectors in SQLite: in float32, or in int8 or bits with the best found ordered again in float32.

    pip install apsw sqlite-vec
    python examples/stores/sqlite_table.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?"

sqlite-vec reads every vector of a column. apsw has its own SQLite, as many modules sqlite3 cannot load extensions.
"""

import sys
from pathlib import Path

import apsw
import numpy as np
import sqlite_vec

from engine import Engine

OVERSAMPLE = 4
READ = {"float32": "?", "int8": "vec_int8(?)", "binary": "vec_bit(?)"}      # the bytes of a vector, in SQL


class Store:
    def __init__(self, vectors: np.ndarray, path: str = ":memory:"):
        width = vectors.shape[1]
        self.scale = np.float32(127) / np.abs(vectors).max()      # one for all dimensions, so that the order stays
        self.database = apsw.Connection(path)
        self.database.enable_load_extension(True)
        self.database.load_extension(sqlite_vec.loadable_path())
        self.database.execute(f"CREATE VIRTUAL TABLE items USING vec0(float32 FLOAT[{width}] distance_metric=cosine, "
                              f"int8 INT8[{width}] distance_metric=cosine, binary BIT[{width}])")
        rows = ((number, *(self.coded(vector, name) for name in READ)) for number, vector in enumerate(vectors))
        with self.database:
            self.database.executemany(f"INSERT INTO items VALUES (?, {', '.join(READ.values())})", rows)

    def coded(self, vector: np.ndarray, precision: str) -> bytes:
        if precision == "int8":
            return np.round(vector * self.scale).clip(-127, 127).astype(np.int8).tobytes()
        return vector.tobytes() if precision == "float32" else np.packbits(vector > 0).tobytes()

    def vectors(self) -> np.ndarray:
        rows = self.database.execute("SELECT float32 FROM items ORDER BY rowid")
        return np.stack([np.frombuffer(row, np.float32) for row, in rows])

    def search(self, queries: np.ndarray, count: int, precision: str = "float32") -> np.ndarray:
        """Return the numbers of the nearest vectors of each query, [q,count], the nearest first."""
        statement = (f"SELECT rowid FROM (SELECT rowid, float32 FROM items WHERE {precision} MATCH {READ[precision]} "
                     f"AND k = {OVERSAMPLE * count}) ORDER BY vec_distance_cosine(float32, ?) LIMIT {count}")
        values = ((self.coded(query, precision), query.tobytes()) for query in queries)
        return np.array([[number for number, in self.database.execute(statement, value)] for value in values])


def main(model: str, file: str, query: str) -> None:
    engine, texts = Engine.load(model), Path(file).read_text(encoding="utf-8").splitlines()
    store = Store(engine.encode(texts, normalize_embeddings=True))
    found = store.search(engine.encode([query], normalize_embeddings=True), 3, "int8")[0]
    print(*(texts[number] for number in found), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
