"""The extension modules: the CPU kernels once per instruction set, and the modules that run on any CPU.

Everything else about the package is in pyproject.toml.
"""

import os
import platform

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = "engine/backends/cython_cpu"

# Kernels rely on every helper being inlined into its tile; the compiler may not fuse or reorder a sum on its own,
# since each tile height has to round alike.
KERNEL_FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-falign-loops=32"]
ALWAYS_INLINE = [("CYTHON_INLINE", "inline __attribute__((always_inline))")]

INSTRUCTION_SETS = {"portable": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    INSTRUCTION_SETS["avx2"] = ["-mavx2", "-mfma"]
    INSTRUCTION_SETS["avxvnni"] = [*INSTRUCTION_SETS["avx2"], "-mavxvnni"]
    INSTRUCTION_SETS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
    INSTRUCTION_SETS["avx512vnni"] = [*INSTRUCTION_SETS["avx512"], "-mavx512vnni"]
    INSTRUCTION_SETS["avx512bf16"] = [*INSTRUCTION_SETS["avx512vnni"], "-mavx512bf16"]
if os.environ.get("ENGINE_BUILD_WIDE") == "1":
    # AVX-512's tile shapes without its instructions: lets any machine test them. Not for wheels, nor for speed: all its
    # unrolling would take the compiler minutes.
    INSTRUCTION_SETS["wide"] = ["-DENGINE_EMULATE_WIDE", "-Wno-psabi", "-O1"]


def extension(name, flags, extra_sources=(), **options):
    return Extension(
        f"engine.backends.cython_cpu.{name}",
        [f"{SOURCES}/{name}.pyx", *(f"{SOURCES}/{source}" for source in extra_sources)],
        include_dirs=[SOURCES],
        depends=[f"{SOURCES}/{name}" for name in os.listdir(SOURCES) if name.endswith((".pxi", ".pxd", ".h"))],
        extra_compile_args=["-fvisibility=hidden", "-g0", *flags],      # Python's own flags ask for debugging tables
        **options,
    )


setup(
    ext_modules=cythonize(
        [
            *(
                extension(f"kernels_{isa}", KERNEL_FLAGS + flags, define_macros=ALWAYS_INLINE)
                for isa, flags in INSTRUCTION_SETS.items()
            ),
            extension("native", ["-O2", "-pthread"], ["pool.c"], extra_link_args=["-pthread"]),
        ],
        language_level=3,
    )
)
