"""Make each seeded mistake in a copy of the tree, and see whether the tests notice it.

    python -m tests.mistakes [--jobs N] [--only TEXT ...]       try all, or some; 1 if one is not caught
    python -m tests.mistakes --list [--only TEXT ...]           print what the mistakes are
    python -m tests.mistakes --draw 160 --seed 1                try random changes of one token of engine/ instead

It takes up to an hour on two cores, ten minutes of it for the kernels of Numba. The tree itself is never changed.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from .cases import MISTAKES
from .drawn import draw
from .mistake import Mistake
from .tree import NotTried, Tree


def main(arguments: list[str] | None = None) -> int:
    """Try mistakes as the arguments say; return 1 if one is not caught, and 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.mistakes", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="try only the mistakes with one of these texts in "
                        "their file or their sentence, such as tokenizer.py")
    parser.add_argument("--list", action="store_true", help="print the mistakes")
    parser.add_argument("--jobs", type=int, default=2, help="how many mistakes are tried at a time, each in its copy")
    parser.add_argument("--draw", type=int, metavar="N", help="try N random changes of one token of engine/ instead")
    parser.add_argument("--seed", type=int, default=0, help="which changes --draw tries")
    given = parser.parse_args(arguments)
    if unknown := [text for text in given.only or () if not any(text in mistake.name for mistake in MISTAKES)]:
        parser.error(f"there is no mistake with {', '.join(unknown)}; --list prints all")
    chosen = draw(given.draw, given.seed) if given.draw else [
        mistake for mistake in MISTAKES if any(text in mistake.name for text in given.only or [""])]
    if given.list:
        for mistake in chosen:
            print(mistake.name)
        return 0
    with tempfile.TemporaryDirectory(prefix="mistakes-") as folder:
        missed = _try_all(chosen, Path(folder), given.jobs)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mistakes are caught")
    return int(bool(missed))


def _try_all(mistakes: list[Mistake], folder: Path, jobs: int) -> list[str]:
    """Try mistakes in `jobs` copies of the tree, print a line for each, and return the names of those not caught."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    for i in range(jobs):
        trees.put(Tree(folder / str(i)))

    def attempt(mistake: Mistake) -> bool:
        tree, start = trees.get(), time.monotonic()
        try:
            seen = tree.see(mistake)
            result = f"caught: {seen.how or seen.tests[0]}" if seen.caught else "NOT CAUGHT"
        except NotTried as error:
            result = f"NOT TRIED: {error}"
        finally:
            trees.put(tree)
        print(f"{time.monotonic() - start:5.0f} s  {mistake.name}\n         {result}", flush=True)
        return result.startswith("caught")

    with ThreadPoolExecutor(jobs) as pool:
        return [mistake.name for mistake, caught in zip(mistakes, pool.map(attempt, mistakes), strict=True)
                if not caught]


if __name__ == "__main__":
    sys.exit(main())
