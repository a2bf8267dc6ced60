"""Make Numba's kernels use AVX-512's sizes: a pytest plugin; LLVM splits the vectors for the present CPU.

LLVM cannot split the instructions for integers, so integers are multiplied in lanes.
"""

from numba.core.registry import cpu_target

CODEGEN = type(cpu_target.target_context.codegen())
true_tuple = CODEGEN.magic_tuple


def magic_tuple(self):
    triple, cpu, features = true_tuple(self)
    return triple, cpu, features + "".join(f",+avx512{part}" for part in ("f", "bw", "dq", "vl"))


CODEGEN.magic_tuple = magic_tuple

from engine.backends.numba_cpu import target  # noqa: E402

target.INTEGERS, target.DOT = "lanes", 4
