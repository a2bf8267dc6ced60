"""Compute Spearman's correlation of a model's cosine similarities with human ratings, on a file in STS-B's layout.

    python examples/stsb.py stsb-dev.tsv models/all-MiniLM-L6-v2.npz

Each line of the file has a score and two sentences, separated by tabs, in UTF-8 without quoting. all-MiniLM-L6-v2
reaches 86.72 (Spearman x 100) on the development set.
"""

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np

from engine import Engine


def main() -> None:
    parser = argparse.ArgumentParser(description="Spearman correlation on an STS-B file.")
    parser.add_argument("pairs", type=Path, help="lines of: score, sentence, sentence; separated by tabs")
    parser.add_argument("model", help="an .npz file or a model folder")
    arguments = parser.parse_args()

    lines = arguments.pairs.read_text(encoding="utf-8").rstrip("\n").split("\n")
    scores, first, second = zip(*(line.split("\t") for line in lines), strict=True)
    engine = Engine.load(arguments.model)

    start = perf_counter()
    vectors = engine.encode([*first, *second], normalize_embeddings=True)
    seconds = perf_counter() - start

    cosines = (vectors[: len(first)] * vectors[len(first) :]).sum(axis=1)
    print(f"{len(scores)} pairs   Spearman x 100 = {100 * spearman(cosines, np.array(scores, float)):.3f}")
    print(f"{2 * len(scores) / seconds:,.0f} sentences/s, tokenizer included, {engine.threads} threads")


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Pearson correlation of the ranks of a [n] and b [n]."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each of values [n], counted from 1; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[group]


if __name__ == "__main__":
    main()
