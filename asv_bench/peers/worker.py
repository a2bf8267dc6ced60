"""Run one library in one precision in a separate process, which stays alive between its turns."""

import os
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from .libraries import LIBRARIES, encoder
from .machine import LIFTED, environment
from .work import TEXT, inputs, sentences

PATIENCE = 1800.0
"""Seconds after which a process that does not answer is stopped; compiling a model takes minutes."""


class Failed(Exception):
    """A library failed; the message is its own."""


class Child:
    """Calls the methods of an object in another process: `child.call("time", "1x16", 3)`."""

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...], environment: dict[str, str]):
        """make: a function or class of a module that makes the object, there, of `arguments`."""
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, make, arguments), daemon=True)
        with variables(environment):
            self.process.start()
        other.close()

    def call(self, method: str, *arguments):
        """Return the method's result; raises `Failed` with its error, or with the exit status of the process."""
        try:
            self.connection.send((method, arguments))
            if not self.connection.poll(PATIENCE):
                self.process.kill()
                raise Failed(f"no answer in {PATIENCE / 60:.0f} minutes")
            ok, result = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            raise Failed(f"its process ended with status {self.process.exitcode}") from None
        if not ok:
            raise Failed(result)
        return result

    def close(self):
        self.connection.close()
        self.process.join(10)
        self.process.kill()
        self.process.join()


class Worker(Child):
    """Calls the methods of `Bench` in another process."""

    def __init__(self, name: str, precision: str, folder: Path, threads: int):
        super().__init__(Bench, (name, precision, folder, threads), environment(name, threads, folder.parent))


@contextmanager
def variables(values: dict[str, str]):
    """Set environment variables for processes that start within the block."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def serve(connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Answer calls until the other end closes."""
    served = make(*arguments)
    while True:
        try:
            method, given = connection.recv()
        except EOFError:
            return
        try:
            reply = True, getattr(served, method)(*given)
        except Exception as error:
            reply = False, f"{type(error).__name__}: {error}".strip().splitlines()[0]
        connection.send(reply)


class Bench:
    """One library, which runs cases."""

    def __init__(self, name: str, precision: str, folder: Path, threads: int):
        self.kind = LIBRARIES[name.removesuffix(LIFTED)]
        self.precision, self.folder, self.threads = precision, folder, threads

    def prepare(self) -> None:
        """Write the library's files."""
        if hasattr(self.kind, "prepare"):
            self.kind.prepare(self.folder)

    def load(self) -> None:
        """Load the model."""
        self.library = self.kind(self.folder, self.precision, self.threads)

    def first(self, case: str):
        """Run the case once and return the vectors."""
        return self.work(case)()

    def time(self, case: str, calls: int) -> list[float]:
        """Return the seconds of each of `calls` calls, after one that is not counted; then wait for idle threads."""
        run = self.work(case)
        run()
        times = []
        for _ in range(calls):
            start = perf_counter()
            run()
            times.append(perf_counter() - start)
        settle()
        return times

    def peak(self) -> dict[str, float]:
        """What the machine can do at most, as the engine measures it: 10^9 operations a second in each precision."""
        from engine.backends.peak import measure_rate
        from engine.model.precision import COMPUTED

        return {precision: measure_rate(self.threads, precision, repeats=1) for precision in COMPUTED}

    def work(self, case: str):
        """Return the case as a function without arguments."""
        if case == TEXT:
            encode, texts = encoder(self.library, self.folder), sentences()
            return lambda: encode(texts)
        ids, mask = inputs(case)
        return lambda: self.library.forward(ids, mask)


def settle() -> None:
    """Wait, at most one second, until no thread of this process spins: until 50 ms pass without CPU time."""
    for _ in range(20):
        before = process_time()
        sleep(0.05)
        if process_time() - before < 0.001:
            return
