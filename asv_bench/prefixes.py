"""Time prompts that begin alike, in turns with llama.cpp, and what the index of kept prefixes costs a step.

    python asv_bench/prefixes.py SmolLM2-135M-Instruct.Q4_1.gguf [--turns 5] [--threads 2] [--system 1000] [--chats 16]

It needs llama-cpp-python and gguf (peers/requirements.txt). The engine computes in int8, beside a file of Q8_0. The
chats have a common system prompt, arrive together and get 32 tokens each; llama.cpp gives each of them a slot. The
second line of each library has the time to the first token. The last lines are the milliseconds of Python between two
native calls of a step, without kept prefixes and beside an index of 1,000 of them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peers.llama_language import LlamaLanguage, rewrite
from peers.machine import cpu_name

from engine import Generator

TOKENS = 32


class Between:
    """Runs the passes of a decoder, and keeps the seconds between the end of each and the beginning of the next."""

    def __init__(self, executor: Any):
        self.executor, self.seconds, self.ended = executor, list[float](), 0.0

    def forward(self, *given: Any, **options: Any) -> None:
        """Run a pass."""
        if self.ended:
            self.seconds.append(time.perf_counter() - self.ended)
        self.executor.forward(*given, **options)
        self.ended = time.perf_counter()


def between_calls(path: Path, threads: int, batch: int, kept: int) -> float:
    """Return the median seconds between two native calls. kept: the prompts that were read before."""
    generator = Generator.load(path, precision="int8", threads=threads, max_rows=64, keep_tokens=64 * kept)
    rng = np.random.default_rng(0)
    if kept:
        generator.generate(rng.integers(100, 40000, (kept, 40)).tolist(), max_new_tokens=1)
    passes = generator._decoder._executor = Between(generator._decoder._executor)
    generator.generate(rng.integers(100, 40000, (batch, 40)).tolist(), max_new_tokens=200, eos_token_id=None)
    return median(passes.seconds[20:])


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    for name, usual in (("turns", 5), ("threads", 2), ("system", 1000), ("chats", 16)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    rng = np.random.default_rng(1)
    system = rng.integers(100, 40000, given.system).tolist()
    prompts = [[*system, *rng.integers(100, 40000, 20).tolist()] for _ in range(given.chats)]
    print(cpu_name())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Q8_0.gguf"
        rewrite(given.path, file, "Q8_0")
        engine = Generator.load(file, precision="int8", threads=given.threads, keep_tokens=0)
        rival = LlamaLanguage(file, given.threads, given.chats, given.system + 20 + TOKENS + 16)
        calls = {"engine": lambda new: engine.generate(prompts, max_new_tokens=new, eos_token_id=None),
                 "llama.cpp": lambda new: rival.generate(prompts, new)}
        seconds: dict[tuple[str, int], list[float]] = {(name, new): [] for name in calls for new in (TOKENS, 1)}
        for turn in range(given.turns + 1):
            for name in [*calls][:: 1 if turn % 2 else -1]:
                for new in (TOKENS, 1):
                    time.sleep(0.3)     # the threads of llama.cpp wait busily for 0.1 s after its last call
                    begun = time.perf_counter()
                    calls[name](new)
                    if turn:
                        seconds[name, new].append(time.perf_counter() - begun)
        for (name, new), own in seconds.items():
            rate = f"{given.chats * new / median(own):8.1f} tokens/s"
            print(f"{name:<12} {rate if new > 1 else f'{median(own):8.3f} s to the first'}", flush=True)
        for batch in (1, 64):
            without, beside = (1e3 * between_calls(file, given.threads, batch, kept) for kept in (0, 1000))
            print(f"batch {batch:>2}: {without:.3f} ms between two native calls, {beside:.3f} beside kept prefixes, "
                  f"ratio {beside / without:.3f}", flush=True)


if __name__ == "__main__":
    main()
