"""Compile the kernels for AArch64 on a machine of another architecture, and run them there in QEMU.

    python tests/arm64/run.py prepare             fetch an arm64 Python with NumPy and pytest into build/arm64
    python tests/arm64/run.py build [SETS]        compile; SETS is a value of ENGINE_BUILD_ISA
    python tests/arm64/run.py check               look at the instructions of each module, and at the sets of some CPUs
    python tests/arm64/run.py test [FILES]        run tests, file by file; the default is tests/backends/kernels
    python tests/arm64/run.py bits [I/N]          compare portable bits with the record of tests/tools/same_bits.py
    python tests/arm64/run.py python ARGUMENTS    run the arm64 Python

README.md says what has to be installed. QEMU_CPU names another CPU than `max`, which has all instructions.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = REPOSITORY / "build" / "arm64"
SYSROOT, SITE, LIBRARY = HOME / "sysroot", HOME / "site", HOME / "lib"

PYTHON = "3.11"
"""The version of Debian 12's Python."""

DEBS = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", f"libpython{PYTHON}-dev",
        "libc6", "libssl3", "zlib1g", "libffi8", "libexpat1", "libstdc++6", "libgcc-s1", "libgomp1", "libbz2-1.0",
        "liblzma5", "libsqlite3-0", "libuuid1")
WHEELS = ("numpy", "pytest", "hypothesis")

SETS = "baseline,neon,neondot,neonbf16"

PRODUCTS: dict[str, set[str]] = {
    "native": set(), "kernels_baseline": set(), "kernels_neon": set(), "kernels_neondot": {"sdot"},
    "kernels_neonbf16": {"smmla", "bfdot", "bfmmla"},
}  # fmt: skip
"""The instructions beyond ARMv8.0 that each module may use for products; it has to use them, too."""

CPUS = {"cortex-a72": "neon, baseline", "neoverse-n1": "neondot, neon, baseline",
        "max": "neonbf16, neondot, neon, baseline"}
"""The instruction sets of `SETS` that run on a CPU, the fastest first."""


def prepare() -> None:
    """Unpack an arm64 Python and its libraries without installing them, and wheels for it beside them."""
    debs = HOME / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *(f"{name}:arm64" for name in DEBS)], cwd=debs, check=True)
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", deb, SYSROOT], check=True)
    platforms = [word for tag in ("manylinux2014", "manylinux_2_27", "manylinux_2_28")
                 for word in ("--platform", f"{tag}_aarch64")]
    for wheels in (WHEELS, ("--no-deps", "tokenizers")):
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", SITE, "--upgrade",
                        "--only-binary=:all:", "--python-version", PYTHON, *platforms, *wheels], check=True)


def build(sets: str) -> None:
    """Compile native code and kernels with the cross compiler, against the headers of the arm64 Python."""
    config, include = HOME / "config", SYSROOT / "usr/include"
    config.mkdir(parents=True, exist_ok=True)
    name = "_sysconfigdata__aarch64-linux-gnu"
    (config / f"{name}.py").write_bytes((SYSROOT / f"usr/lib/python{PYTHON}" / f"{name}.py").read_bytes())
    environment = {
        "ENGINE_BUILD_ISA": sets, "PYTHONPATH": str(config),
        "_PYTHON_HOST_PLATFORM": "linux-aarch64", "_PYTHON_SYSCONFIGDATA_NAME": name,
        "CC": "aarch64-linux-gnu-gcc", "LDSHARED": "aarch64-linux-gnu-gcc -shared",
        "CFLAGS": f"-I{include}/python{PYTHON} -idirafter {include}",
    }  # fmt: skip
    folders = ["--build-base", str(HOME / "build"), "--build-lib", str(LIBRARY)]
    subprocess.run([sys.executable, "-Wignore", "setup.py", "-q", "build", *folders], cwd=REPOSITORY,
                   env=os.environ | environment, check=True)


