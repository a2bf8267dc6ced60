"""The life of the process that renders: it starts late, ends early, and is replaced; nothing of it is left.

    ENGINE_CHAT=long python -m pytest tests/chat/test_renderer.py

renders 10,000 times while the process is killed 200 times and this one forks 50 times.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError

import pytest

from engine import Cancelled, EngineError, InputError, TimedOut, UnsupportedError
from engine.base.stop import NEVER, Stop
from engine.chat import render, renderer
from engine.chat.renderer import Renderer

from ..tools.chats import DATE
from ..tools.interrupts import interruptible
from ..tools.limited import outcome
from ..tools.threads import begin, together, wait_for

LONG = os.environ.get("ENGINE_CHAT") == "long"
RENDERS, KILLS, FORKS = (10_000, 200, 50) if LONG else (60, 2, 1)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def one():
    made = Renderer()
    yield made
    made.close()


def rendered(one, number=1, stop=NEVER):
    return one.render("{{ n }} and {{ n + 1 }}", {"n": number}, DATE, stop)


def is_running(process_id):
    """Return whether there is a process, that is more than an entry for its parent to read."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(process_id):
    wait_for(lambda: not is_running(process_id))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_short_text_waits_for_no_long_one(one):
    stop = Stop()
    with ThreadPoolExecutor() as pool:
        long = pool.submit(one.render, ENDLESS, {"a": "a" * (renderer.LONG_BYTES + 1)}, DATE, stop)
        wait_for(lambda: one._long.process is not None and one._long.process._number)
        assert rendered(one) == "1 and 2"
        assert not long.done()
        stop.cancelled = True
        with pytest.raises(Cancelled):
            long.result()


def test_it_starts_at_the_first_text_and_ends_at_close():
    before, one = descriptors(), Renderer()
    assert one.process_id is None
    assert rendered(one) == "1 and 2"
    process_id = one.process_id
    assert sorted(os.listdir(f"/proc/{process_id}/fd")) == ["0", "1"]
    assert os.getsid(process_id) == process_id
    one.close()
    assert not os.path.exists(f"/proc/{process_id}")
    assert rendered(one) == "1 and 2"
    assert one.process_id != process_id
    process_id = one.process_id
    del one         # as a model that nobody has any more
    assert not os.path.exists(f"/proc/{process_id}")
    assert descriptors() == before


def test_it_ends_when_it_is_idle_and_the_next_call_starts_another():
    one = Renderer(idle_seconds=0.05)
    for number in range(2):
        assert rendered(one, number) == f"{number} and {number + 1}"
        process_id = one.process_id
        wait_for_end(process_id)
    other = Renderer()
    rendered(other)
    assert not os.path.exists(f"/proc/{process_id}")        # nor does an entry of it stay
    other.close()
    one.close()


def test_a_process_that_leaves_at_the_wrong_moment_is_asked_again(monkeypatch):
    """The process says that it leaves while the request is on its way."""
    one = Renderer(idle_seconds=0.05)
    assert rendered(one) == "1 and 2"
    wait_for_end(one.process_id)
    waits = renderer._Process.waits
    looks = iter([True])        # as if it had been there when it was looked at
    monkeypatch.setattr(renderer._Process, "waits",
                        property(lambda process: next(looks, None) or waits.fget(process)))
    assert rendered(one, 5) == "5 and 6"
    one.close()


