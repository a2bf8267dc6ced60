"""Search vectors in PostgreSQL with pgvector: in float32, or in float16 or bits with rescoring in float32.

    pip install 'psycopg[binary]' pgvector
    python examples/stores/pgvector_table.py postgresql://localhost/test models/all-MiniLM-L6-v2.npz texts.txt "A lock?"

The server needs the extension pgvector, which has float32, float16 and bits, and no int8. COPY in the binary format
passes the bits of float32 unchanged.
"""

import sys
from pathlib import Path

import numpy as np
import psycopg
from pgvector import Bit, Vector
from pgvector.psycopg import register_vector

from engine import Engine

OVERSAMPLE = 4
ORDER = {"float32": "float32 <=> %(query)s", "float16": "float32::halfvec <=> %(query)s::halfvec",
         "binary": "binary_quantize(float32)::bit({width}) <~> %(bits)s"}      # on which an index makes a search fast


class Store:
    """A table of vectors of length 1."""

    def __init__(self, vectors: np.ndarray, server: str):
        self.width = vectors.shape[1]
        self.connection = psycopg.connect(server, autocommit=True)
        self.connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(self.connection)
        self.connection.execute("DROP TABLE IF EXISTS items")
        self.connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, float32 vector({self.width}))")
        with self.connection.cursor().copy("COPY items FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "vector"])
            for number, vector in enumerate(vectors):
                copy.write_row((number, Vector(vector)))

    def vectors(self) -> np.ndarray:
        rows = self.connection.cursor(binary=True).execute("SELECT float32 FROM items ORDER BY id")
        return np.stack([vector.to_numpy() for vector, in rows])

    def search(self, queries: np.ndarray, count: int, precision: str = "float32") -> np.ndarray:
        """Return the numbers of the nearest vectors of each query, [q,count], the nearest first."""
        statement = (f"SELECT id FROM (SELECT * FROM items ORDER BY {ORDER[precision].format(width=self.width)} "
                     f"LIMIT {OVERSAMPLE * count}) AS found ORDER BY float32 <=> %(query)s LIMIT {count}")
        return np.array([[number for number, in self.connection.execute(
            statement, {"query": Vector(query), "bits": Bit(query > 0)})] for query in queries])


def main(server: str, model: str, file: str, query: str) -> None:
    engine, texts = Engine.load(model), Path(file).read_text(encoding="utf-8").splitlines()
    store = Store(engine.encode(texts, normalize_embeddings=True), server)
    found = store.search(engine.encode([query], normalize_embeddings=True), 3, "binary")[0]
    print(*(texts[number] for number in found), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
