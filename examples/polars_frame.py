"""Embed a column of a Polars frame, and sort the frame by its similarity to a query.

    pip install polars
    python examples/polars_frame.py models/all-MiniLM-L6-v2.npz texts.txt "How do I hold a lock?"

The vectors are a column of type Array(Float32, D), so that Polars writes them to Parquet as they are.
"""

import sys
from pathlib import Path

import polars as pl

from engine import Engine


def embed(engine: Engine, texts: pl.Series) -> pl.Series:
    """Return the vectors of a column of texts; a null text has a null vector."""
    given = texts.drop_nulls()
    vectors = pl.Series("vector", engine.encode(given.to_list(), normalize_embeddings=True))
    if len(given) == len(texts):
        return vectors
    places = pl.Series([None if missing else 1 for missing in texts.is_null()]).cum_sum() - 1
    return vectors.gather(places)


def closest(engine: Engine, frame: pl.DataFrame, query: str, count: int) -> pl.DataFrame:
    """Return the rows whose vectors have the largest cosine with the query."""
    score = frame["vector"].to_numpy() @ engine.encode(query, normalize_embeddings=True)
    return frame.with_columns(score=pl.Series(score)).top_k(count, by="score").select("score", "text")


def main(model: str, file: str, query: str) -> None:
    engine = Engine.load(model)
    lines = pl.DataFrame({"text": Path(file).read_text(encoding="utf-8").splitlines()})
    frame = lines.with_columns(pl.col("text").map_batches(
        lambda texts: embed(engine, texts), return_dtype=pl.Array(pl.Float32, engine.get_embedding_dimension())
    ).alias("vector"))
    with pl.Config(fmt_str_lengths=80, tbl_hide_dataframe_shape=True):
        print(closest(engine, frame, query, 3))


if __name__ == "__main__":
    main(*sys.argv[1:])
