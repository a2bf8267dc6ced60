"""Time the choice of tokens: each setting beside greedy search with the same rows, in CPU time, in turns.

    python asv_bench/choices.py [SmolLM2-135M-Instruct.Q4_1.gguf] [--rows 1 16 64] [--words 49152 151936] [--turns 9]
        [--only step whole score]

The measures are

    step    a model of one layer without weights, 576 columns and so many words, int8, one thread: nearly all of a step
            is the product with the vocabulary and the choice. With the file, its vectors lie where SmolLM2's lie in a
            text, and the words are SmolLM2's, repeated with noise where more are asked for; without it, both are
            random. Each turn measures all settings once, beside greedy search just before; the median ratio is printed
    whole   SmolLM2 itself, int8, two threads: tokens a second of 16 and 64 rows, greedy, and with top_p 0.95 alone
    score   64 texts of 200 tokens with the most words: seconds, and the peak of the memory that NumPy allocates
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.models import random_model
from numpy.typing import NDArray
from peers.machine import cpu_name
from sessions import SMOLLM2

from engine import Generator, Model, load_model
from engine.backends import get_backend
from engine.backends.interfaces import Decoder
from engine.backends.steps import Row
from engine.backends.wants import GREEDY, Addends, Changes, Draw, IdSet, Want
from engine.model.run_config import RunConfig
from engine.weights.parameters import parameters_of
from engine.weights.quantize import widen

WIDTH, STEPS, TEXTS = 576, 12, 512
"""Columns of the vectors, steps of a measure, and tokens whose vectors are kept."""
OPENINGS = ("The history of the Roman Empire", "def quicksort(a):", "My favourite film is", "Rain forms when",
            "Once upon a time", "The best way to learn", "In 1969, two men", "A recipe for bread:")
Make = Callable[[np.random.Generator, int], Want]
"""Returns what a row wants of this number of words."""


def seen(rng: np.random.Generator, V: int, penalty: float) -> Changes:
    """Return the penalty of a text of 300 ids."""
    return Changes(IdSet.of(rng.integers(0, V, 300), V), penalty)


def drawn(rng: np.random.Generator, changes: Changes | None = None, **settings: float) -> Want:
    """Return one draw."""
    return Want(draw=Draw(**settings), numbers=(rng.random(),), changes=changes)     # type: ignore[arg-type]


SETTINGS: dict[str, Make] = {
    "repetition_penalty 1.1": lambda rng, V: Want(best=1, changes=seen(rng, V, 1.1)),
    "top_k 20, top_p 0.8, penalty 1.05": lambda rng, V: drawn(rng, seen(rng, V, 1.05), top_k=20, top_p=0.8),
    "top_k 0": lambda rng, V: drawn(rng),
    "top_k 0, top_p 0.95": lambda rng, V: drawn(rng, top_p=0.95),
    "top_k 0, min_p 0.05": lambda rng, V: drawn(rng, min_p=0.05),
    "top_k 40, top_p 0.9": lambda rng, V: drawn(rng, top_k=40, top_p=0.9),
    "addends for 500 ids": lambda rng, V: Want(best=1, changes=Changes(addends=Addends(
        np.sort(rng.permutation(V)[:500]), -rng.random(500)))),
    "half of the words": lambda rng, V: Want(best=1, changes=Changes(
        allowed=IdSet.of(rng.permutation(V)[: V // 2], V))),
}


def texts_of(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return SmolLM2's table of words, and its vectors after some tokens of a text that it draws: the norm's own."""
    model = load_model(path, kind="generate")
    decoder, generator = model.decoder, Generator(model, precision="int8")
    assert decoder is not None
    texts = [generator.generate(prompt, do_sample=True, top_k=0, top_p=0.95, max_new_tokens=64, seed=i, ignore_eos=True)
             for i, prompt in enumerate(OPENINGS)]
    reads = get_backend("auto").prepare_decoder(decoder.config, decoder.weights, RunConfig(2, "float32"))
    parameter = parameters_of(decoder.config)["embeddings.word"]
    table = np.asarray(widen(decoder.weights, "embeddings.word", parameter), np.float32)
    logits = []
    for text in texts:
        ids = np.array(text.ids, np.int64)
        logits.append(reads.step([Row(reads.open(), None, ids, len(ids))]).logits)
    # The vectors are found by their logits: the table has more words than columns.
    lines, square = np.concatenate(logits)[:TEXTS], table.T.astype(np.float64) @ table
    return table, np.linalg.solve(square, (lines @ table).T).T.astype(np.float32)


