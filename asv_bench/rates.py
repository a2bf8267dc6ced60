"""Time whole calls that choose tokens, by the public interface, so that other checkouts can be timed, too.

    python asv_bench/rates.py [SmolLM2-135M-Instruct.Q4_1.gguf] [--words 151936]

Prints a line of JSON: the tokens a second of greedy search with 16 and 64 rows, if there is a file; the seconds of
`Generator.score` of 64 texts of 200 tokens with that vocabulary, and the peak of the memory that NumPy allocates for it
in MiB; and the pairs a second of a `Reranker` of such a model. int8, two threads. `choices.py --before` runs it in
turns.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.models import random_model
from sessions import SMOLLM2

from engine import Generator, Model, Reranker

OPENINGS = ("The history of the Roman Empire", "def quicksort(a):", "My favourite film is", "Rain forms when",
            "Once upon a time", "The best way to learn", "In 1969, two men", "A recipe for bread:")


def greedy_rate(generator: Generator, rows: int, **options: float) -> float:
    """Return the tokens a second of a call with this number of rows."""
    prompts = [OPENINGS[i % len(OPENINGS)] for i in range(rows)]
    begun = time.perf_counter()
    generator.generate(prompts, max_new_tokens=48, eos_token_id=None, **options)
    return 48 * rows / (time.perf_counter() - begun)


def rates(path: Path | None, words: int) -> dict[str, float]:
    """Return what is measured, each once after a first call."""
    found: dict[str, float] = {}
    if path is not None:
        generator = Generator.load(path, precision="int8", threads=2)
        for rows in (16, 64):
            greedy_rate(generator, rows)
            found[f"greedy, {rows} rows, tokens/s"] = greedy_rate(generator, rows)
        generator.close()
    model = random_model(replace(SMOLLM2, num_layers=2, vocab_size=words))
    generator = Generator(Model(decoder=replace(model, text=None)), precision="int8", threads=2)
    texts = [np.random.default_rng(i).integers(5, 40_000, 201).tolist() for i in range(64)]
    generator.score(texts[:8])
    begun = time.perf_counter()
    generator.score(texts)
    found["score, s"] = time.perf_counter() - begun
    tracemalloc.start()
    generator.score(texts)
    found["score, MiB"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    generator.close()
    stated = json.loads(model.text.tokenizer_json) | {"post_processor": None}     # a reranker's tokenizer adds nothing
    text = replace(model.text, tokenizer_json=json.dumps(stated).encode())
    reranker = Reranker(Model(decoder=replace(model, text=text)), template="{query} {document}", answers=[7, 8],
                        precision="int8", threads=2)
    documents = ["".join(np.random.default_rng(i).choice(list("abcdefgh "), 200)) for i in range(64)]
    reranker.rank("a query", documents[:8])
    begun = time.perf_counter()
    reranker.rank("a query", documents)
    found["rerank, pairs/s"] = len(documents) / (time.perf_counter() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--words", type=int, default=151936)
    options = parser.parse_args()
    print(json.dumps(rates(options.path, options.words)))


if __name__ == "__main__":
    main()
