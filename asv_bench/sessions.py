"""Time sessions of many users: the gaps beside a long prompt, 64 settings beside one, and Python between two steps.

    python asv_bench/sessions.py [SmolLM2-135M-Instruct.Q4_1.gguf] [--threads 2] [--turns 3]
        [--only gaps settings python]

Without a file, the model has SmolLM2's shape and random weights. All run in int8. The measures are

    gaps      16 requests decode when a prompt of 8,000 tokens arrives: the median gap between their tokens before it;
              the gap that 99 % of all gaps behind it do not exceed, and the longest one, beside the bound of 2 medians
              and 60 ms; and the rate of the prompt as a share of its rate alone
    settings  a step of 64 rows with 64 settings (seeds, temperatures, top_p; top_k 40 in all), beside one setting and
              beside greedy search, for this model and for a tiny one with 49,152 words
    python    the time of Python between two native calls, greedy, with 1 and with 64 rows: all of it, and as a share of
              the step

Each turn measures all once, and the median and the best turn are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from benchmarks.models import random_model
from peers.machine import cpu_name

from engine import Generator, Model
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig

SMOLLM2 = ModelConfig(
    family="llama", hidden_size=576, num_layers=30, num_heads=9, num_kv_heads=3, head_width=64, ffn_size=1536,
    vocab_size=49152, max_positions=8192, position_table=False, embedding_norm=False, norm="rms", norm_place="pre",
    biases=(), gated=True, activation="silu", logits="tied",
    attention_kinds=(AttentionKind(rotary_theta=100000.0, causal=True),),
)  # fmt: skip
TINY = replace(SMOLLM2, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_width=16, ffn_size=128)
USERS, PROMPT, ROWS, STEPS = 16, 8000, 64, 40
"""Requests that decode, tokens of the long prompt, rows of a step with settings, and steps that are timed."""


def generator_of(path: Path | None, config: ModelConfig, threads: int) -> Generator:
    """Return a model in int8: of a file, or of random weights."""
    if path is not None:
        return Generator.load(path, precision="int8", threads=threads, keep_tokens=0)
    model = Model(decoder=replace(random_model(config), text=None))
    return Generator(model, precision="int8", threads=threads, keep_tokens=0)


def prompt_of(number: int, length: int) -> list[int]:
    """Return the ids of a prompt."""
    return np.random.default_rng(number).integers(5, 40_000, length).tolist()


def gaps(generator: Generator) -> dict[str, float]:
    """Return the gaps between the tokens of 16 requests before and behind the arrival of a long prompt, in seconds."""
    session = generator.session()
    users = [session.submit(prompt_of(i, 32), max_new_tokens=4000, eos_token_id=None) for i in range(USERS)]
    while session.statistics().rows < USERS:
        session.step()
    before = times_of(session, lambda: False, STEPS)
    long = session.submit(prompt_of(99, PROMPT), max_new_tokens=100, eos_token_id=None)
    begun = time.perf_counter()
    behind = times_of(session, lambda: bool(long._ticket.tokens(0, 1)))
    beside = time.perf_counter() - begun
    assert not any(user.done for user in users)
    session.close()
    alone = prompt_seconds(generator)       # last, because what a first pass sets up would count as its time
    usual = median(before)
    return {"median before": usual, "bound": 2 * usual + 0.06, "99 %": float(np.quantile(behind, 0.99)),
            "longest": max(behind), "prompt, share of its rate alone": alone / beside}


def times_of(session: Any, over: Callable[[], bool], most: int = 10**6) -> list[float]:
    """Return the seconds of each step until `over` says so; each gives a token to everybody."""
    found = []
    for _ in range(most):
        begun = time.perf_counter()
        session.step()
        found.append(time.perf_counter() - begun)
        if over():
            break
    return found


def prompt_seconds(generator: Generator) -> float:
    """Return the seconds from the call to the first token of the long prompt, alone in a call of its own."""
    stream = generator.stream(prompt_of(99, PROMPT), max_new_tokens=2, eos_token_id=None)
    begun = time.perf_counter()
    next(stream)
    return time.perf_counter() - begun


def settings(generator: Generator) -> dict[str, float]:
    """Return the median seconds of a step of 64 rows: greedy, with one way of sampling, and with 64 of them."""
    one = {"do_sample": True, "top_k": 40, "temperature": 0.8, "top_p": 0.9}
    several = [one | {"seed": i, "temperature": 0.5 + i / 64, "top_p": 0.6 + i / 200} for i in range(ROWS)]
    return {name: step_seconds(generator, own)
            for name, own in (("greedy", [{}] * ROWS), ("one", [one] * ROWS), ("64", several))}


def step_seconds(generator: Generator, own: list[dict[str, Any]]) -> float:
    """Return the median seconds of a step with a row for each of these settings."""
    session = generator.session()
    kept = [session.submit(prompt_of(i, 16), max_new_tokens=STEPS + 30, eos_token_id=None, **each)
            for i, each in enumerate(own)]
    while session.statistics().rows < len(own):
        session.step()
    found = median(times_of(session, lambda: False, STEPS))
    assert len(kept) == len(own)
    session.close()
    return found


@contextmanager
def outside_of_native(generator: Generator) -> Iterator[list[float]]:
    """Yield a list of the seconds between two native calls of the decoder's step."""
    executor, found, left = generator._decoder._executor, list[float](), [0.0]

    class Timed:
        def forward(self, *args: Any, **options: Any) -> Any:
            if left[0]:
                found.append(time.perf_counter() - left[0])
            result = executor.forward(*args, **options)
            left[0] = time.perf_counter()
            return result

        def __getattr__(self, name: str) -> Any:
            return getattr(executor, name)

    generator._decoder._executor = Timed()
    try:
        yield found
    finally:
        generator._decoder._executor = executor


