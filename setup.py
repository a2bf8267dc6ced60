"""Build the extension modules: the CPU kernels once per instruction set, and the native code that runs on any CPU.

Everything else about the package is in pyproject.toml.

ENGINE_BUILD_ISA in the environment says which kernels to compile. It is a list of these words, separated by commas:

    all       every instruction set of this machine's architecture; the default, and what a wheel needs
    native    those of them that this CPU can run, which is what the tests need
    best      the fastest one that this CPU can run, which is what `make demo` needs
    emulated  what the tests need besides: the shapes and tiles of other CPUs in plain C (wide and amxemulated)
    NAME      the instruction set of this name, for example avx2, baseline or wide (wide and amxemulated are for tests)
    none      nothing, not even the native code: for an editable install of a tree that is built already

An older compiler does not know the newest instructions: it builds the other sets of a group, and an error names a set
that was asked for by its name. Where the CPU's features cannot be read, native and best mean all.

ENGINE_BUILD_FLAGS has flags for the compiler that come after all others, separated by spaces, so it can override them.
What is compiled already is not compiled again when they change: such a build needs a folder of its own.
"""

import os
import platform
import runpy
import shlex
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

from setuptools import Extension, setup

SOURCES = "engine/backends/cython_cpu"
NATIVE = "engine/backends/cpu/native"
WEIGHTS = "engine/weights/native"

# Kernels rely on every helper being inlined into its tile; the compiler may not fuse or reorder a sum on its own,
# since each tile height has to round alike.
KERNEL_FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-falign-loops=32"]
ALWAYS_INLINE = [("CYTHON_INLINE", "inline __attribute__((always_inline))")]

AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]

# Python's build tools say here for which machine they compile, for example linux-aarch64, where it is not this one.
COMPILED_FOR = os.environ.get("_PYTHON_HOST_PLATFORM", "")
MACHINE = (COMPILED_FOR.rpartition("-")[2] or platform.machine()).lower()
ARM = MACHINE in ("aarch64", "arm64")

# Name -> compiler flags, slowest first. features.pxi has the same names, fastest first.
INSTRUCTION_SETS = {"baseline": []}
if ARM:
    # gcc, if it may reorder instructions before it assigns registers, loads a tile's numbers early and spills them.
    NEON = ["-DENGINE_NEON", "-fno-schedule-insns"]
    # Assemblers know these instructions from ARMv8.2 on. Of what that adds, a compiler uses atomics (lse) on its own.
    INSTRUCTION_SETS |= {
        "neon": NEON,
        "neondot": [*NEON, "-march=armv8.2-a+lse+dotprod"],
        "neonbf16": [*NEON, "-march=armv8.2-a+lse+dotprod+bf16+i8mm"],
    }
if MACHINE in ("x86_64", "amd64"):
    INSTRUCTION_SETS |= {
        "avx2": ["-mavx2", "-mfma"],
        "avxvnni": ["-mavx2", "-mfma", "-mavxvnni"],
        "avx512": AVX512,
        "avx512vnni": [*AVX512, "-mavx512vnni"],
        "avx512bf16": [*AVX512, "-mavx512vnni", "-mavx512bf16"],
        "amx": [*AVX512, "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8"],
    }

# Linux spells these features of the CPU in another way than the compiler.
CPUINFO_NAMES = {"avxvnni": "avx_vnni", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
                 "amx-tile": "amx_tile", "amx-bf16": "amx_bf16", "amx-int8": "amx_int8", "lse": "atomics",
                 "dotprod": "asimddp"}
FEATURES = "Features" if ARM else "flags"


def cpu_features(cpuinfo="/proc/cpuinfo"):
    """Return the features that Linux lists for the first CPU and its maker, or None where it lists no features.

    It is None, too, where we compile for another machine.
    """
    if COMPILED_FOR:
        return None
    try:
        lines = Path(cpuinfo).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    first = {key: next((set(line.partition(":")[2].split()) for line in lines if line.startswith(key)), None)
             for key in (FEATURES, "vendor_id")}  # fmt: skip
    return first[FEATURES] and first[FEATURES] | (first["vendor_id"] or set())


