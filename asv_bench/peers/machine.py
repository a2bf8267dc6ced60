"""Describe the CPU, and set the environment variables of each library."""

import platform
import subprocess
from pathlib import Path

LIFTED = " (MKL unlocked)"
"""Suffix of a library's name when MKL is told that the CPU is Intel's."""


def environment(name: str, threads: int, root: Path) -> dict[str, str]:
    """Return a library's environment variables, which must be set when its process starts."""
    variables = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1",
                 "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TORCHINDUCTOR_FREEZING": "1",
                 "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor")}  # fmt: skip
    if name.endswith(LIFTED):
        variables["LD_PRELOAD"] = str(unlock_mkl(root))
    return variables


def unlock_mkl(root: Path) -> Path:
    """Build a library that tells MKL that the CPU is Intel's. Raises if there is no C compiler."""
    path = (root / "unlock_mkl.so").resolve()
    if not path.exists():
        source = b"int mkl_serv_intel_cpu_true(void) { return 1; }"
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", path], input=source, check=True)
    return path


def cpu_info() -> str:
    """Return Linux's description of the CPU, or "" on other systems."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def _field(name: str) -> str:
    """Return the first value of a field of Linux's description, or ""."""
    return next((line.partition(":")[2].strip() for line in cpu_info().splitlines()
                 if line.partition(":")[0].strip() == name), "")  # fmt: skip


def cpu_name() -> str:
    """Return the CPU's name with its family and model: virtual machines give many generations one name."""
    if not _field("model name"):
        return platform.processor()
    return f"{_field('model name')} (family {_field('cpu family')}, model {_field('model')})"


def short_name() -> str:
    """Return a name for files of this CPU, such as amd-26-2."""
    maker = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(_field("vendor_id"), platform.machine())
    return "-".join(filter(None, (maker, _field("cpu family"), _field("model"))))


def has_vnni() -> bool:
    """Return True if one instruction adds the products of four 8-bit pairs without intermediate saturation."""
    return bool({"avx512_vnni", "avx_vnni", "asimddp"} & set(cpu_info().split()))


def has_avx512() -> bool:
    return "avx512f" in cpu_info().split()


def is_amd() -> bool:
    return "AuthenticAMD" in cpu_info()
