"""Find the code of a kernel: in the archives of this installation, in the user's folder, or by the compiler.

An archive is a zip file in `cubins/`, one for each architecture, which `make cubins` writes: a member for each kernel
of `catalogue`, called by its name, and an index. Its code is taken only if the sources of kernels are those that it was
compiled from. The user's folder holds what was compiled here (`backends/code_cache.py`). Its files depend on the
versions of the compiler, too.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from lzma import LZMAError
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from ...base.errors import BackendUnavailable
from .. import code_cache
from . import kernels
from .driver import dotted
from .kernel import Arch, Code, Kernel, arch_name

HERE = Path(__file__).parent
ARCHIVES = HERE / "cubins"
INDEX = "index.json"
OLDEST, NEWEST = (8, 0), (9, 0)
"""The lowest and the highest compute capability with stored cubins; newer GPUs run the PTX of the lowest."""
TOOLS = ("numba-cuda", "llvmlite", "nvidia-cuda-nvcc-cu12", "nvidia-nvvm", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink")
"""The packages that turn a kernel into code, in CUDA 12 and 13; NVVM is a part of nvcc in CUDA 12."""


def catalogue() -> Iterator[Kernel]:
    """Yield every kernel that `make cubins` compiles: those that the modules of kernels list (`variants`)."""
    for module in iter_modules(kernels.__path__):
        yield from import_module(f"{kernels.__name__}.{module.name}").variants()


@cache
def sources() -> str:
    """Return a hash of all that the code of a kernel depends on, besides its name, its constants and the compiler."""
    files = sorted([*HERE.glob("kernels/*.py"), *HERE.glob("ptx/*.py"), HERE / "compiler.py", HERE / "toolchain.py"])
    return code_cache.hash_of(files)


def find(kernel: Kernel, capability: tuple[int, int]) -> Code:
    """Return the code of a kernel for a GPU; raises `BackendUnavailable` if it is not stored and cannot be compiled."""
    arch = kernel.target(capability)
    code = (_installed(kernel, arch, capability) or _read_folder(kernel, arch)) if kernel.stored else None
    return code or _compile(kernel, arch, capability)


def _installed(kernel: Kernel, arch: Arch, capability: tuple[int, int]) -> Code | None:
    """Return the code of a kernel in the archives, as PTX for a GPU newer than `NEWEST`; None if they lack it."""
    code = Archive.of(archive_name(arch)).read(kernel)
    if code is None and capability > NEWEST:
        code = Archive.of(archive_name(OLDEST, "ptx")).read(kernel)
    return code


def archive_name(arch: Arch, kind: str = "cubin") -> str:
    """Return the name of the archive with the code of an architecture, without its suffix: sm_90a.cubin."""
    return f"{arch_name(arch)}.{kind}"


class Archive:
    """The stored kernels of one architecture."""

    def __init__(self, path: Path):
        self.path = path
        self.index: dict[str, Any] = {"sources": None, "versions": {}, "kernels": {}}
        if path.exists():
            self.index = json.loads(self._member(INDEX))

    @staticmethod
    @cache
    def of(name: str) -> Archive:
        """Return an archive of this installation, which is empty if there is none."""
        return Archive(ARCHIVES / f"{name}.zip")

    @property
    def current(self) -> bool:
        """True if the kernels were compiled from the sources that are here."""
        return bool(self.index["sources"] == sources())

    def read(self, kernel: Kernel) -> Code | None:
        """Return the code of a kernel, or None if the archive lacks it or was made from other sources."""
        entry = self.index["kernels"].get(kernel.name)
        if not self.current or entry is None or entry["identity"] != kernel.identity():
            return None
        return Code(self.path.suffixes[-2][1:], entry["entry"], self._member(kernel.name), str(self.path))

    def _member(self, name: str) -> bytes:
        """Return the bytes of a member; raises `BackendUnavailable` if the archive is damaged."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(name)
        except (zipfile.BadZipFile, LZMAError, zlib.error, EOFError, KeyError, OSError, RuntimeError) as error:
            raise BackendUnavailable(f"the stored kernels in {self.path} are damaged ({error}); install encoder-engine "
                                     "anew, or run make cubins in its sources") from error