@pytest.mark.parametrize("forks", [False, True])
def test_it_ends_with_its_parent(forks):
    """Also if a forked child of the parent lives on, which is ended with the group here."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        with suppress(BaseException):
            os.setsid()
            one = Renderer()
            rendered(one)
            os.write(writing, b"%d\n" % one.process_id)
            if forks and os.fork() == 0:
                time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    try:
        with open(reading, encoding="ascii") as file:
            process_id = int(file.readline())
        os.waitpid(parent, 0)
        wait_for_end(process_id)
    finally:
        if forks:
            os.killpg(parent, signal.SIGKILL)


def test_a_forked_child_starts_its_own(one):
    assert rendered(one) == "1 and 2"
    process_id = one.process_id

    def in_child():
        assert one.process_id == process_id
        text = rendered(one, 3)
        return text, one.process_id != process_id, sorted(map(os.path.isdir, [f"/proc/{one.process_id}"]))

    assert outcome(in_child) == "ok: ('3 and 4', True, [True])"
    assert rendered(one, 7) == "7 and 8"
    assert one.process_id == process_id


def test_a_fork_while_another_thread_asks(one):
    """The child has no half of an answer, and the call of the parent goes on."""
    rendered(one)
    process_id = one.process_id
    with ThreadPoolExecutor(1) as pool:
        slow = "{% for i in range(60000) %}{% if i == 59999 %}b{% endif %}{% endfor %}" * 10
        long = pool.submit(one.render, slow, {}, DATE, NEVER)
        assert outcome(lambda: rendered(one, 3)) == "ok: '3 and 4'"
        assert long.result() == "b" * 10
    assert one.process_id == process_id


def test_several_threads(one):
    def work(number):
        return [rendered(one, number + 100 * i) for i in range(10)]

    found = together([partial(work, number) for number in range(8)])
    assert found == [[f"{n + 100 * i} and {n + 100 * i + 1}" for i in range(10)] for n in range(8)]


def test_a_killed_process_is_replaced(one):
    rendered(one)
    os.kill(one.process_id, signal.SIGKILL)
    wait_for_end(one.process_id)
    assert rendered(one, 2) == "2 and 3"
    killer = threading.Timer(0.05, lambda: os.kill(one.process_id, signal.SIGKILL))
    killer.start()
    with pytest.raises(EngineError, match=r"ended from outside .SIGKILL.; the next call starts another"):
        one.render(ENDLESS, {}, DATE, NEVER)
    killer.join()
    assert rendered(one, 4) == "4 and 5"


def test_close_while_another_thread_asks(one):
    rendered(one)
    closer = threading.Timer(0.05, one.close)
    closer.start()
    with pytest.raises(EngineError, match="ended while it worked"):
        one.render(ENDLESS, {}, DATE, NEVER)
    closer.join()


def test_time_and_cancellation_and_interrupts(one):
    with pytest.raises(TimedOut):
        one.render(ENDLESS, {}, DATE, Stop.after(0.05))
    assert rendered(one) == "1 and 2"
    with interruptible():
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            one.render(ENDLESS, {}, DATE, NEVER)
    assert rendered(one) == "1 and 2"


def test_the_end_of_the_cpu_time():
    """Also where this process ignores the signal, or holds it back."""
    one, handler = Renderer(seconds=0.1), signal.signal(signal.SIGPROF, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        with pytest.raises(InputError, match=r"does not end within 0\.1 s of CPU time"):
            one.render(ENDLESS, {}, DATE, NEVER)
    finally:
        signal.signal(signal.SIGPROF, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    one.close()


def test_the_end_of_the_cpu_time_where_nobody_knows_how_a_process_ended():
    """The system reaps children of a process that ignores SIGCHLD, and subprocess says that they ended with 0."""
    one, handler = Renderer(seconds=0.1), signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert rendered(one) == "1 and 2"
        with pytest.raises(InputError, match=r"does not end within 0\.1 s of CPU time"):
            one.render(ENDLESS, {}, DATE, NEVER)
        assert rendered(one, 2) == "2 and 3"
        one.close()
        slow = Renderer(seconds=30)
        rendered(slow)
        killer = threading.Timer(0.05, lambda: os.kill(slow.process_id, signal.SIGKILL))
        killer.start()
        with pytest.raises(EngineError, match="or an unknown one, as where this process ignores SIGCHLD"):
            slow.render(ENDLESS, {}, DATE, NEVER)
        killer.join()
        slow.close()
    finally:
        signal.signal(signal.SIGCHLD, handler)


def test_without_a_filter_a_template_has_to_be_trusted(monkeypatch):
    monkeypatch.setattr(renderer, "filter_of_this_machine", lambda: b"")
    one = Renderer()
    with pytest.raises(UnsupportedError, match=r"no filter of system calls .*say trust_template=True"):
        rendered(one)
    assert one.render("{{ 1 + 1 }}", {}, DATE, NEVER, trusted=True) == "2"
    one.close()


def test_a_program_that_the_kernel_refuses_is_none(monkeypatch):
    monkeypatch.setattr(renderer, "filter_of_this_machine", lambda: bytes(8))
    one = Renderer()
    with pytest.raises(UnsupportedError, match=r"no filter of system calls .Invalid argument"):
        rendered(one)
    one.close()


def test_without_jinja(monkeypatch):
    renderer._folders_of_jinja.cache_clear()
    monkeypatch.setattr(renderer, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"needs the package jinja2; run pip install '\.\[chat\]'"):
        rendered(Renderer())
    monkeypatch.undo()
    monkeypatch.setattr(renderer, "version", lambda name: "3.1.5")
    with pytest.raises(UnsupportedError, match=r"jinja2 3\.1\.6 or newer, and 3\.1\.5 is installed"):
        rendered(Renderer())
    renderer._folders_of_jinja.cache_clear()


def test_jinja_in_a_zip_file(monkeypatch, tmp_path):
    """It has nothing that pip writes beside a package, and so no version there."""
    name = tmp_path / "packages.zip"
    with zipfile.ZipFile(name, "w") as packed:
        for package in ("jinja2", "markupsafe"):
            packed.writestr(f"{package}/__init__.py", "")

    def no_version(name):
        raise PackageNotFoundError

    monkeypatch.setattr(renderer, "version", no_version)
    monkeypatch.setattr(renderer, "find_spec", partial(PathFinder.find_spec, path=[str(name)]))
    renderer._folders_of_jinja.cache_clear()
    try:
        assert renderer._folders_of_jinja() == [str(name)]
    finally:
        renderer._folders_of_jinja.cache_clear()


@pytest.mark.parametrize("executable", ["/no/such/python", "/bin/true"])
def test_a_python_that_does_not_start(monkeypatch, executable):
    before = descriptors()
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(EngineError, match=r"cannot start|does not start.*sys.executable must be a Python"):
        rendered(Renderer())
    assert descriptors() == before


@pytest.mark.parametrize("changes", [{"executable": None}, {"executable": ""}, {"frozen": True}])
def test_a_program_that_has_python_inside(monkeypatch, changes):
    """Its file would be started in place of a Python, and would chat again."""
    for name, value in changes.items():
        monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(UnsupportedError, match=r"set sys\.executable to a Python"):
        rendered(Renderer())


def test_why_it_does_not_start(monkeypatch, tmp_path):
    """Here because there is no /proc."""
    script = tmp_path / "script.py"
    script.write_text(renderer.SCRIPT.read_text().replace("/proc/self/statm", "/proc/no/such"))
    monkeypatch.setattr(renderer, "SCRIPT", script)
    with pytest.raises(EngineError, match=r"does not start: FileNotFoundError.*/proc/no/such"):
        rendered(Renderer())


def test_a_process_that_somebody_took_over_cannot_harm_its_parent(monkeypatch, tmp_path):
    """It announces a long answer, answers another request, or closes its pipe."""
    for answer, error in (("struct.pack('<IQB', 2**31, n, 1)", "announces an answer"), ("b''", "exit status 0")):
        script = tmp_path / "script.py"
        script.write_text("import os, struct\nos.write(1, struct.pack('<IQB', 0, 0, 0))\n"
                          "size, n = struct.unpack('<IQ', os.read(0, 12))\n"
                          f"os.write(1, struct.pack('<IQB', 1, n + 1, 1) + b'a' + {answer})\n")
        monkeypatch.setattr(renderer, "SCRIPT", script)
        one = Renderer()
        with pytest.raises(EngineError, match=error):
            rendered(one)
        one.close()


def test_a_template_is_compiled_once(monkeypatch):
    templates = render.Templates()
    compiled, whole = [], templates._environment.from_string
    monkeypatch.setattr(templates._environment, "from_string", lambda text: compiled.append(text) or whole(text))
    for i in range(3):
        request = {"template": "{{ n }}", "values": {"n": i}, "date": [2000, 1, 1]}
        assert templates.answer(request) == (render.TEXT, str(i))
    assert compiled == ["{{ n }}"]
    for i in range(30):
        templates.answer({"template": f"a{i}", "values": {}, "date": [2000, 1, 1]})
    assert len(templates._compiled) == 8


def test_what_templates_leave_is_no_memory_of_the_next(one):
    """Such as a value that holds itself."""
    template = "{% set ns = namespace(b='a' * n) %}{% set ns.a = ns %}{{ ns.b|length }}"
    for _ in range(3):
        assert one.render(template, {"n": 100_000_000}, DATE, NEVER) == "100000000"


def test_kills_and_forks_at_any_moment(one, monkeypatch):
    """Each call gives the right text or a clear error, and nothing is left."""
    before, rng, started = descriptors(), random.Random(5), []
    start = subprocess.Popen

    def noted(*args, **options):
        started.append(start(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    rendered(one)
    moments = dict.fromkeys(rng.sample(range(RENDERS), KILLS), "kill") | dict.fromkeys(
        rng.sample(range(RENDERS), FORKS), "fork")
    texts, errors = 0, []

    def kill(process_id, delay):
        time.sleep(delay)
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)

    for number in range(RENDERS):
        killer = None
        if moments.get(number) == "kill":
            killer = begin(partial(kill, one.process_id, rng.random() * 0.002))
        elif moments.get(number) == "fork":
            assert outcome(lambda n=number: rendered(one, n), seconds=30) == f"ok: '{number} and {number + 1}'"
        try:
            assert rendered(one, number) == f"{number} and {number + 1}"
            texts += 1
        except EngineError as error:
            errors.append(str(error))
        if killer is not None:
            killer.result()
    assert texts + len(errors) == RENDERS
    assert len(errors) <= KILLS
    assert all("ended from outside" in error for error in errors)
    one.close()
    assert descriptors() == before
    assert len(started) > KILLS
    for process in started:
        with pytest.raises(ChildProcessError):      # it is no child any more, not even an ended one
            os.waitpid(process.pid, os.WNOHANG)
