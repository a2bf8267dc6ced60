"""Test wheels without running them: their tags, their modules, the symbols that they need, and their instructions.

    python -m tools.wheels.check WHEELS [--all]        (or: make test-wheels)

--all: a wheel of a release that is not there is a fault, too.

A wheel whose modules need a newer C library than its tag says installs and then fails to import, and one whose common
code uses wide registers dies on older CPUs. Nobody who builds on a new machine notices either. So this fails where

- `auditwheel` finds a symbol that is newer than the tag's C library, or a library that not every system has;
- a module of an instruction set is missing, or one that is for tests only is there;
- the stored kernels of the CUDA backend are not there;
- a module is for another machine, or a register or a product of an instruction set appears outside of its kernels;
- the wheel holds the name of a folder of the machine that built it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.arm64.run import PRODUCTS
from tests.tools.documents import ROOT

from .targets import TARGETS, Target

OBJDUMP = {"x86_64": ("objdump", "x86-64"), "aarch64": ("aarch64-linux-gnu-objdump", "aarch64")}
"""The program that reads the code of a machine, and the machine's name in what it prints."""

ARM_PRODUCTS = r"\t([su]dot|usdot|sudot|[su]mmla|usmmla|bfdot|bfmmla)\t"

OTHERS = {"native", "int4_search"}
"""The compiled modules besides the kernels."""

READ = "engine/backends/cpu/native/table.pxd"
"""The one source that a wheel has, because native/layout.py reads it."""


STORED = {f"engine/backends/numba_cuda/cubins/{name}.zip" for name in ("sm_80.cubin", "sm_80.ptx", "sm_90a.cubin")}
"""The stored kernels, which `make cubins` writes."""


def main(folder: Path, everything: bool) -> int:
    """Check every wheel of a folder; print what is wrong, or that nothing is; return 1 where something is."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"there are no wheels in {folder}; make wheels builds them")
    wrong = 0
    for wheel in wheels:
        faults = list(faults_of(wheel))
        wrong += bool(faults)
        print(f"{wheel.name}: {'; '.join(faults) or 'passes'}", flush=True)
    for target in TARGETS if everything else ():
        if not any(target_of(wheel) == target for wheel in wheels):
            wrong += 1
            print(f"there is no wheel {target}")
    return bool(wrong)


def target_of(wheel: Path) -> Target | None:
    """Return which wheel of a release it is, by its tags."""
    return next((target for target in TARGETS if wheel.stem.endswith(f"-{target.interpreter}-{target}")), None)


def faults_of(wheel: Path) -> Iterator[str]:
    """Yield a sentence for everything that is wrong with a wheel."""
    if (target := target_of(wheel)) is None:
        yield "its tags are those of no wheel of a release"
        return
    yield from policy(wheel, target)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = archive.namelist()
        modules = {path.name.partition(".")[0]: path for path in Path(folder).rglob("*.so")}
        if modules.keys() != (expected := OTHERS | {f"kernels_{isa}" for isa in instruction_sets(target.machine)}):
            yield f"it has the modules {', '.join(sorted(modules))}; expected {', '.join(sorted(expected))}"
        if sources := [name for name in names if re.search(r"\.(pyx|pxd|pxi|c|h)$", name)
                       and name != READ]:
            yield f"it has sources, such as {sources[0]}"
        if lacking := STORED.difference(names):
            yield f"it has no {', '.join(sorted(lacking))}; make cubins writes them"
        for name, path in modules.items():
            yield from (f"{name} {fault}" for fault in code(name, path, target))
            if found := re.search(rb"/(?:root|home|tmp|work|build)/[\w./-]+", path.read_bytes()):
                yield f"{name} holds the folder {found[0].decode()}"


def policy(wheel: Path, target: Target) -> Iterator[str]:
    """Yield what auditwheel says, if the wheel's own tag promises more than it finds."""
    told = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True)
    found = re.search(r'following platform tag:\s+"(\w+)"', told.stdout)
    name, highest = target.library.rpartition("_")[0], version(target.library)
    if found is None or not found[1].startswith(name.partition("_")[0]) or not found[1].endswith(target.machine):
        yield f"auditwheel finds no policy for it: {told.stdout}{told.stderr}"
    elif version(found[1].removesuffix(f"_{target.machine}")) > highest:
        yield f"its modules need {found[1]}, and its tag says {target.platform}"


def version(tag: str) -> tuple[int, ...]:
    """Return the version of the C library in a tag such as manylinux_2_28; (2, 17) for manylinux2014."""
    return {"manylinux2014": (2, 17), "manylinux2010": (2, 12), "manylinux1": (2, 5)}.get(tag) or tuple(
        map(int, re.findall(r"_(\d+)", tag)))


def instruction_sets(machine: str) -> list[str]:
    """Return the names of all instruction sets of a machine, as setup.py has them."""
    program = "import os, runpy; print(*runpy.run_path('setup.py')['INSTRUCTION_SETS'])"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={"_PYTHON_HOST_PLATFORM": f"linux-{machine}"},
                          check=True, capture_output=True, text=True).stdout.split()


def code(name: str, path: Path, target: Target) -> Iterator[str]:
    """Yield what is wrong with the machine, or with the instructions, of a module."""
    program, machine = OBJDUMP[target.machine]
    text = subprocess.check_output([program, "-d", "--no-show-raw-insn", path], text=True)
    if machine not in text.partition("Disassembly")[0]:
        yield f"is not for {target.machine}"
    if target.machine == "aarch64":
        found, allowed = set(re.findall(ARM_PRODUCTS, text)), PRODUCTS.get(name, set())
    else:
        found, allowed = set(re.findall(r"%([yz]mm|tmm)\d", text)), registers(name)
    if found != allowed:
        yield f"uses {', '.join(sorted(found)) or 'nothing'} beyond the base of {target.machine}, expected {allowed}"


def registers(name: str) -> set[str]:
    """Return the wide registers that a module for x86-64 uses: those of its instruction set, and all of them."""
    if "avx512" in name:
        return {"ymm", "zmm"}
    return {"ymm", "zmm", "tmm"} if name == "kernels_amx" else {"ymm"} if "avx" in name else set()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--all" in sys.argv))
