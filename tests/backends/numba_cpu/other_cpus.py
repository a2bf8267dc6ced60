"""Run code in which Numba compiles for other CPUs: in forks of one process, which imports Numba once."""

import json
import subprocess
import sys

FORKS = """
import json, os, sys, traceback
import numba
from numba.core import config

code, cases = json.load(sys.stdin)
printed = []
for cpu, features, arguments in cases:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(writer, 1)
            config.CPU_NAME, config.CPU_FEATURES, sys.argv[1:] = cpu, features, arguments
            exec(code, {"__name__": "__main__"})
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as file:
        printed.append(file.read())
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{cpu}, {features}, {arguments}: the code above failed")
json.dump(printed, sys.stdout)
"""


def run_for(code, cases):
    """Return what the code prints in each of the cases: (name of a CPU, its features, arguments) as Numba takes them.

    Numba must not be imported before in this process for another CPU, so each case is a fork of a new process.
    """
    run = subprocess.run([sys.executable, "-c", FORKS], input=json.dumps([code, cases]), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
