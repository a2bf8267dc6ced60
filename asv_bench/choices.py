"""Time the choice of tokens: each setting beside greedy search with the same rows, in CPU time, in turns.

    python asv_bench/choices.py [SmolLM2-135M-Instruct.Q4_1.gguf] [--rows 1 16 64] [--words 49152 151936] [--turns 5]
        [--only step whole rates] [--before CHECKOUT]

The measures are

    step    a model of one layer without weights, 576 columns and so many words, int8, one thread: nearly all of a step
            is the product with the vocabulary and the choice. With the file, its vectors lie where SmolLM2's lie in a
            text, and the words are SmolLM2's, repeated with noise where more are asked for; without it, both are
            random. Each turn measures all settings once, beside greedy search just before; the median ratio is printed
    whole   SmolLM2 itself, int8, two threads: tokens a second of 16 and 64 rows, greedy, and with top_p 0.95 alone
    rates   greedy search, score and rerank with the most words, as rates.py says, in a process of their own; with
            --before the same of another checkout, which has its own .venv, and the ratio, in turns
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.models import random_model
from numpy.typing import NDArray
from peers.machine import cpu_name
from rates import OPENINGS, greedy_rate
from sessions import SMOLLM2

from engine import Generator, load_model
from engine.backends import get_backend
from engine.backends.interfaces import Decoder
from engine.backends.steps import Row
from engine.backends.wants import GREEDY, Addends, Changes, Draw, IdSet, Want
from engine.model.run_config import RunConfig
from engine.weights.parameters import parameters_of
from engine.weights.quantize import widen

WIDTH, STEPS, TEXTS = 576, 12, 512
"""Columns of the vectors, steps of a measure, and tokens whose vectors are kept."""
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


def time_steps(rows: int, words: int, turns: int, decoder: Decoder, known: int) -> None:
    """Print the time of a greedy step, and the ratio of each setting to it. known: the tokens that have vectors."""
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
        greedy_rate(generator, rows)
        greedy, ratios = [], []
        for turn in range(turns):
            sampled = {"do_sample": True, "top_k": 0, "top_p": 0.95, "seed": turn}
            greedy.append(greedy_rate(generator, rows))
            ratios.append(greedy_rate(generator, rows, **sampled) / greedy[-1])
        print(f"SmolLM2, {rows} rows: greedy {median(greedy):.0f} tokens/s; top_k 0, top_p 0.95 {median(ratios):.3f}",
              flush=True)


def rates_in(checkout: Path, path: Path | None, words: int) -> dict[str, float]:
    """Return what rates.py measures with the engine of a checkout."""
    program = f"import runpy, sys; runpy.run_path({str(Path(__file__).with_name('rates.py'))!r}, run_name='__main__')"
    arguments = [*([str(path.absolute())] if path else []), "--words", str(words)]
    child = subprocess.run([checkout / ".venv/bin/python", "-c", program, *arguments], cwd=checkout / "asv_bench",
                           check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(child.stdout.splitlines()[-1])    # type: ignore[no-any-return]


def time_rates(before: Path | None, path: Path | None, words: int, turns: int) -> None:
    """Print what rates.py measures, and beside it the same of another checkout, and the ratio of the two."""
    checkouts = [Path(__file__).absolute().parents[1], *([before.absolute()] if before else [])]
    found: list[list[dict[str, float]]] = [[] for _ in checkouts]
    for _ in range(turns):
        for checkout, own in zip(checkouts, found, strict=True):
            own.append(rates_in(checkout, path, words))
    for name in found[0][0]:
        now, *old = ([turn[name] for turn in own] for own in found)
        text = f"{words:,} words, {name}: {median(now):.2f}"
        for values in old:
            ratios = [mine / theirs for mine, theirs in zip(now, values, strict=True)]
            text += f"; before {median(values):.2f}; {median(ratios):.3f} of that"
        print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--words", nargs="+", type=int, default=[49152, 151936])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=("step", "whole", "rates"), default=("step", "whole", "rates"))
    parser.add_argument("--before", type=Path, help="another checkout")
    options = parser.parse_args()
    print(cpu_name())
    if "step" in options.only:
        real = None if options.path is None else texts_of(options.path)
        for words in options.words:
            decoder, known = decoder_of(words, real)
            for rows in options.rows:
                time_steps(rows, words, options.turns, decoder, known)
    if "whole" in options.only and options.path is not None:
        time_whole(options.path, options.turns)
    if "rates" in options.only:
        time_rates(options.before, options.path, max(options.words), options.turns)


if __name__ == "__main__":
    main()