# AVX-512's tile shapes, and AMX's tiles, without their instructions, so that any machine can test them. Not part of
# "all": they are slow, and with -O3 their unrolled loops would take the compiler minutes. Where this CPU has AVX2 and
# fused multiply-adds, they round as AVX-512 does, and take half of the time.
FOR_WIDE = ["-mavx2", "-mfma"] if {"avx2", "fma"} <= (cpu_features() or set()) else []
WIDE = ["-DENGINE_EMULATE_WIDE", "-Wno-psabi", "-O1", *FOR_WIDE]
FOR_TESTS = {"wide": WIDE, "amxemulated": [*WIDE, "-DENGINE_EMULATE_TILES"]}


def needed(flags):
    """Return the features of a CPU, as the compiler spells them, that code compiled with these flags needs."""
    named = [flag.removeprefix("-m") for flag in flags if flag.startswith("-m") and not flag.startswith("-march=")]
    return named + [name for flag in flags if flag.startswith("-march=") for name in flag.split("+")[1:]]


def runnable(features):
    """Return the names of the instruction sets that a CPU with these features can run, slowest first."""
    if features is None:
        return list(INSTRUCTION_SETS)
    return [isa for isa, flags in INSTRUCTION_SETS.items()
            if features.issuperset(CPUINFO_NAMES.get(name, name) for name in needed(flags))]


def best(features):
    """Return the instruction sets to compile where one is enough: the fastest, as `isa.fastest_first` explains."""
    native = runnable(features)
    if features is None:
        return native
    if native[-1] == "avx512bf16" and "AuthenticAMD" not in features:
        return ["avx512vnni"]
    return native[-1:]


def emulated(features):
    """Return the names of the emulations that tests need: `wide` only where AVX-512 itself does not run."""
    return [isa for isa in FOR_TESTS if isa != "wide" or features is None or "avx512" not in runnable(features)]


def instruction_sets(request, features):
    """Return the names of the instruction sets to compile for this value of ENGINE_BUILD_ISA."""
    groups = {"all": list(INSTRUCTION_SETS), "native": runnable(features), "best": best(features),
              "emulated": emulated(features)}
    known = {**INSTRUCTION_SETS, **FOR_TESTS}
    chosen = set()
    for word in request.split(","):
        if word not in groups and word not in known:
            renamed = "; portable is called baseline now" if word == "portable" else ""
            raise SystemExit(f"ENGINE_BUILD_ISA={request}: {word!r} is not one of {', '.join([*groups, *known])}; "
                             f"none stands alone{renamed}")
        chosen.update(groups.get(word, [word]))
    return [isa for isa in known if isa in chosen]


