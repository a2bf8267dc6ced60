"""Compile the stored kernels of the CUDA backend into archives, and record what the code of each is.

    python -m tools.cubins        (or: make cubins)

Each kernel of `stored.catalogue` becomes a cubin for sm_80, which all GPUs of 8.x run, and for sm_90a, and PTX, which
newer GPUs run. An archive whose kernels were compiled from the same sources, by the same versions, stays as it is. The
record in the repository holds a digest of the instructions of each cubin, so that a change of a kernel is seen there.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.backends.numba_cuda import compiler, stored
from engine.backends.numba_cuda.kernel import Arch, Code, Kernel
from tests.tools.documents import ROOT

RECORD = ROOT / "tests/backends/numba_cuda/cubins.json"
HOPPER: Arch = (9, 0, "a")
MOST = 5_000_000
"""The most bytes of all archives together."""


def main() -> None:
    """Write the archives and the record, and print their sizes and the kernels whose code has changed."""
    stored.ARCHIVES.mkdir(exist_ok=True)
    kernels = list(stored.catalogue())
    if len(named := {kernel.name: kernel for kernel in kernels}) != len(kernels):
        raise SystemExit("two kernels of the catalogue have one name")
    made: dict[str, dict[str, str]] = {name: {} for name in sorted(named)}
    size = 0
    for archive, make, chosen in archives(kernels):
        path = stored.ARCHIVES / f"{archive}.zip"
        codes = build(path, make, chosen)
        size += path.stat().st_size
        print(f"{path.relative_to(ROOT)}: {len(codes)} kernels, {path.stat().st_size:,} bytes", flush=True)
        for name, code in codes.items() if archive.endswith(".cubin") else ():
            made[name][archive] = digest(code.content)
    before = json.loads(RECORD.read_text(encoding="utf-8"))["kernels"] if RECORD.exists() else {}
    for name in sorted(made.keys() | before.keys()):
        if made.get(name) != before.get(name):
            print(f"{'new' if name not in before else 'changed' if name in made else 'gone'}: {name}")
    RECORD.write_text(json.dumps({"versions": stored.versions(), "kernels": made}, indent=1) + "\n", encoding="utf-8")
    if size > MOST:
        raise SystemExit(f"the archives have {size:,} bytes together, and may have {MOST:,}")


def archives(kernels: list[Kernel]) -> Iterator[tuple[str, Callable[[Kernel], Code], list[Kernel]]]:
    """Yield the name of each archive, what compiles a kernel for it, and its kernels."""
    older = [kernel for kernel in kernels if kernel.arch == stored.OLDEST]
    yield stored.archive_name(stored.OLDEST), lambda kernel: compiler.cubin(kernel, stored.OLDEST), older
    yield stored.archive_name(HOPPER), lambda kernel: compiler.cubin(kernel, HOPPER), kernels
    yield stored.archive_name(stored.OLDEST, "ptx"), lambda kernel: compiler.ptx(kernel, stored.OLDEST), older


def build(path: Path, make: Callable[[Kernel], Code], kernels: list[Kernel]) -> dict[str, Code]:
    """Write an archive, unless it is there, and return the code of its kernels."""
    old = stored.Archive(path)
    if old.index["versions"] == stored.versions() and old.index["kernels"].keys() == {k.name for k in kernels}:
        codes = {kernel.name: code for kernel in kernels if (code := old.read(kernel)) is not None}
        if len(codes) == len(kernels):
            return codes
    codes = {}
    # Kernels are closures, which processes take over by a fork and not by a pickle.
    with multiprocessing.get_context("fork").Pool(initializer=_compiles.extend, initargs=([make, kernels],)) as pool:
        for number, code in enumerate(pool.imap(_compiled, range(len(kernels)))):
            codes[kernels[number].name] = code
            print(f"\r{path.name}: {number + 1} of {len(kernels)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    stored.write_archive(path, {kernel.name: (kernel, codes[kernel.name]) for kernel in kernels})
    return codes


_compiles: list[Any] = []
"""In a process that compiles: what compiles a kernel, and the kernels."""


def _compiled(number: int) -> Code:
    """Return the code of a kernel, in a process that compiles."""
    make, kernels = _compiles
    return make(kernels[number])


def digest(cubin: bytes) -> str:
    """Return a hash of the instructions in a cubin, an ELF file: its names hold numbers of the process that made it."""
    start, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    offset = sections[names][4]
    code = b"".join(cubin[at : at + length] for name, _, _, _, at, length in sections
                    if cubin[offset + name :].startswith(b".text."))
    return hashlib.sha256(code).hexdigest()[:16]


if __name__ == "__main__":
    main()
