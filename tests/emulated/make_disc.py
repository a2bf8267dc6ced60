"""A CD that boots Linux and runs one shell command: Python, NumPy, pytest, the engine and its tests in an initramfs.

    python make_disc.py KERNEL DISC.iso COMMAND

Run by a Python that has the engine's tests' needs; what is copied lies at the same path on the disc. Takes xorriso,
isolinux, cpio and a static busybox (README.md).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "numpy.libs", "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "hypothesis",
            "sortedcontainers")
LEFT_OUT = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3",
                                  "*.a", "*.c", "include", "config-*", "asv_bench", "emulated")
INIT = """#!/bin/busybox sh
export PATH={path}:/bin HOME=/tmp PYTHONPATH={site}:{repository} OMP_NUM_THREADS=1
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev; mount -t proc none /proc; mount -t sysfs none /sys
cd {repository}
( {command} ) >/dev/ttyS0 2>&1
echo "status $?" >/dev/ttyS0
poweroff -f
"""
MENU = """default linux
label linux
  kernel /vmlinuz
  append initrd=/initrd console=ttyS0 quiet mitigations=off nokaslr clearcpuid=fsrm
"""


def folders() -> list[Path]:
    """What is copied whole: the standard library, the packages, the engine and the tests."""
    site = Path(sysconfig.get_path("platlib"))
    packages = [Path(spec.origin).parent if (spec := find_spec(name)) and spec.origin else site / name
                for name in PACKAGES]
    parts = [REPOSITORY / "engine", REPOSITORY / "tests"]
    return [Path(sysconfig.get_path("stdlib")), *(path for path in packages if path.is_dir()), *parts]


def libraries(root: Path) -> set[Path]:
    """The shared libraries that anything compiled under root asks for."""
    compiled = [str(path) for path in root.rglob("*") if path.is_file() and ".so" in path.suffixes]
    told = subprocess.run(["ldd", sys.executable, *compiled], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", told) if not path.startswith(str(root))}


def make_root(root: Path, command: str) -> None:
    """Fills the folder root with the files of the system that boots."""
    for folder in folders():
        shutil.copytree(folder, root / folder.relative_to("/"), ignore=LEFT_OUT, dirs_exist_ok=True)
    python = Path(os.path.realpath(sys.executable))
    busybox = shutil.which("busybox") or sys.exit("make_disc.py needs busybox: apt-get install busybox-static")
    for source, at in [(python, python), (REPOSITORY / "pyproject.toml",) * 2, (Path(busybox), Path("/bin/busybox")),
                       *((path, path) for path in libraries(root))]:
        target = root / at.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    (root / "bin/python").symlink_to(python)
    for name in ("dev", "proc", "sys", "tmp"):
        (root / name).mkdir(exist_ok=True)
    init = root / "init"
    init.write_text(INIT.format(path=python.parent, site=sysconfig.get_path("platlib"), repository=REPOSITORY,
                                command=command))
    init.chmod(0o755)


def main(kernel: str, disc: str, command: str) -> None:
    work = Path(disc).with_suffix("")
    shutil.rmtree(work, ignore_errors=True)
    make_root(work / "root", command)
    (work / "cd").mkdir()
    subprocess.run(f"cd {work}/root && find . | cpio -o -H newc --quiet >../cd/initrd", shell=True, check=True)
    shutil.copy(kernel, work / "cd/vmlinuz")
    shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", work / "cd")
    shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", work / "cd")
    (work / "cd/isolinux.cfg").write_text(MENU)
    subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", disc, "-b", "isolinux.bin", "-c", "boot.cat",
                    "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", work / "cd"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
