"""Run groups of checks in separate processes, so that a kernel that hangs or faults stops only its own group.

Some run under compute-sanitizer.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = ("memcheck", "racecheck")
FOUND = 86
"""Exit status when the sanitizer finds an error."""
TRACE = 4000
"""Characters at the end of a failed process's messages that the file of the numbers keeps."""


def run_group(group: str, seconds: float) -> list[dict]:
    """Return the rows of a group, or one row that says why there are none."""
    status, out, error = _run([sys.executable, "-m", "asv_bench.gpu.checks", group], seconds)
    if status == 0:
        return json.loads(out.splitlines()[-1])
    return [{"name": group, "ok": False, "why": _ended(status, seconds, error), "trace": error[-TRACE:]}]


def sanitizer() -> str | None:
    """Return the path of compute-sanitizer, on PATH or where CUDA's installer puts it, or None."""
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def sanitize(program: str, tool: str, group: str, seconds: float) -> str:
    """Return "clean", or what a tool found in a group's small checks, or why the process failed."""
    checks = [sys.executable, "-m", "asv_bench.gpu.checks", group, "--small"]
    status, out, error = _run([program, "--tool", tool, "--error-exitcode", str(FOUND), *checks], seconds)
    if status == 0:
        return "clean"
    findings = [line for line in (out + error).splitlines() if line.startswith("=========")]
    return "found: " + " / ".join(findings[:6]) if status == FOUND else _ended(status, seconds, error)


def _run(command: list[str], seconds: float) -> tuple[int | None, str, str]:
    """Return the exit status, or None if the time ran out, and both outputs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=Path(__file__).parents[2])
    except subprocess.TimeoutExpired:
        return None, "", ""
    return done.returncode, done.stdout, done.stderr


def _ended(status: int | None, seconds: float, error: str) -> str:
    if status is None:
        return f"not done after {seconds:.0f} s"
    last = error.strip().splitlines()[-1:] or ["no message"]
    return f"ended with status {status}: {last[0]}"