def decoder_of(words: int, real: tuple[NDArray[np.float32], NDArray[np.float32]] | None) -> tuple[Decoder, int]:
    """Return a decoder whose layer adds nothing, with this number of words, and how many tokens have vectors."""
    config = replace(SMOLLM2, num_layers=1, ffn_size=64, vocab_size=words, logits="own")
    decoder = random_model(config)
    rng, weights = np.random.default_rng(0), dict(decoder.weights)
    table, vectors = real or (rng.standard_normal((49152, WIDTH), np.float32) * np.float32(0.1),
                              rng.standard_normal((TEXTS, WIDTH), np.float32))
    copies = -(-words // len(table))
    noise = rng.standard_normal((copies * len(table), WIDTH), np.float32) * np.float32(0.02 if copies > 1 else 0)
    weights["logits.weight"] = (np.tile(table, (copies, 1)) + noise)[:words]
    # The last norm divides each vector by its length, and its weight is that of all vectors; so a vector's own length
    # goes to the words: they are scaled by the mean.
    length = np.sqrt((vectors**2).mean(axis=1, keepdims=True))
    embeddings = np.zeros((words, WIDTH), np.float32)
    embeddings[: len(vectors)] = vectors / length
    weights["embeddings.word"] = embeddings
    weights["logits.weight"] *= np.float32(length.mean())
    for name, array in weights.items():
        if name.endswith("norm.weight"):
            weights[name] = np.ones_like(array)
        elif name.startswith("layers."):
            weights[name] = np.zeros_like(array)
    return get_backend("auto").prepare_decoder(config, weights, RunConfig(1, "int8")), len(vectors)


def seconds_of(decoder: Decoder, tokens: NDArray[np.int64], wants: Sequence[Sequence[Want]]) -> float:
    """Return the CPU seconds of a step with one row for each token, the mean of several steps."""
    request = decoder.open()
    rows = [[Row(request, None, tokens[i : i + 1], 1, (want,)) for i, want in enumerate(own)] for own in wants]
    decoder.step(rows[0])
    begun = time.process_time()
    for own in rows:
        decoder.step(own)
    seconds = (time.process_time() - begun) / len(rows)
    decoder.close(request)
    return seconds


def time_steps(rows: int, words: int, turns: int, real: tuple[NDArray[np.float32], NDArray[np.float32]] | None) -> None:
    """Print the time of a greedy step, and the ratio of each setting to it."""
    decoder, known = decoder_of(words, real)
    rng, ratios, greedy = np.random.default_rng(1), {name: [] for name in SETTINGS}, []
    for _ in range(turns):
        tokens = rng.integers(0, known, rows)
        for name, make in SETTINGS.items():
            wants = [[make(rng, words) for _ in range(rows)] for _ in range(STEPS)]
            greedy.append(seconds_of(decoder, tokens, [GREEDY * rows] * STEPS))
            ratios[name].append(seconds_of(decoder, tokens, wants) / greedy[-1])
    print(f"{words:,} words, {rows} rows: greedy {1000 * median(greedy):.2f} ms; "
          + "; ".join(f"{name} {median(own):.3f}" for name, own in ratios.items()), flush=True)


def time_whole(path: Path, turns: int) -> None:
    """Print tokens a second of the whole model."""
    generator = Generator.load(path, precision="int8", threads=2)
    for rows in (16, 64):
        prompts = [OPENINGS[i % len(OPENINGS)] for i in range(rows)]
        rates: dict[str, list[float]] = {"greedy": [], "top_k 0, top_p 0.95": []}
        for turn in range(turns):
            sampled = {"do_sample": True, "top_k": 0, "top_p": 0.95, "seed": turn}
            for name, own in zip(rates, ({}, sampled), strict=True):
                begun = time.perf_counter()
                generator.generate(prompts, max_new_tokens=48, ignore_eos=True, **own)
                rates[name].append(48 * rows / (time.perf_counter() - begun))
        print(f"SmolLM2, {rows} rows: "
              + "; ".join(f"{name} {median(own):.0f} tokens/s" for name, own in rates.items()), flush=True)


def time_score(words: int, turns: int) -> None:
    """Print the time and the memory of scores of 64 texts."""
    model = Model(decoder=replace(random_model(replace(SMOLLM2, num_layers=2, vocab_size=words)), text=None))
    generator = Generator(model, precision="int8", threads=2)
    texts = [np.random.default_rng(i).integers(5, 40_000, 201).tolist() for i in range(64)]
    seconds = []
    for _ in range(turns):
        begun = time.perf_counter()
        generator.score(texts)
        seconds.append(time.perf_counter() - begun)
    tracemalloc.start()
    generator.score(texts)
    peak = tracemalloc.get_traced_memory()[1]
    print(f"score of 64 texts, {words:,} words: {median(seconds):.2f} s, {peak / 2**20:.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--words", nargs="+", type=int, default=[49152, 151936])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=("step", "whole", "score"), default=("step", "whole", "score"))
    options = parser.parse_args()
    print(cpu_name())
    if "step" in options.only:
        real = None if options.path is None else texts_of(options.path)
        for words in options.words:
            for rows in options.rows:
                time_steps(rows, words, options.turns, real)
    if "whole" in options.only and options.path is not None:
        time_whole(options.path, max(3, options.turns // 3))
    if "score" in options.only:
        time_score(max(options.words), 3)


if __name__ == "__main__":
    main()
