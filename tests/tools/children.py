"""Run a function in a forked child, and read what it writes."""

import os
import warnings
from collections.abc import Callable


def read_child(run: Callable[[int], None]) -> tuple[str, int]:
    """Return what `run` writes in a child to the descriptor that it gets, and the child's exit code.

    The code is 0 if `run` returns, 1 if it raises, and minus the number of a signal that ends the child.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the children run no thread of this process
        child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            run(writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
