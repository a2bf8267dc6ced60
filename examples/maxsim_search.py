"""Find texts by single vectors in FAISS, then order the best ones by MaxSim, with a vector for each token.

    pip install faiss-cpu
    python examples/maxsim_search.py ENCODER COLBERT "Which cats purr?" texts.txt

FAISS compares one vector of a text with many in a short time. MaxSim compares all words of the query with all words of
a text, which is more exact: for 100 texts it takes a few milliseconds. ENCODER is a sentence-transformers model such as
all-MiniLM-L6-v2; COLBERT is a folder that MultiVectorEncoder of sentence-transformers 6 has saved.
"""

import sys
from pathlib import Path

import numpy as np

from engine import Engine

try:
    import faiss
except ImportError:
    faiss = None


def nearest(vectors: np.ndarray, query: np.ndarray, most: int) -> list[int]:
    """Return the rows of vectors [n,D] whose dot products with a query [D] are the largest; without FAISS, by NumPy."""
    if faiss is None:
        return np.argsort(-(vectors @ query), kind="stable")[:most].tolist()
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return [int(place) for place in index.search(query[None], min(most, len(vectors)))[1][0]]


def search(encoder: Engine, colbert: Engine, query: str, texts: list[str], most: int = 100) -> list[tuple[float, int]]:
    """Return (score, place) of the `most` texts that single vectors find, the best by MaxSim first."""
    vectors = encoder.encode_document(texts, normalize_embeddings=True)
    found = nearest(vectors, encoder.encode_query(query, normalize_embeddings=True), most)
    tokens = colbert.encode_document([texts[place] for place in found])     # a list of arrays [T, D]
    scores = colbert.similarity(colbert.encode_query([query]), tokens)[0]
    return [(float(scores[i]), found[i]) for i in np.argsort(-scores, kind="stable")]


def main(encoder: str, colbert: str, query: str, file: str) -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    for score, place in search(Engine.load(encoder), Engine.load(colbert), query, texts)[:5]:
        print(f"{score:8.4f}  {texts[place]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
