"""Make a CD that boots Linux and runs one shell command, with Python, NumPy, pytest, the engine and its tests.

    python make_disc.py KERNEL DISC.iso COMMAND

The Python that runs this script must have the packages of the tests; copied files keep their paths. The script needs
xorriso, isolinux, cpio and a static busybox (README.md).
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = "numpy", "pytest", "hypothesis"
LEFT_OUT = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "config-*", "*.a", "*.c")
# OpenBLAS chooses its kernels by the CPU's model, and for Bochs's newest models uses an instruction that Bochs lacks.
INIT = """#!/bin/busybox sh
export PATH=/bin HOME=/tmp PYTHONPATH={site}:{repository} OPENBLAS_CORETYPE=Haswell
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev; mount -t proc none /proc; mount -t sysfs none /sys
cd {repository}
( {command} ) >/dev/ttyS0 2>&1
echo "status $?" >/dev/ttyS0
sleep 1  # for the serial port to empty itself
poweroff -f
"""
# Bochs has FSRM without ERMS. Linux 6.1's memmove is wrong for that combination: its shortest copies never end.
MENU = """default linux
label linux
  kernel /vmlinuz
  append initrd=/initrd console=ttyS0 quiet mitigations=off nokaslr clearcpuid=fsrm
"""


def packages() -> Iterator[Path]:
    """Return the files of the packages and of the packages that they need."""
    names, seen = list(PACKAGES), set()
    while names:
        if (name := names.pop()) in seen:
            continue
        seen.add(name)
        with suppress(PackageNotFoundError):    # needed by another system or an older Python
            package = distribution(name)
            names += [re.split(r"[^\w.-]", need)[0] for need in package.requires or () if "extra ==" not in need]
            yield from (Path(str(package.locate_file(file))) for file in package.files or () if ".." not in file.parts)


def libraries(root: Path) -> set[Path]:
    """Return the shared libraries that the compiled files under root need."""
    compiled = [str(path) for path in root.rglob("*") if path.is_file() and ".so" in path.suffixes]
    told = subprocess.run(["ldd", sys.executable, *compiled], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", told) if not path.startswith(str(root))}


def copy(files: Iterable[Path], root: Path) -> None:
    """Copy each file to its own path under root."""
    for file in files:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


def make_root(root: Path, command: str) -> None:
    """Fill the folder root with the files of the bootable system."""
    for folder in (Path(sysconfig.get_path("stdlib")), REPOSITORY / "engine", REPOSITORY / "tests"):
        shutil.copytree(folder, root / folder.relative_to("/"), ignore=LEFT_OUT)
    python, busybox = Path(sys.executable).resolve(), shutil.which("busybox")
    if not busybox:
        sys.exit("a CD takes a static busybox, and there is none: apt-get install busybox-static")
    copy([python, REPOSITORY / "pyproject.toml", *packages()], root)
    copy(libraries(root), root)
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        (root / name).mkdir(exist_ok=True)
    shutil.copy(busybox, root / "bin")
    (root / "bin/python").symlink_to(python)
    init = root / "init"
    init.write_text(INIT.format(site=sysconfig.get_path("platlib"), repository=REPOSITORY, command=command))
    init.chmod(0o755)


def main(kernel: str, disc: str, command: str) -> None:
    """Write the CD; its files stay in a folder beside it."""
    work = Path(disc).resolve().with_suffix("")
    shutil.rmtree(work, ignore_errors=True)
    make_root(work / "root", command)
    cd = work / "cd"
    cd.mkdir()
    subprocess.run("find . | cpio -o -H newc --quiet >../cd/initrd", shell=True, check=True, cwd=work / "root")
    shutil.copy(kernel, cd / "vmlinuz")
    shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", cd)
    shutil.copy("/usr/lib/syslinux/modules/bios/ldlinux.c32", cd)
    (cd / "isolinux.cfg").write_text(MENU)
    subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", disc, "-b", "isolinux.bin", "-c", "boot.cat",
                    "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", cd], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
