"""Time what stop texts, log probabilities and streams cost, in turns with a call that has none of them.

    python asv_bench/settings.py SmolLM2-135M-Instruct.Q4_1.gguf [--turns 5] [--threads 2] [--rows 16] [--long 4000]

The engine computes in int8. The first lines have the tokens a second of each kind, and the ratio to the plain call of
the same turn, as medians of the turns. The others have, at token 100 and at the end of a long result, the milliseconds
of CPU between two native calls, which are all that Python does for a step, and what they grow by as a share of a step.
--long 0 leaves them out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from peers.machine import cpu_name

from engine import Generator

TOKENS = 128
WINDOW = 50
"""The steps on both sides of one whose time is measured."""
STOPS = ["@@ never @@", "## never ##", "never ever", "zzzzzzzzzz"]
"""Four texts of about 10 characters, none of which comes."""


def streamed(generator: Generator, prompts: list[list[int]], **settings: Any) -> None:
    """Read the pieces of all prompts, one of each in turn."""
    session = generator.session()
    streams = [iter(session.submit(prompt, **settings)) for prompt in prompts]
    while [piece for stream in streams if (piece := next(stream, None)) is not None]:
        pass


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "plain": (Generator.generate, {}),
    "stop": (Generator.generate, {"stop": STOPS}),
    "stream": (streamed, {}),
    "stream and stop": (streamed, {"stop": STOPS}),
    "logprobs=5": (Generator.generate, {"logprobs": 5}),
}


class Between:
    """Runs the passes of a decoder, and keeps the seconds of each, and those of CPU between two of them."""

    def __init__(self, executor: Any):
        self.executor, self.own, self.passes, self.ended = executor, list[float](), list[float](), 0.0

    def forward(self, *given: Any, **options: Any) -> None:
        """Run a pass."""
        self.own.append(time.thread_time() - self.ended)
        begun = time.perf_counter()
        self.executor.forward(*given, **options)
        self.passes.append(time.perf_counter() - begun)
        self.ended = time.thread_time()

    def around(self, step: int) -> tuple[float, float]:
        """Return the median milliseconds of CPU between two passes, and those of a pass, around a step."""
        window = slice(max(1, step - WINDOW), step + WINDOW)
        return 1e3 * median(self.own[window]), 1e3 * median(self.passes[window])


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path")
    for name, usual in (("turns", 5), ("threads", 2), ("rows", 16), ("long", 4000)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    print(cpu_name())
    prompts = np.random.default_rng(1).integers(100, 40000, (given.rows, 20)).tolist()
    generator = Generator.load(given.path, precision="int8", threads=given.threads, keep_tokens=0)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(given.turns + 1):
        for kind in [*KINDS][:: 1 if turn % 2 else -1]:
            call, settings = KINDS[kind]
            begun = time.perf_counter()
            call(generator, prompts, max_new_tokens=TOKENS, ignore_eos=True, **settings)
            if turn:
                seconds[kind].append(time.perf_counter() - begun)
    for kind, own in seconds.items():
        ratio = median(np.divide(seconds["plain"], own))
        print(f"{kind:<16} {given.rows * TOKENS / median(own):8.1f} tokens/s, {ratio:.3f} of plain", flush=True)
    for kind in ("plain", "stop", "stream and stop", "logprobs=5") if given.long else ():
        call, settings = KINDS[kind]
        longer = Generator.load(given.path, precision="int8", threads=given.threads, keep_tokens=0)
        passes = longer._decoder._executor = Between(longer._decoder._executor)
        call(longer, prompts[:4], max_new_tokens=given.long, ignore_eos=True, **settings)
        (first, step), (last, _) = passes.around(100), passes.around(given.long - WINDOW)
        print(f"{kind:<16} {first:.3f} ms of CPU beside a pass of {step:.1f} at token 100, {last:.3f} at the end, "
              f"{(last - first) / (first + step):+.1%} of a step", flush=True)


if __name__ == "__main__":
    main()
