"""Run the faults, and print how many there were and what came of them.

    python -m tests.faults [STEP]      every STEP-th call of each function fails; every call by default
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.shim import environment, unavailable


def main(step: int) -> int:
    """Start Python again with the library, or do the work if this is that Python; return the exit status."""
    if "faults.so" not in os.environ.get("LD_PRELOAD", ""):
        reason = unavailable()
        if reason:
            print(f"no faults: {reason}")
            return 2
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.faults", str(step)]
            return subprocess.run(command, env=environment(Path(folder)), check=False).returncode
    from tests.faults.run import inject
    from tests.faults.shim import Shim
    from tests.faults.works import works

    with tempfile.TemporaryDirectory() as folder:
        report = inject(works(Path(folder)), Shim(), step=step)
    for function, points in report.points.items():
        print(f"{points:6,}  {function}")
    print(f"{sum(report.points.values()):,} faults: {report.results['right']:,} right answers, "
          f"{report.results['error']:,} clear errors, {len(report.bad):,} bad")
    for line in report.bad:
        print(line)
    return int(bool(report.bad))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
