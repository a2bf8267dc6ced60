"""Embed a table in DuckDB with a function of SQL, and search it with SQL.

    pip install duckdb pyarrow
    python examples/duckdb_search.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?"

DuckDB passes columns of Arrow to the function, 2,048 rows at a time, and gets its vectors as FLOAT[D]. DuckDB calls the
function from several threads; the calls take turns in the engine.
"""

import sys

import duckdb
import pyarrow as pa

from engine import Engine
from engine.adapters.arrow import encode_column


def connect(engine: Engine, database: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """Return a connection that has the function embed(text); the vector of a null is a null."""
    def embed(texts: pa.ChunkedArray) -> pa.Array:
        return encode_column(engine.encode, texts)

    connection = duckdb.connect(database)
    vector = f"FLOAT[{engine.get_embedding_dimension()}]"
    connection.create_function("embed", embed, ["VARCHAR"], vector, type="arrow", null_handling="special")
    return connection


def main(model: str, file: str, query: str) -> None:
    connection = connect(Engine.load(model))
    connection.execute("CREATE TABLE texts AS SELECT text, embed(text) AS vector FROM read_csv(?, columns={'text': "
                       "'VARCHAR'}, delim='\x01', quote='', header=false)", [file])
    for score, text in connection.execute(
        "SELECT array_cosine_similarity(vector, (SELECT embed(?))) AS score, text FROM texts "
        "ORDER BY score DESC LIMIT 3", [query],
    ).fetchall():
        print(f"{score:.3f}  {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