def unknown_to_compiler(isas):
    """Return the instruction sets whose flags the compiler refuses; none where there is no compiler to ask."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = {**INSTRUCTION_SETS, **FOR_TESTS}
    try:
        return [isa for isa in isas if subprocess.run(
            [*compiler, *flags[isa], "-fsyntax-only", "-x", "c", os.devnull],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode]
    except OSError:
        return []


def without_unknown(isas, request):
    """Return the instruction sets that the compiler knows, and say which it does not know."""
    unknown = unknown_to_compiler(isas)
    if named := sorted(set(unknown) & set(request.split(","))):
        raise SystemExit(f"ENGINE_BUILD_ISA={request}: the compiler does not know the instructions of "
                         f"{', '.join(named)}; take a newer one with CC=..., or leave these names out")
    if unknown:
        print(f"left out, because the compiler does not know their instructions: {', '.join(unknown)}", flush=True)
    return [isa for isa in isas if isa not in unknown]


def refuse_other_systems(system):
    """Stop with a sentence on systems for which there is no code: the pool of threads and the kernels are for Linux."""
    if not system.startswith("linux"):
        raise SystemExit(f"encoder-engine runs on Linux only, and this is {system}: there is no build for macOS or "
                         "Windows; use a Linux machine, a container, or WSL on Windows")


def write_table_name(folder="build"):
    """Write a header with the name of the kernel table, which changes with its fields; return its path.

    A header that is right stays as it is, so that nothing is compiled again.
    """
    layout = runpy.run_path(f"{NATIVE}/layout.py")
    code = f'#define ENGINE_TABLE "{layout["TABLE_NAME"].decode()}"\n'
    header = Path(folder, "kernel_table.h")
    if not header.exists() or header.read_text(encoding="ascii") != code:
        header.parent.mkdir(exist_ok=True)
        header.write_text(code, encoding="ascii")
    return header


def extension(folder, name, flags, extra_sources=(), **options):
    """Return the extension module of one .pyx file, to be compiled again when a header or this file changes.

    Cython finds out by itself when a file that it includes has changed.
    """
    headers = sorted(header.as_posix() for header in Path(folder).rglob("*.h"))
    table = write_table_name()
    return Extension(
        f"{folder.replace('/', '.')}.{name}",
        [f"{folder}/{name}.pyx", *(f"{folder}/{source}" for source in extra_sources)],
        include_dirs=[folder, table.parent.as_posix()],
        depends=["setup.py", *headers, table.as_posix()],
        # Without -g0, Python's own flags ask for debugging tables.
        extra_compile_args=["-fvisibility=hidden", "-g0", *flags, *os.environ.get("ENGINE_BUILD_FLAGS", "").split()],
        **options,
    )


@contextmanager
def keeping_what_is_equal(files):
    """Give files of C back their time and contents where the block writes the same code: nothing compiles them again.

    Each `pip install .` unpacks a Cython of its own. The files of that one are newer than ours, so it translates all
    modules again, and `make` would then compile what has not changed, and the next `pip install .` too. The comment
    with Cython's metadata names the compiler's flags, which are not code.
    """
    old = {file: (file.read_bytes(), file.stat()) for file in files if file.exists()}
    yield
    for file, (contents, status) in old.items():
        if without_metadata(file.read_bytes()) == without_metadata(contents):
            file.write_bytes(contents)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def without_metadata(code):
    """Return the C code of Cython without the comment that describes the build."""
    before, begin, rest = code.partition(b"/* BEGIN: Cython Metadata")
    return before + rest.partition(b"END: Cython Metadata */")[2] if begin else code


def extensions(isas):
    """Return the extension modules with the kernels of these instruction sets, translated to C where needed."""
    from Cython.Build import cythonize

    flags = {**INSTRUCTION_SETS, **FOR_TESTS}
    modules = [extension(SOURCES, f"kernels_{isa}", KERNEL_FLAGS + flags[isa], define_macros=ALWAYS_INLINE)
               for isa in isas]
    modules.append(extension(NATIVE, "native", ["-O2", "-pthread"], ["pool.c"], extra_link_args=["-pthread"]))
    modules.append(extension(WEIGHTS, "int4_search", KERNEL_FLAGS))
    with keeping_what_is_equal([Path(module.sources[0]).with_suffix(".c") for module in modules]):
        return cythonize(modules, language_level=3, quiet=True)


def main():
    """Run setuptools."""
    refuse_other_systems(COMPILED_FOR or sys.platform)
    request = os.environ.get("ENGINE_BUILD_ISA") or "all"
    if request == "none":
        setup(ext_modules=[])
        return
    isas = without_unknown(instruction_sets(request, cpu_features()), request)
    print(f"kernels to compile: {', '.join(isas)} (ENGINE_BUILD_ISA={request})", flush=True)
    setup(ext_modules=extensions(isas))


if __name__ == "__main__":
    main()
