"""Time prompts that begin alike, in turns with llama.cpp, and measure what kept prefixes save and cost.

    python asv_bench/prefixes.py SmolLM2-135M-Instruct.Q4_1.gguf [--threads 2] [--turns 3] [--only chats steps]

It needs llama-cpp-python, gguf and tokenizers (peers/requirements.txt). The engine computes in int8, beside a file
of Q8_0.

    chats   16 chats with a common system prompt of 1,000 tokens arrive together and get 32 tokens each; llama.cpp gives
            each of them a slot. The second line of each library has the time to the first token of all.
    steps   milliseconds of Python between two native calls of a step, without kept prefixes and beside 1,000 of them
    lookup  milliseconds of CPU to find a prompt of 8,000 tokens among 1,000 kept ones
    ask     the tokens of prompts that are read for 100 questions about a document, and for the turns of a chat
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from peers.llama_language import LlamaLanguage, rewrite
from peers.machine import cpu_name

from engine import Generator
from engine.generation.prefixes import Prefixes
from engine.generation.scoring import LastLogits
from engine.generation.works import Sequence

TOKENS = 32
RNG = np.random.default_rng(1)


class Passes:
    """Runs the passes of a decoder, and keeps the seconds between the end of each and the beginning of the next."""

    def __init__(self, generator: Generator):
        self.executor, self.seconds, self.ended, self.count = generator._decoder._executor, list[float](), 0.0, 0
        generator._decoder._executor = self

    def forward(self, *given: Any, **options: Any) -> None:
        """Run a pass."""
        if self.ended:
            self.seconds.append(time.perf_counter() - self.ended)
        self.executor.forward(*given, **options)
        self.ended, self.count = time.perf_counter(), self.count + 1


def ids(count: int) -> list[int]:
    """Return the ids of some ordinary tokens."""
    return RNG.integers(100, 40000, count).tolist()


def time_chats(file: Path, given: argparse.Namespace) -> None:
    """Let both libraries answer chats that arrive together, in turns."""
    system = ids(given.system)
    prompts = [[*system, *ids(20)] for _ in range(given.chats)]
    engine = Generator.load(file, precision="int8", threads=given.threads, keep_tokens=0)
    rival = LlamaLanguage(file, given.threads, given.chats, given.system + 20 + TOKENS + 16)
    calls: dict[str, Callable[[int], Any]] = {
        "engine": lambda new: engine.generate(prompts, max_new_tokens=new, eos_token_id=None),
        "llama.cpp": lambda new: rival.generate(prompts, new)}
    seconds: dict[tuple[str, int], list[float]] = {(name, new): [] for name in calls for new in (TOKENS, 1)}
    for turn in range(given.turns):
        for name in [*calls][:: 1 if turn % 2 else -1]:
            for new in (TOKENS, 1):
                time.sleep(0.3)     # the threads of llama.cpp wait busily for 0.1 s after its last call
                begun = time.perf_counter()
                calls[name](new)
                seconds[name, new].append(time.perf_counter() - begun)
    for (name, new), own in seconds.items():
        rate = f"{given.chats * new / median(own):8.1f} tokens/s"
        print(f"{name:<12} {rate if new > 1 else f'{median(own):8.3f} s to the first'}", flush=True)


def time_steps(file: Path, given: argparse.Namespace) -> None:
    """Print Python's time between two native calls without kept prefixes, and beside many, in turns."""
    plain, warm = (Generator.load(file, precision="int8", threads=given.threads, max_rows=64, keep_tokens=keep)
                   for keep in (0, 32 * given.kept))
    warm.generate([ids(40) for _ in range(given.kept)], max_new_tokens=1)
    print(f"{warm.statistics().kept_tokens:,} tokens are kept", flush=True)
    passes = [Passes(plain), Passes(warm)]
    for batch in (1, 64):
        found: list[list[float]] = [[], []]
        for turn in range(2 * given.turns):
            prompts = [ids(40) for _ in range(batch)]
            for i in (0, 1) if turn % 2 else (1, 0):
                passes[i].seconds, passes[i].ended = [], 0.0
                (plain, warm)[i].generate(prompts, max_new_tokens=given.steps, eos_token_id=None)
                found[i] += passes[i].seconds[given.steps // 10 :]
        without, beside = (1e3 * median(own) for own in found)
        print(f"batch {batch:>2}: {without:.3f} ms between two native calls, {beside:.3f} beside kept prefixes, "
              f"ratio {beside / without:.3f}", flush=True)


def time_lookup(length: int = 8000, kept: int = 1000) -> None:
    """Print how long the index takes for a prompt, of which it has all blocks, half of them, or none."""
    numbers = iter(range(10**9))
    stepper = SimpleNamespace(cut=lambda *given: next(numbers), open=lambda source: next(numbers),
                              release=lambda hypotheses: None, close=lambda request: None)
    prefixes = Prefixes(stepper, 10**9)

    def entered(prompt: np.ndarray) -> Sequence:
        work = LastLogits([prompt], [0])
        work.entry = SimpleNamespace(alone=False)
        [sequence] = work.begin()
        prefixes.enter(sequence)
        prefixes.catch_up(sequence)
        return sequence

    texts = [RNG.integers(0, 40000, length)]
    for _ in range(kept):       # each begins as one before it does
        begin = texts[RNG.integers(len(texts))][: RNG.integers(length)]
        texts.append(np.concatenate([begin, RNG.integers(0, 40000, length - len(begin))]))
    for text in texts:
        sequence = entered(text)
        sequence.read, sequence.hypothesis = length, next(numbers)
        prefixes.leave(sequence)
    for name, share in (("all", 1.0), ("half", 0.5), ("none", 0.0)):
        seconds = []
        for text in texts[:100]:
            own = int(length * share)
            prompt = np.concatenate([text[:own], RNG.integers(0, 40000, length - own)])
            begun = time.process_time()
            sequence = entered(prompt)
            seconds.append(time.process_time() - begun)
            prefixes.leave(sequence, keeps=False)
        print(f"a prompt of {length:,} tokens among {kept:,}, {name} of it kept: {1e3 * median(seconds):.3f} ms of CPU",
              flush=True)


def count_read(file: Path, given: argparse.Namespace) -> None:
    """Print what is read for questions about one document, in one call and in one call each, and for a chat."""
    document = ids(given.system)
    prompts = [[*document, *ids(12)] for _ in range(100)]
    asked = sum(map(len, prompts))
    for calls in ([prompts], [[prompt] for prompt in prompts]):
        engine = Generator.load(file, precision="int8", threads=given.threads)
        passes, steps = Passes(engine), []
        for call in calls:
            before = passes.count
            engine.generate(call, max_new_tokens=1)
            steps.append(passes.count - before)
        read = engine.statistics().read_tokens
        print(f"{len(calls):>3} calls: {read:,} of {asked:,} tokens of prompts were read, 1 in {asked / read:.1f}; "
              f"steps of the first call {steps[0]}, of the others {max(steps[1:], default=0)} at most", flush=True)
    chat, most = document, 0
    for _ in range(20):
        new, before = ids(30), engine.statistics().read_tokens
        chat = [*chat, *new]
        chat += engine.generate([chat], max_new_tokens=20, eos_token_id=None)[0].ids
        most = max(most, engine.statistics().read_tokens - before - len(new) if len(chat) > len(document) + 50 else 0)
    print(f"a turn of a chat reads at most {most} tokens beside its own new ones", flush=True)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    for name, usual in (("turns", 3), ("threads", 2), ("system", 1000), ("chats", 16), ("kept", 1000), ("steps", 100)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parts = {"chats": time_chats, "steps": time_steps, "lookup": lambda file, given: time_lookup(), "ask": count_read}
    parser.add_argument("--only", nargs="+", choices=[*parts], default=[*parts])
    given = parser.parse_args()
    print(cpu_name())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Q8_0.gguf"
        if given.only != ["lookup"]:
            rewrite(given.path, file, "Q8_0")
        for name in given.only:
            parts[name](file, given)


if __name__ == "__main__":
    main()
