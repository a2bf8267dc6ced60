"""Time a language model in turns: the engine, and llama.cpp on GGUF files of the same bits.

    python asv_bench/language.py SmolLM2-135M-Instruct.Q4_1.gguf [--turns 5] [--threads 2] [--prompts 16 128 512]
        [--batches 1 8] [--context 16] [--contexts 2048 8000] [--tokens 64] [--precisions float32 q4_0] [--shape 0.5B]
        [--folder FOLDER]

It needs llama-cpp-python and gguf (peers/requirements.txt). The file's matrices are converted to F32, BF16, Q8_0
and Q4_0 with the package gguf, and to Q4_K_M by llama.cpp; --folder keeps these files. --shape takes random weights of
a larger Llama shape in place of the file's. Weights of Q8_0 have a scale for 32 weights, and those of the engine's
int8 one for each row; in the precisions q8_0 and q4_0 both libraries multiply the blocks of the file. Beside int4 and
q4_0, llama.cpp runs both Q4_0 and Q4_K_M, and the ratio is to the faster one. Prompts are random ids. Each turn times
all once, in the opposite order in the next turn, so that other load on the machine affects all. The measures are

    first     seconds from the call to the first new token of one prompt, printed as tokens of the prompt per second
    next      new tokens per second of a batch of prompts of --context tokens, without the time to the first ones,
              and the rate of reading memory in the same minutes
    behind    new tokens per second of one sequence behind each of --contexts tokens, which are read once; a turn is
              16 tokens of each library
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
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
from peers.llama_language import KINDS, SHAPES, LlamaLanguage, rewrite, write_shape
from peers.machine import cpu_name

from engine import Generator
from engine.backends.peak import measure_dram

Library = Callable[[list[list[int]], int], list[list[int]]]
"""(prompts, new tokens) -> the new ids of each."""


def llama_cpp_library(path: Path, precision: str, given: argparse.Namespace) -> Library:
    """Return llama.cpp's generation from ids."""
    longest = max([*given.prompts, given.context + given.tokens]) + 16
    return LlamaLanguage(path, given.threads, max(given.batches, default=1), longest).generate


def engine_library(path: Path, precision: str, given: argparse.Namespace) -> Library:
    """Return the engine's generation from ids."""
    generator = Generator.load(path, precision=precision, cache=given.cache, threads=given.threads, keep_tokens=0)

    def run(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        results = generator.generate(prompts, max_new_tokens=tokens, eos_token_id=None)
        return [list(result.ids) for result in results]

    return run


STEPS = 16
"""New tokens of a turn behind a context."""
ENGINE = "engine"
FASTER = "Q4_K_M"
"""The kind of llama.cpp with which 4 bits are compared too."""


def engine_steps(path: Path, given: argparse.Namespace, precision: str, prompt: list[int], new: int
                 ) -> Iterator[object]:
    """Yield once for each new token behind a prompt."""
    generator = Generator.load(path, precision=precision, cache=given.cache, threads=given.threads, keep_tokens=0)
    yield from generator.stream(prompt, max_new_tokens=new, eos_token_id=None)


def llama_cpp_steps(path: Path, given: argparse.Namespace, precision: str, prompt: list[int], new: int
                    ) -> Iterator[object]:
    """Do the same with llama.cpp."""
    model = LlamaLanguage(path, given.threads, 1, len(prompt) + new)
    [best] = model.logits([(0, 0, prompt)]).argmax(axis=1).tolist()
    for position in range(len(prompt), len(prompt) + new):
        yield best
        [best] = model.logits([(0, position, [best])]).argmax(axis=1).tolist()


def kinds_of(precision: str) -> dict[str, str]:
    """Return the libraries of a precision, each with the kind of its file."""
    kind = KINDS[precision]
    rivals = [kind, FASTER] if kind == "Q4_0" else [kind]
    return {ENGINE: kind} | {f"llama.cpp {rival}": rival for rival in rivals}


def make(name: str, path: Path, precision: str, given: argparse.Namespace) -> Library:
    return (engine_library if name == ENGINE else llama_cpp_library)(path, precision, given)


def prompts_of(count: int, length: int) -> list[list[int]]:
    """Return prompts of random ids, the same in every run."""
    return np.random.default_rng(length).integers(100, 40000, (count, length)).tolist()


PAUSE = 0.3
"""Seconds before a call: the threads of llama.cpp wait busily for 0.1 s after its last call."""


def timed(library: Library, prompts: list[list[int]], tokens: int) -> float:
    """Return the seconds of one call."""
    time.sleep(PAUSE)
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
    """Print one line: how much work each library did per second, and how many times as much as the fastest other."""
    cells = ", ".join(f"{name} {work / median(own):8.1f} ({work / min(own):8.1f})" for name, own in seconds.items())
    ratios = [min(pick(own) for name, own in seconds.items() if name != ENGINE) / pick(seconds[ENGINE])
              for pick in (median, min)]
    print(f"{title:<28} {cells} tokens/s   ratio {ratios[0]:.2f} ({ratios[1]:.2f})", flush=True)


def compare(files: dict[str, Path], precision: str, given: argparse.Namespace) -> None:
    """Print all lines of one precision; files: the file of each library."""
    found = {name: make(name, path, precision, given) for name, path in files.items()}
    for length in given.prompts:
        [prompt] = prompts_of(1, length)
        seconds = turns(found, given.turns, lambda library, p=prompt: timed(library, [p], 1))  # type: ignore[misc]
        report(f"{precision:<9} first, {length} tokens", length, seconds)
        print(" " * 29 + ", ".join(f"{name} {1e3 * median(own):.1f} ms" for name, own in seconds.items()), flush=True)
    for batch in given.batches:
        prompts, rates = prompts_of(batch, given.context), list[float]()

        def step(library: Library, prompts: list[list[int]] = prompts, rates: list[float] = rates) -> float:
            rates.append(measure_dram(given.threads, repeats=1))
            return timed(library, prompts, given.tokens) - timed(library, prompts, 1)

        report(f"{precision:<9} next, batch {batch}", batch * (given.tokens - 1), turns(found, given.turns, step))
        print(" " * 29 + f"after {given.context} tokens; memory read at {median(rates):.1f} GB/s", flush=True)
        answers = [found[name](prompts, given.tokens) for name in list(found)[:2]]
        same = [next((i for i, (a, b) in enumerate(zip(*pair, strict=True)) if a != b), given.tokens)
                for pair in zip(*answers, strict=True)]
        print(" " * 29 + f"tokens before the first one that differs: {', '.join(map(str, same))}", flush=True)
    for name, path in files.items():
        command = [sys.executable, __file__, str(path), "--memory", name, "--precisions", precision, "--threads",
                   str(given.threads), *(["--cache", given.cache] if given.cache else [])]
        child = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"{precision:<9} memory            {name}: {child.stdout.strip()}", flush=True)


