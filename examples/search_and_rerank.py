"""Search texts by vectors, then order the best ones again with a cross-encoder.

    python examples/search_and_rerank.py ENCODER RERANKER "Which cats purr?" texts.txt

The encoder reads each text once, alone. The cross-encoder reads the query beside each of the best texts, which is
slower and more exact. ENCODER is a sentence-transformers model such as all-MiniLM-L6-v2; RERANKER is a cross-encoder
such as ms-marco-MiniLM-L6-v2 or bge-reranker-base, or a language model such as Qwen3-Reranker-0.6B.
"""

import sys
from pathlib import Path

import numpy as np

from engine import Engine, Reranker


def search(encoder: Engine, query: str, texts: list[str], most: int) -> list[int]:
    """Return the places of the texts that are nearest to the query, the nearest first."""
    vectors = encoder.encode_document(texts)
    similarities = encoder.similarity(encoder.encode_query(query), vectors)[0]
    return np.argsort(-similarities, kind="stable")[:most].tolist()


def search_and_rerank(encoder: Engine, reranker: Reranker, query: str, texts: list[str], most: int = 20) -> list[dict]:
    """Return the texts that search finds, ordered by the reranker: dictionaries with place, score and text."""
    found = search(encoder, query, texts, most)
    ranked = reranker.rank(query, [texts[place] for place in found])
    return [{"place": found[one["corpus_id"]], "score": one["score"], "text": texts[found[one["corpus_id"]]]}
            for one in ranked]


def main(encoder: str, reranker: str, query: str, file: str) -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    for one in search_and_rerank(Engine.load(encoder), Reranker.load(reranker), query, texts)[:5]:
        print(f"{one['score']:8.4f}  {one['text']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
