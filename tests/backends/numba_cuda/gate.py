"""Assemble kernels without a GPU and report their resources, for the compile test."""

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.backends.numba_cuda import compiler
from engine.backends.numba_cuda.kernel import arch_name


@dataclass(frozen=True)
class Report:
    """The resources that a kernel uses on one architecture."""

    registers: int
    stack: int
    """Bytes of local memory per thread, spills included."""
    spills: int
    warnings: list[str]
    instructions: Counter
    """Number of SASS instructions by their first word, such as HMMA; empty without nvdisasm."""
    code: str
    """The SASS; empty without nvdisasm."""


def tool(name: str) -> str | None:
    """Return an executable of CUDA's wheels (nvidia-cuda-nvcc, nvidia-cuda-nvdisasm), else of the system's toolkit."""
    try:
        import nvidia
    except ImportError:
        return shutil.which(name)
    found = [path for place in nvidia.__path__ for path in Path(place).glob(f"cu*/bin/{name}")]     # cu13, cuda_nvcc
    return str(found[0]) if found else shutil.which(name)


def assembled(kernel, arch, folder: Path) -> Report:
    """Assemble the kernel's PTX with ptxas, for (major, minor) or (major, minor, letter)."""
    source, binary = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_bytes(compiler.ptx(kernel, arch).content)
    command = [tool("ptxas"), "-v", f"-arch={arch_name(arch)}", source, "-o", binary]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return _report(done.stderr, binary)


def linked(kernel, arch, folder: Path) -> Report:
    """Link the kernel with nvJitLink, as its cubins are made."""
    code, log = compiler.linked(kernel, arch, "-v")
    binary = folder / "kernel.cubin"
    binary.write_bytes(code.content)
    return _report(log, binary)


def _report(log: str, binary: Path) -> Report:
    code = _disassembled(binary)
    return Report(
        registers=_number(r"Used (\d+) registers", log),
        stack=_number(r"(\d+) bytes stack frame", log),
        spills=_number(r"(\d+) bytes spill stores", log) + _number(r"(\d+) bytes spill loads", log),
        warnings=re.findall(r"^.*\bC75\d\d\b.*$|^.*warning.*$", log, re.MULTILINE),
        instructions=Counter(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_]+)", code, re.MULTILINE)),
        code=code,
    )


def _number(pattern: str, text: str) -> int:
    """Return the largest number that the pattern finds, because a kernel may come with other functions."""
    return max(map(int, re.findall(pattern, text)))


def _disassembled(binary: Path) -> str:
    if (nvdisasm := tool("nvdisasm")) is None:
        return ""
    return subprocess.run([nvdisasm, "-c", binary], check=True, capture_output=True, text=True).stdout