def arm64(*arguments: str, cpu: str | None = None) -> list[str]:
    """Return the command that runs the arm64 Python, which finds the engine as `build` has made it."""
    # NumPy's products by OpenBLAS's SVE kernels, which the CPU `max` would get, raise floating-point flags in QEMU.
    variables = {"PYTHONPATH": f"{LIBRARY}:{SITE}:{REPOSITORY}", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1",
                 "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "ARMV8"}
    return ["qemu-aarch64", "-cpu", cpu or os.environ.get("QEMU_CPU", "max"), "-L", str(SYSROOT),
            *(word for name, value in variables.items() for word in ("-E", f"{name}={value}")),
            str(SYSROOT / f"usr/bin/python{PYTHON}"), *arguments]


def check() -> None:
    """Fail if a module uses other products than those of its instruction set, or if a CPU runs other sets."""
    for module, expected in PRODUCTS.items():
        file = next((LIBRARY / "engine/backends").rglob(f"{module}.*.so"))
        code = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", file], check=True, text=True,
                              capture_output=True).stdout
        found = set(re.findall(r"\t([su]dot|usdot|sudot|[su]mmla|usmmla|bfdot|bfmmla)\t", code))
        print(f"{module}: {', '.join(sorted(found)) or 'no instruction beyond ARMv8.0'}", flush=True)
        if found != expected:
            sys.exit(f"{module} uses {sorted(found)} for products, expected {sorted(expected)}")
    script = ("from engine.backends.cython_cpu import BACKEND, isa; print(', '.join(isa.available())); "
              "print(BACKEND.describe())")
    for cpu, sets in CPUS.items():
        told = subprocess.run(arm64("-c", script, cpu=cpu), check=True, text=True, capture_output=True).stdout
        print(f"{cpu}: {told}", end="", flush=True)
        if told.partition("\n")[0] != sets:
            sys.exit(f"{cpu} runs {told.partition(chr(10))[0]}, expected {sets}")


def test(files: list[str]) -> int:
    """Run the tests of each file in a process of its own; print how many passed on each kernel table."""
    passed: Counter[str] = Counter()
    failed = []
    of_kernels = sorted(str(path) for path in REPOSITORY.glob("tests/backends/kernels/test_*.py"))
    for file in files or [*of_kernels, str(REPOSITORY / "tests/backends/cpu/test_digests.py")]:
        command = arm64("-m", "pytest", "-v", "-p", "no:cacheprovider", "--import-mode=append", file)
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if " PASSED" in line:
                words = re.findall(r"\w+", line.partition("[")[2].rpartition("]")[0])
                passed[next((name for name in SETS.split(",") if name in words), "all of them, or none")] += 1
                print(".", end="", flush=True)
            elif " SKIPPED" not in line:        # the summary of pytest has the reasons
                print(line, end="", flush=True)
        if process.wait():
            failed.append(file)
    print("\n".join(f"{count:6,} passed on {name}" for name, count in passed.items()))
    print(f"failed: {', '.join(failed)}" if failed else "no file failed")
    return bool(failed)


def bits(share: str) -> int:
    """Compute every N-th golden result with portable bits on each set of Arm; return how many sets differ."""
    groups = ("encoders", "decoders", "speech", "heads", "tables", "operations")
    record = str(REPOSITORY / "tests/golden/portable_bits.json")
    differ = 0
    for name in SETS.split(",")[1:]:
        print(f"{name}: ", end="", flush=True)
        command = arm64("-Wignore", "-m", "tests.tools.same_bits", "--against", record, "--share", share, *groups)
        differ += subprocess.run(command, cwd=REPOSITORY, env=os.environ | {"ENGINE_ISA": name}).returncode != 0
    return differ


def main(command: str, *arguments: str) -> int:
    """Run one of the commands above."""
    if command == "prepare":
        prepare()
    elif command == "build":
        build(",".join(arguments) or SETS)
    elif command == "check":
        check()
    elif command == "test":
        return test(list(arguments))
    elif command == "bits":
        return bits(*arguments or ("0/12",))
    elif command == "python":
        return subprocess.run(arm64(*arguments), check=False).returncode
    else:
        sys.exit(f"no command is called {command!r}; choose prepare, build, check, test, bits or python")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
