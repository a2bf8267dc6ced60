"""Make Linux refuse AMX's tiles to this process: a pytest plugin.

Linux refuses them while a thread has a signal stack that is too small for the registers. The first answer holds.
"""

import ctypes


class SignalStack(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


memory = ctypes.create_string_buffer(8192)
before, small = SignalStack(), SignalStack(ctypes.addressof(memory), 0, len(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) == 0

from engine.backends.numba_cpu import BACKEND, target  # noqa: E402

assert libc.sigaltstack(ctypes.byref(before), None) == 0
assert not target.TILES
assert "the signal stack of a thread is smaller than 12 KB" in BACKEND.describe()
