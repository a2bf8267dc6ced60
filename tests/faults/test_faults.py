"""Calls of the system that fail, one after the other: the right answer or a clear error, and nothing is left over."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from .shim import ERRORS, environment, unavailable

pytest.importorskip("engine.backends.cpu.native.native", reason="the compiled kernels are not built")
pytest.importorskip("tokenizers")

REASON = unavailable()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("faults"))


def test_some_calls_fail(preloaded):
    """Let each 23rd call fail; `make faults` takes every one."""
    command = [sys.executable, "-m", "tests.faults", "23"]
    result = subprocess.run(command, env=preloaded, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" 0 bad\n")
    faults = {name: int(number) for number, name in re.findall(r"^ +(\d+)  (\w+)$", result.stdout, re.MULTILINE)}
    assert set(faults) == set(ERRORS)
    assert faults["malloc"] >= 40


JUDGE = """
import os, sys
from tests.faults.run import Work, inject
from tests.faults.shim import Shim

file, seen = os.open(sys.argv[1], os.O_RDWR), []

def error():
    raise MemoryError("no memory")

def sync():
    try:
        os.fsync(file)
        return True
    except OSError:
        return False

{run}
print(inject([Work("work", ("fsync",), run)], Shim(), seconds={seconds}).bad)
"""

# Wrong pieces of work: what the judge says of each.
WRONG = {
    "ok: 'a wrong answer'": "return sync()",
    "OSError: [Errno 5]": "os.fsync(file)",
    "'descriptors': 1": "sync(); os.dup(file)",
    "'blocks': ": "sync(); seen.append([])",
    "killed by SIGABRT": "sync() or os.abort()",
    "took too long": "sync() or os.read(os.pipe()[0], 1)",
    "the next call is wrong": "ok = sync(); seen.append(ok); error() if not ok else None; return all(seen)",
}


@pytest.mark.parametrize("finding", WRONG)
def test_the_judge_finds(finding, preloaded, tmp_path):
    (tmp_path / "file").touch()
    seconds = 0.3 if finding == "took too long" else 3   # this piece of work always takes all of its time, eight times
    code = JUDGE.format(run=f"def run(): {WRONG[finding]}", seconds=seconds)
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    result = subprocess.run(command, env=preloaded, capture_output=True, text=True, check=True)
    assert finding in result.stdout.replace("\\", "")
