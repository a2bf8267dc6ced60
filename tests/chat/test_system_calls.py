"""The filter of system calls leaves what a renderer needs, and nothing else: by an interpreter, and in the kernel."""

import errno
import struct

import pytest

from engine import InputError
from engine.base.stop import NEVER
from engine.chat import renderer
from engine.chat.renderer import Renderer
from engine.chat.system_calls import ALLOW, ARCHITECTURES, KILL, NAMES, REFUSE, program_for

from ..tools.chats import DATE
from ..tools.paths import TESTS

READ_ONLY, EXECUTABLE = 1, 5


def interpret(program, number, audit, arguments=(0, 0, 0, 0, 0, 0)):
    """Return what a program of BPF returns for a call, as seccomp(2) defines the machine and its data."""
    data = struct.pack("<iIQ6Q", number if number < 2**31 else number - 2**32, audit, 0, *arguments)
    lines = list(struct.iter_unpack("<HBBI", program))
    accumulator, place = 0, 0
    while True:
        code, if_true, if_false, constant = lines[place]
        place += 1
        if code == 0x20:
            [accumulator] = struct.unpack_from("<I", data, constant)
        elif code == 0x06:
            return constant
        else:
            holds = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: accumulator & constant != 0}
            place += if_true if holds[code] else if_false


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_number(machine):
    architecture, program = ARCHITECTURES[machine], program_for(machine)
    free = {architecture.calls[name] for name in NAMES if name in architecture.calls}
    calls = architecture.calls
    for number in [*range(2000), 2**30 - 1]:
        # Descriptor 7 and memory that holds code are allowed to no call.
        refused = interpret(program, number, architecture.audit, (7, 0, EXECUTABLE, 0, 0, 0))
        assert refused == (ALLOW if number in free else REFUSE), number
        harmless = interpret(program, number, architecture.audit, (0, 0, READ_ONLY, 0, 0, 0))
        allowed = number in free or number in (calls["read"], calls["mmap"], calls["mprotect"])
        assert harmless == (ALLOW if allowed else REFUSE), number
    assert interpret(program, calls["write"], architecture.audit, (1, 0, 0, 0, 0, 0)) == ALLOW
    assert interpret(program, calls["read"], architecture.audit, (1, 0, 0, 0, 0, 0)) == REFUSE
    assert all(interpret(program, calls["write"], architecture.audit, (fd, 0, 0, 0, 0, 0)) == REFUSE
               for fd in (0, 2, 3, 2**32 - 1))


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_other_architectures_and_x32(machine):
    architecture, program = ARCHITECTURES[machine], program_for(machine)
    foreign = [0x40000003, 0x40000028, 0xC000003E, 0xC00000B7, 0xC00000F3, 0]      # i386, ARM, x86_64, AArch64, RISC-V
    for audit in foreign:
        if audit != architecture.audit:
            assert {interpret(program, number, audit) for number in range(500)} == {KILL}
    x32 = {interpret(program, 0x40000000 + number, architecture.audit) for number in [*range(600), 2**31]}
    assert x32 == ({KILL} if machine == "x86_64" else {REFUSE})


def test_a_program_ends_and_other_machines_have_none():
    assert program_for("riscv64") == program_for("") == b""
    for machine in ARCHITECTURES:
        lines = list(struct.iter_unpack("<HBBI", program_for(machine)))
        assert len(lines) < 4096
        assert all(i + 1 + max(if_true, if_false) < len(lines) for i, (code, if_true, if_false, _) in enumerate(lines)
                   if code not in (0x20, 0x06))


@pytest.fixture(scope="module")
def unsandboxed():
    before, renderer.SCRIPT = renderer.SCRIPT, TESTS / "tools" / "unsandboxed.py"
    made = Renderer()
    try:
        made.render("a", {}, DATE, NEVER)
    finally:
        renderer.SCRIPT = before
    yield made
    made.close()


ATTEMPTS = {
    "read a file": "{{ open('/etc/passwd').read() }}",
    "write a file": "{{ open('/tmp/a', 'w') }}",
    "list a folder": "{{ os.listdir('/') }}",
    "remove a file": "{{ os.unlink('/tmp/a') }}",
    "make a folder": "{{ os.mkdir('/tmp/a') }}",
    "look at a file": "{{ os.stat('/etc/passwd') }}",
    "open by a number": "{{ os.dup(0) }}",
    "make a pipe": "{{ os.pipe() }}",
    "make a socket": "{{ socket.socket() }}",
    "make a pair of sockets": "{{ socket.socketpair() }}",
    "start a process": "{{ subprocess.run(['/bin/true']) }}",
    "start a program": "{{ os.execv('/bin/true', ['true']) }}",
    "fork": "{{ os.fork() }}",
    "run a command": "{{ os.posix_spawn('/bin/true', ['true'], {}) }}",
    "write to standard error": "{{ os.write(2, 'a'.encode()) }}",
    "write to the pipe of requests": "{{ os.write(0, 'a'.encode()) }}",
    "write beside the pipe": "{{ os.write(3, 'a'.encode()) }}",
    "read the pipe of answers": "{{ os.read(1, 1) }}",
    "end the parent": "{{ os.kill(os.getppid(), 9) }}",
    "end itself by a signal": "{{ os.kill(os.getpid(), 9) }}",
    "raise a limit": "{{ resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9)) }}",
    "hold memory with code": "{{ mmap.mmap(-1, 4096, prot=7) }}",
    "lock memory": "{% if libc.mlockall(3) %}{{ 1 / 0 }}{% endif %}",
    "trace the parent": "{% if libc.ptrace(16, os.getppid(), 0, 0) %}{{ 1 / 0 }}{% endif %}",
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_what_somebody_can_do_who_escaped(unsandboxed, what):
    with pytest.raises(InputError, match=f"Operation not permitted|Errno {errno.EPERM}|not allowed|division by zero"):
        unsandboxed.render(ATTEMPTS[what], {}, DATE, NEVER)
    assert unsandboxed.render("{{ 1 + 1 }}{{ os.environ|dictsort }}", {}, DATE, NEVER) == (
        "2[('LC_ALL', 'C.UTF-8'), ('TZ', 'UTC0')]")