def python(generator: Generator) -> dict[str, float]:
    """Return the median milliseconds of Python between two native calls of `generate`, and their share of a step."""
    found = {}
    for rows in (1, ROWS):
        prompts = [prompt_of(i, 16) for i in range(rows)]
        begun = time.perf_counter()
        with outside_of_native(generator) as seconds:
            generator.generate(prompts, max_new_tokens=STEPS + 1, eos_token_id=None)
        step = (time.perf_counter() - begun) / (STEPS + 1)
        found[f"{rows} rows, ms"] = 1e3 * median(seconds)
        found[f"{rows} rows, share"] = median(seconds) / step
    return found


def report(name: str, turns: list[dict[str, float]], unit: float = 1e3) -> None:
    """Print the median and the best turn of each figure."""
    print(f"\n{name}")
    for key in turns[0]:
        values = [turn[key] * (1 if "share" in key or "ms" in key else unit) for turn in turns]
        best = max(values) if key.startswith("prompt") else min(values)
        print(f"  {key:<34} {median(values):10.3f} ({best:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("gaps", "settings", "python"),
                        default=["gaps", "settings", "python"])
    given = parser.parse_args()
    print(f"{cpu_name()}; {given.threads} threads; times in ms, the median of {given.turns} turns (the best)")
    model, tiny = generator_of(given.path, SMOLLM2, given.threads), generator_of(None, TINY, given.threads)
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.turns):
        if "gaps" in given.only:
            found.setdefault(f"gaps of {USERS} requests beside a prompt of {PROMPT:,} tokens", []).append(gaps(model))
        if "settings" in given.only:
            found.setdefault(f"a step of {ROWS} rows", []).append(settings(model))
            found.setdefault(f"a step of {ROWS} rows, tiny model", []).append(settings(tiny))
        if "python" in given.only:
            found.setdefault("Python between two native calls", []).append(python(model))
    for name, turns in found.items():
        report(name, turns)


if __name__ == "__main__":
    main()
