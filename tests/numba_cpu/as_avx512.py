"""A plugin for pytest: Numba's kernels take AVX-512's shapes, which LLVM then splits into the vectors there are.

Its instructions for integers cannot be split, so these are multiplied in lanes.
"""

from numba.core.registry import cpu_target

CODEGEN = type(cpu_target.target_context.codegen())
true_tuple = CODEGEN.magic_tuple


def magic_tuple(self):
    triple, cpu, features = true_tuple(self)
    return triple, cpu, features + "".join(f",+avx512{part}" for part in ("f", "bw", "dq", "vl"))


CODEGEN.magic_tuple = magic_tuple

from engine.backends.numba_cpu import target  # noqa: E402

target.INTEGERS, target.DOT, target.CODE_BYTES = "lanes", 4, 1
