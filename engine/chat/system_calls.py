"""The seccomp filter of the rendering process: a program for the kernel's BPF machine, which checks every system call.

It allows reading from descriptor 0, writing to 1, waiting for them, memory that holds no code, time, and the end of the
process. Every other call fails with EPERM, and a call of another architecture, whose numbers mean other calls, ends the
process. seccomp(2) describes the machine and the layout of `struct seccomp_data`, which the program reads.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""The codes of the instructions: load a word; jump if it equals a constant, is at least it, or has one of its bits;
return a constant."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`: the number of the call, the architecture, and the arguments, 8 bytes each."""
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""The values that the program returns: the call runs; it fails with EPERM; the process ends."""
_EXECUTABLE = 4
"""The bit PROT_EXEC of mmap and mprotect, for memory that holds code."""
_X32 = 0x40000000
"""The bit in the numbers of calls with pointers of 32 bits, on x86_64."""

NAMES = ("poll", "ppoll", "brk", "munmap", "mremap", "madvise", "rt_sigprocmask", "rt_sigreturn", "restart_syscall",
         "setitimer", "futex", "clock_gettime", "getrandom", "exit", "exit_group")
"""The calls that are allowed with all arguments."""


@dataclass(frozen=True)
class InstructionSet:
    """An architecture: the kernel's AUDIT_ARCH_ number of it, and the numbers of its system calls by name."""

    audit: int
    calls: Mapping[str, int]


ARCHITECTURES: Mapping[str, InstructionSet] = {
    "x86_64": InstructionSet(0xC000003E, {
        "read": 0, "write": 1, "mmap": 9, "mprotect": 10, "poll": 7, "ppoll": 271, "brk": 12, "munmap": 11,
        "mremap": 25, "madvise": 28, "rt_sigprocmask": 14, "rt_sigreturn": 15, "restart_syscall": 219,
        "setitimer": 38, "futex": 202, "clock_gettime": 228, "getrandom": 318, "exit": 60, "exit_group": 231}),
    "aarch64": InstructionSet(0xC00000B7, {
        "read": 63, "write": 64, "mmap": 222, "mprotect": 226, "ppoll": 73, "brk": 214, "munmap": 215, "mremap": 216,
        "madvise": 233, "rt_sigprocmask": 135, "rt_sigreturn": 139, "restart_syscall": 128, "setitimer": 103,
        "futex": 98, "clock_gettime": 113, "getrandom": 278, "exit": 93, "exit_group": 94}),
}  # fmt: skip


def program_for(machine: str) -> bytes:
    """Return the filter, 8 bytes an instruction, for a `platform.machine()`; b"" for an unknown machine."""
    if machine not in ARCHITECTURES:
        return b""
    architecture = ARCHITECTURES[machine]
    calls = architecture.calls
    # A condition that does not hold jumps over the instructions of its case to the next case.
    code = [_op(_LOAD, _ARCHITECTURE), *_unless(_EQUAL, architecture.audit, KILL), _op(_LOAD, _NUMBER)]
    if machine == "x86_64":
        code += [_op(_AT_LEAST, _X32, if_false=1), _op(_RETURN, KILL)]
    for name in NAMES:
        if name in calls:
            code += [_op(_EQUAL, calls[name], if_false=1), _op(_RETURN, ALLOW)]
    for name, descriptor in (("read", 0), ("write", 1)):
        code += [_op(_EQUAL, calls[name], if_false=4), _op(_LOAD, _argument(0)),
                 *_unless(_EQUAL, descriptor, REFUSE), _op(_RETURN, ALLOW)]
    for name in ("mmap", "mprotect"):
        code += [_op(_EQUAL, calls[name], if_false=4), _op(_LOAD, _argument(2)),
                 _op(_ANY_BIT, _EXECUTABLE, if_false=1), _op(_RETURN, REFUSE), _op(_RETURN, ALLOW)]
    return b"".join([*code, _op(_RETURN, REFUSE)])


def filter_of_this_machine() -> bytes:
    """Return the filter for this machine; b"" if there is none."""
    return program_for(platform.machine())


def _argument(number: int) -> int:
    """Return the offset of the lower half of an argument: the kernel reads descriptors and protections as 32 bits."""
    return _ARGUMENTS + 8 * number


def _op(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return an instruction of 8 bytes. if_true, if_false: how many instructions a jump skips."""
    return struct.pack("<HBBI", code, if_true, if_false, constant)


def _unless(code: int, constant: int, result: int) -> list[bytes]:
    """Return two instructions that return `result` unless the condition `code` holds with a constant."""
    return [_op(code, constant, if_true=1), _op(_RETURN, result)]
