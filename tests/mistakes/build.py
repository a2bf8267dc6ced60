"""Compile some of the extension modules of the tree in the current folder, where it lies.

    python -m tests.mistakes.build kernels_baseline native

Modules whose sources have not changed are not compiled again. -O1 is enough to see a mistake, and takes the compiler a
third of the time of -O3.
"""

import os
import sys
from collections.abc import Sequence

from setuptools import setup

import setup as own

FLAGS = "-O1 -w"


def main(names: Sequence[str]) -> None:
    """Compile the modules of these names."""
    os.environ["ENGINE_BUILD_FLAGS"] = FLAGS
    isas = [name.removeprefix("kernels_") for name in names if name.startswith("kernels_")]
    modules = [module for module in own.extensions(isas) if module.name.rpartition(".")[2] in names]
    setup(ext_modules=modules, script_args=["-q", "build_ext", "--inplace", "--build-lib", "build/tree/lib",
                                            "--build-temp", "build/tree/temp"])  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
