"""Time a language model in turns: the engine, and llama.cpp on the same GGUF file.

    python asv_bench/language.py SmolLM2-135M-Instruct.Q4_1.gguf [--turns 5] [--threads 2] [--prompts 16 128 512]
        [--batches 1 8] [--tokens 64] [--precisions float32 q4_0] [--folder FOLDER]

It needs llama-cpp-python and gguf (peers/requirements.txt). The file's matrices are converted to F32, BF16, Q8_0
and Q4_0 with the package gguf; --folder keeps these files. Weights of Q8_0 have a scale for 32 weights, and those
of the engine's int8 one for each row; in the precisions q8_0 and q4_0 both libraries multiply the blocks of the
file. Prompts are random ids. Each turn times both libraries once, the first one second in the next turn, so that
other load on the machine affects both. The measures are

    first     seconds from the call to the first new token of one prompt, printed as tokens of the prompt per second
    next      new tokens per second of a batch of prompts of 16 tokens, without the time to the first ones
    memory    resident memory of a process that has loaded the file and generated 16 tokens, in MB: all of it, and
              without the pages of the file

For each, the median of all turns and, in parentheses, the best turn are printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from peers.llama_language import KINDS, LlamaLanguage, rewrite
from peers.machine import cpu_name

from engine import Generator

Library = Callable[[list[list[int]], int], list[list[int]]]
"""(prompts, new tokens) -> the new ids of each."""


def llama_cpp_library(path: Path, precision: str, given: argparse.Namespace) -> Library:
    """Return llama.cpp's generation from ids."""
    longest = max(*given.prompts, 16 + given.tokens) + 16
    return LlamaLanguage(path, given.threads, max(given.batches), longest).generate


def engine_library(path: Path, precision: str, given: argparse.Namespace) -> Library:
    """Return the engine's generation from ids."""
    generator = Generator.load(path, precision=precision, threads=given.threads)

    def run(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        results = generator.generate(prompts, max_new_tokens=tokens, eos_token_id=None)
        return [list(result.ids) for result in results]

    return run


LIBRARIES = {"engine": engine_library, "llama.cpp": llama_cpp_library}


def prompts_of(count: int, length: int) -> list[list[int]]:
    """Return prompts of random ids, the same in every run."""
    return np.random.default_rng(length).integers(100, 40000, (count, length)).tolist()


def timed(library: Library, prompts: list[list[int]], tokens: int) -> float:
    """Return the seconds of one call."""
    begun = time.perf_counter()
    library(prompts, tokens)
    return time.perf_counter() - begun


def turns(found: dict[str, Library], count: int, measure: Callable[[Library], float]) -> dict[str, list[float]]:
    """Return what `measure` gives for each library in each turn, after one call that is not counted."""
    numbers: dict[str, list[float]] = {name: [] for name in found}
    order = [*found]
    for library in found.values():
        measure(library)
    for _ in range(count):
        for name in order:
            numbers[name].append(measure(found[name]))
        order.reverse()
    return numbers


def report(title: str, work: int, seconds: dict[str, list[float]]) -> None:
    """Print one line: how much work each library did per second, and how many times as much the engine did."""
    cells = ", ".join(f"{name} {work / median(own):8.1f} ({work / min(own):8.1f})" for name, own in seconds.items())
    ratios = [pick(seconds["llama.cpp"]) / pick(seconds["engine"]) for pick in (median, min)]
    print(f"{title:<28} {cells} tokens/s   ratio {ratios[0]:.2f} ({ratios[1]:.2f})", flush=True)


def compare(path: Path, precision: str, given: argparse.Namespace) -> None:
    """Print all lines of one precision."""
    found = {name: make(path, precision, given) for name, make in LIBRARIES.items()}
    for length in given.prompts:
        [prompt] = prompts_of(1, length)
        seconds = turns(found, given.turns, lambda library, p=prompt: timed(library, [p], 1))  # type: ignore[misc]
        report(f"{precision:<9} first, {length} tokens", length, seconds)
        print(" " * 29 + ", ".join(f"{name} {1e3 * median(own):.1f} ms" for name, own in seconds.items()), flush=True)
    for batch in given.batches:
        prompts = prompts_of(batch, 16)
        seconds = turns(found, given.turns, lambda library, p=prompts: timed(library, p, given.tokens)  # type: ignore[misc]
                        - timed(library, p, 1))
        report(f"{precision:<9} next, batch {batch}", batch * (given.tokens - 1), seconds)
        answers = [library(prompts, given.tokens) for library in found.values()]
        same = [next((i for i, (a, b) in enumerate(zip(*pair, strict=True)) if a != b), given.tokens)
                for pair in zip(*answers, strict=True)]
        print(" " * 29 + f"tokens before the first one that differs: {', '.join(map(str, same))}", flush=True)
    for name in LIBRARIES:
        child = subprocess.run([sys.executable, __file__, str(path), "--memory", name, "--precisions", precision,
                                "--threads", str(given.threads)], check=True, capture_output=True, text=True)
        print(f"{precision:<9} memory            {name}: {child.stdout.strip()}", flush=True)


def print_memory(path: Path, given: argparse.Namespace) -> None:
    """Load one library, generate, and print this process's resident memory."""
    library = LIBRARIES[given.memory](path, given.precisions[0], given)     # what it holds is measured, too
    library(prompts_of(1, 16), 16)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = {name: int(value.split()[0]) / 1e3 for name, _, value in (line.partition(":") for line in lines)
              if name in ("VmRSS", "RssAnon")}
    print(f"{fields['VmRSS']:.0f} MB, {fields['RssAnon']:.0f} MB without pages of files")
    del library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    for name, number in (("turns", 5), ("threads", 2), ("tokens", 64)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--prompts", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--precisions", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--folder", type=Path, help="where the converted files are kept")
    parser.add_argument("--memory", choices=[*LIBRARIES], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        print_memory(given.file, given)
        return
    print(f"{cpu_name()}, {given.threads} of {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for precision in given.precisions:
            path = folder / f"{precision}.gguf"
            if not path.exists():
                rewrite(given.file, path, KINDS[precision])
            compare(path, precision, given)


if __name__ == "__main__":
    main()