def write_archive(path: Path, codes: dict[str, tuple[Kernel, Code]]) -> None:
    """Write an archive of kernels by their names. Two builds of the same code give the same bytes.

    Members are compressed by LZMA, which makes cubins a quarter smaller than zlib does.
    """
    entries = {name: {"identity": kernel.identity(), "entry": code.entry, "module": kernel.module}
               for name, (kernel, code) in codes.items()}
    index = {"sources": sources(), "versions": versions(), "kernels": entries}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(INDEX), json.dumps(index), zipfile.ZIP_LZMA)
        for name, (_, code) in codes.items():
            archive.writestr(zipfile.ZipInfo(name), code.content, zipfile.ZIP_LZMA)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that turn a kernel into code, where they are installed."""
    installed = {}
    for package in TOOLS:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    if "numba-cuda" in installed and not any("nvjitlink" in package for package in installed):
        from cuda.bindings import nvjitlink  # the one of the system's toolkit

        installed["nvjitlink"] = ".".join(map(str, nvjitlink.version()))
    return installed


def _read_folder(kernel: Kernel, arch: Arch) -> Code | None:
    """Return the code of a kernel in the user's folder, or None if it is not there."""
    path = _path(kernel, arch)
    if (data := code_cache.read(path)) is None:
        return None
    header, _, content = data.partition(b"\n")
    facts = json.loads(header)
    return Code("cubin", facts["entry"], content, str(path)) if facts["identity"] == kernel.identity() else None


def _path(kernel: Kernel, arch: Arch) -> Path:
    """Return the path of a kernel's file in the user's folder for these sources and versions of the compiler."""
    folder = code_cache.hash_of([], [sources(), json.dumps(versions(), sort_keys=True)])
    return code_cache.cache_root("cuda") / folder / f"{kernel.name}.{arch_name(arch)}.code"


def _compile(kernel: Kernel, arch: Arch, capability: tuple[int, int]) -> Code:
    """Compile a kernel, and store its code in the user's folder unless it holds a function of the user."""
    try:
        from . import compiler
    except BackendUnavailable as error:
        raise BackendUnavailable(
            f"the kernel {kernel.name} for compute capability {dotted(capability)} is not stored in this installation, "
            f"which {_describe_archive(archive_name(arch))}, and it cannot be compiled: {error}") from error
    code = compiler.cubin(kernel, arch)
    if kernel.stored:
        header = json.dumps({"entry": code.entry, "identity": kernel.identity()}).encode()
        code_cache.write(_path(kernel, arch), header + b"\n" + code.content)
    return code


def describe(capability: tuple[int, int]) -> str:
    """Say which kernels there are for a GPU, in this installation and in the user's folder."""
    name = archive_name((9, 0, "a") if capability == NEWEST else OLDEST, "ptx" if capability > NEWEST else "cubin")
    folder = code_cache.cache_root("cuda")
    compiled = len(list(folder.glob("*/*.sm_*.code")))
    return f"kernels: this installation {_describe_archive(name)}; {compiled} compiled ones in {folder}"


def _describe_archive(name: str) -> str:
    """Say how many kernels of each module an archive has, and whether its sources are the present ones."""
    archive = Archive.of(name)
    if not archive.path.exists():
        return f"has no {archive.path.name}, which make cubins writes"
    counts = Counter(entry["module"] for entry in archive.index["kernels"].values())
    listed = ", ".join(f"{module} {count}" for module, count in sorted(counts.items()))
    old = "" if archive.current else ", of other sources than those that are here, so that none is taken"
    return f"has {counts.total()} in {archive.path.name} ({listed}){old}"
