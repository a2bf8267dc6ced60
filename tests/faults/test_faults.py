"""Calls of the system that fail, one after the other: the right answer or a clear error, and nothing is left over."""

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
import json, os, sys
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

{works}
for work in ({names}):
    seen.clear()
    seconds = 0.3 if work is waits else 3       # that one always takes all of its time, eight times
    print(json.dumps(inject([Work("work", ("fsync",), work)], Shim(), seconds=seconds).bad))
"""

# Wrong pieces of work, and what the judge says of each.
WRONG = {
    "sync_wrong": ("return sync()", "ok: 'a wrong answer'"),
    "sync_raises": ("os.fsync(file)", "OSError: [Errno 5]"),
    "keeps_a_descriptor": ("sync(); os.dup(file)", "'descriptors': 1"),
    "keeps_a_block": ("sync(); seen.append([])", "'blocks': "),
    "aborts": ("sync() or os.abort()", "killed by SIGABRT"),
    "waits": ("sync() or os.read(os.pipe()[0], 1)", "took too long"),
    "spoils_the_next": ("ok = sync(); seen.append(ok); error() if not ok else None; return all(seen)",
                        "the next call is wrong"),
}


@pytest.fixture(scope="module")
def judged(preloaded, tmp_path_factory):
    """Return what the judge says of each wrong piece of work, by its name; one process tries all."""
    file = tmp_path_factory.mktemp("judge") / "file"
    file.touch()
    code = JUDGE.format(works="\n".join(f"def {name}(): {code}" for name, (code, _) in WRONG.items()),
                        names=", ".join(WRONG))
    result = subprocess.run([sys.executable, "-c", code, str(file)], env=preloaded, capture_output=True, text=True,
                            check=True)
    return dict(zip(WRONG, (line for line in result.stdout.splitlines() if line.startswith("[")), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_finds(name, judged):
    assert WRONG[name][1] in judged[name].replace("\\", "")
