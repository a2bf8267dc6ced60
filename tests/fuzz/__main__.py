"""Load mutated models, run some of them, and report what is neither an answer nor an `EngineError`.

    python -m tests.fuzz [--seconds S] [--cases N] [--seed SEED] [--first NUMBER]
    python -m tests.fuzz --calls                          loads models that generate or hear, and calls them
    python -m tests.fuzz --only "packed files"            runs cases of one kind; several may be given
    python -m tests.fuzz --seed SEED --case NUMBER        repeats one case (with the same --only)

A case depends on the seed and its number alone. It runs in a child with limits on memory and time.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz import first_calls, operations
from tests.fuzz.cases import Cases
from tests.fuzz.children import Children, Finding, RunCase, largest_child

CASES_OF_A_CHILD = 5000
_PROGRESS = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Run cases as the arguments say; return 1 if there is a finding, and 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--cases", type=int, default=2**62, help="stop after this number of cases")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run only the case of this number")
    parser.add_argument("--only", action="append", default=[], choices=list(Cases.OTHERS), help="run this kind alone")
    parser.add_argument("--calls", action="store_const", dest="only", const=list(first_calls.KINDS),
                        help="run all kinds of first_calls.py")
    parser.add_argument("--ops", action="store_true", help="call engine.ops with wrong arguments, in place of files")
    parser.add_argument("--here", action="store_true", help="run the cases in this process, to measure coverage")
    given = parser.parse_args(arguments)
    if given.case is not None:
        given.first, given.cases = given.case, 1
    if given.seconds == float("inf") and given.cases == 2**62:
        given.seconds = 60.0
    os.environ["RUST_BACKTRACE"] = "0"  # a panic of `tokenizers` would take 10 ms to describe itself
    print(f"seed {given.seed}, from case {given.first}", flush=True)
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=shared_memory) as folder:
        place = Path(folder)
        start, kinds = _start_operations(given.seed) if given.ops else _start_files(place, given.seed, given.only)
        if given.here:
            run = start()
            for index in range(given.first, given.first + given.cases):
                run(index)
            return 0
        children = Children(start, len(kinds))
        again = " ".join([f"--seed {given.seed}", *(f'--only "{name}"' for name in given.only), *["--ops"] * given.ops])
        findings = hunt(children, given.first, given.cases, given.seconds, again)
    for kind, (refused, answered) in sorted(zip(kinds, children.counts.tolist(), strict=True)):
        if answered or refused:
            print(f"{answered:10,} answered {refused:10,} EngineError   {kind}")
    print(summary(children, findings))
    return min(1, len(findings))


def _start_files(place: Path, seed: int, only: list[str]) -> tuple[Callable[[], RunCase], list[str]]:
    cases = Cases(place, seed, only)
    return lambda: cases.start().run, cases.kinds


def _start_operations(seed: int) -> tuple[Callable[[], RunCase], list[str]]:
    def run(index: int) -> tuple[int, bool]:
        return operations.call(random.Random(f"{seed}/{index}"))

    return lambda: run, list(operations.NAMES)


def hunt(children: Children, first: int, cases: int, seconds: float, again: str) -> list[Finding]:
    """Run cases until there are enough or the time is over; print progress and findings, and return the findings.

    again: the arguments that, with the number of a case, repeat it.
    """
    findings: list[Finding] = []
    begin = printed = time.monotonic()
    rate, last = 100.0, first + cases
    while first < last and (left := begin + seconds - time.monotonic()) > 0:
        size = int(min(CASES_OF_A_CHILD, last - first, max(20.0, rate * left)))
        found = children.run(first, first + size)
        for index, what in found:
            kind, _, details = what.partition("\n")
            known = any(kind == old.partition("\n")[0] for _, old in findings)
            print(f"FOUND case {index}: {kind}\n  python -m tests.fuzz {again} --case {index}", flush=True)
            if not known:
                print(details, flush=True)
            findings.append((index, what))
        first += size
        rate = int(children.counts.sum()) / (time.monotonic() - begin)
        if time.monotonic() - printed > _PROGRESS:
            printed = time.monotonic()
            print(f"{summary(children, findings)}, {rate:.0f} a second, next is case {first}", flush=True)
    return findings


def summary(children: Children, findings: list[Finding]) -> str:
    """Return one line: the number of files, answers and findings, and the largest child."""
    refused, answered = np.sum(children.counts, axis=0)
    return (f"{refused + answered:,} cases, {answered:,} answered, {len(findings)} findings, "
            f"largest child {largest_child() / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
