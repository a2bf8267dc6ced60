"""render.py without Jinja's sandbox, so that templates can try what somebody could who escaped from it."""

import ctypes
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

RENDER = Path(__file__).parents[2] / "engine" / "chat" / "render.py"

if __name__ == "__main__":
    sys.path += sys.argv[4:]
    spec = spec_from_file_location("render", RENDER)
    render = module_from_spec(spec)
    spec.loader.exec_module(render)
    import jinja2.sandbox

    jinja2.sandbox.ImmutableSandboxedEnvironment = jinja2.Environment
    whole = render.make_environment

    def make_environment(now):
        """Return the environment with what Python has against the system."""
        environment = whole(now)
        environment.globals |= {"os": os, "socket": socket, "subprocess": subprocess, "open": open, "mmap": mmap,
                                "ctypes": ctypes, "resource": resource, "signal": signal, "libc": ctypes.CDLL(None)}
        return environment

    render.make_environment = make_environment
    render.main(bytes.fromhex(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
