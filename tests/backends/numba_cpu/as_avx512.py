"""Make Numba's kernels use AVX-512's sizes: a pytest plugin; LLVM splits the vectors for the present CPU.

LLVM cannot split the instructions for integers, so integers are multiplied in lanes. If AS_AVX512BF16 is set, bfloat16
has the layout of AVX512-BF16, and its two instructions are emulated.
"""

import os

from llvmlite import ir
from numba.core.registry import cpu_target

PAIRS = ["bf16"] if os.environ.get("AS_AVX512BF16") else []
CODEGEN = type(cpu_target.target_context.codegen())
true_tuple = CODEGEN.magic_tuple


def magic_tuple(self):
    triple, cpu, features = true_tuple(self)
    return triple, cpu, features + "".join(f",+avx512{part}" for part in ("f", "bw", "dq", "vl", *PAIRS))


CODEGEN.magic_tuple = magic_tuple

from engine.backends.numba_cpu import target  # noqa: E402

target.INTEGERS, target.DOT, target.CODE_BYTES = "lanes", 4, 1
target.PAIR_STEPS = 1 if PAIRS else 2
target.OPERAND_BYTES = 2 * target.PAIR_STEPS

if PAIRS:
    from engine.backends.numba_cpu.compiler.emit import VF, VI, fma
    from engine.backends.numba_cpu.kernels import pairs

    def both(x):
        return ir.Constant(VI, [x] * target.VL)

    def dot(b, x, weights, total):
        low = [b.bitcast(b.shl(pair, both(16)), VF) for pair in (x, weights)]
        high = [b.bitcast(b.and_(pair, both(0xFFFF0000)), VF) for pair in (x, weights)]
        return fma(b, *high, fma(b, *low, total))

    def rounded(b, x):
        bits = b.bitcast(x, VI)
        odd = b.and_(b.lshr(bits, both(16)), both(1))
        nearest = b.add(b.add(bits, both(0x7FFF)), odd)
        quiet = b.or_(bits, both(0x400000))
        return b.trunc(b.lshr(b.select(b.fcmp_unordered("uno", x, x), quiet, nearest), both(16)), pairs.ROUNDED)

    pairs.dot, pairs.rounded = dot, rounded