def compare_behind(files: dict[str, Path], precision: str, given: argparse.Namespace) -> None:
    """Print the rate of new tokens behind each long context; files: the file of each library."""
    for length in given.contexts:
        [prompt] = prompts_of(1, length)
        steps = {name: (engine_steps if name == ENGINE else llama_cpp_steps)(path, given, precision, prompt,
                                                                             1 + STEPS * given.turns)
                 for name, path in files.items()}
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for own in steps.values():
            next(own)
        rates = []
        for _ in range(given.turns):
            rates.append(measure_dram(given.threads, repeats=1))
            for name, own in steps.items():
                time.sleep(PAUSE)
                begun = time.perf_counter()
                for _ in range(STEPS):
                    next(own)
                seconds[name].append(time.perf_counter() - begun)
        report(f"{precision:<9} behind {length} tokens", STEPS, seconds)
        print(" " * 29 + f"memory read at {median(rates):.1f} GB/s", flush=True)


def print_memory(path: Path, given: argparse.Namespace) -> None:
    """Load one library, generate, and print this process's resident memory."""
    library = make(given.memory, path, given.precisions[0], given)     # what it holds is measured, too
    library(prompts_of(1, 16), 16)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = {name: int(value.split()[0]) / 1e3 for name, _, value in (line.partition(":") for line in lines)
              if name in ("VmRSS", "RssAnon")}
    print(f"{fields['VmRSS']:.0f} MB, {fields['RssAnon']:.0f} MB without pages of files")
    del library


def converted(source: Path, folder: Path, kind: str) -> Path:
    """Return the file of a kind in a folder, which is written if it is not there."""
    path = folder / f"{kind.lower()}.gguf"
    if not path.exists():
        wide = source if kind != "Q4_K_M" else converted(source, folder, "BF16")
        rewrite(wide, path, kind)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    for name, number in (("turns", 5), ("threads", 2), ("tokens", 64), ("context", 16)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--prompts", type=int, nargs="*", default=[16, 128, 512])
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--contexts", type=int, nargs="*", default=[])
    parser.add_argument("--precisions", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--shape", choices=[*SHAPES], help="random weights of a larger shape")
    parser.add_argument("--cache", help="the precision of the engine's keys and values; llama.cpp's are float16")
    parser.add_argument("--folder", type=Path, help="where the converted files are kept")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        print_memory(given.file, given)
        return
    print(f"{cpu_name()}, {given.threads} of {os.cpu_count()} CPUs, {given.shape or given.file.name}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        source = given.file
        if given.shape:
            source = folder / "source.gguf"
            if not source.exists():
                write_shape(given.file, source, SHAPES[given.shape])
        for precision in given.precisions:
            files = {library: converted(source, folder, kind) for library, kind in kinds_of(precision).items()}
            compare(files, precision, given)
            compare_behind(files, precision, given)


if __name__ == "__main__":
    main()
