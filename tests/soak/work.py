"""What the threads of the soak test do, and the bits that they expect."""

import faulthandler
import math
import os
import pickle
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Engine, ops
from engine.base.errors import EngineError, InputError, TimedOut, WeightsError
from tests.soak.generation import Generation, Speech
from tests.tools.plans import SMALL, WEIGHTS, make_batch, make_plan
from tests.tools.tiny_models import random_model
from tests.tools.tiny_text import VOCABULARY, tiny_text

from ..tools.encoders import convert_encoder, load_encoder, save_encoder

SLOTS = 8
"""Engines that live at a time."""
CHILD_SECONDS = 300
"""A child that takes longer prints where it waits, and fails. Far more than it needs, for a busy machine."""

SENTENCES: list[Any] = [
    "the cat sat on a mat", "", "a dog ran far and away", "cat", "nothing known", ("the dog", "a mat"),
    "the dog ran on the cat " * 12, "a " * 3000, ("the cat " * 40, "on"),
]  # fmt: skip


class Source(NamedTuple):
    """A way to load a model."""

    path: Path
    backend: str
    precision: str | None


class WrongBits(AssertionError):
    """A result differs from what was computed at the beginning."""


def same(found: np.ndarray, expected: np.ndarray, what: object) -> None:
    """Raise `WrongBits` unless two float32 arrays are equal, bit for bit."""
    if found.shape != expected.shape or found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        raise WrongBits(f"{what}: {found.shape} and {expected.shape} differ")


def softened(score: float, b: int, h: int, q_index: int, kv_index: int, slope: float) -> float:
    """Lower the score of a distant key, as a score function of a user does."""
    return score - slope * abs(q_index - kv_index)


class World:
    """Model files, inputs, and the results of each alone and on one thread."""

    def __init__(self, folder: Path, seed: int, numba: bool):
        self.folder = folder
        self.one_child = threading.Lock()
        """Held while there is a child, which shares the pages of this process: to count them makes no sense then."""
        self.numba = numba and find_spec("numba") is not None
        rng = np.random.default_rng(seed)
        self.sources = self._sources()
        lengths = [0, 1, 2, 7, 31, 64, 65, 100, 129, 200]
        self.sequences = [rng.integers(0, len(VOCABULARY), length) for length in lengths]
        self.vectors: dict[Source, list[np.ndarray]] = {}
        self.encoded: dict[Source, list[np.ndarray]] = {}
        for source in self.sources:
            engine = Engine.load(source.path, backend=source.backend, precision=source.precision, threads=1)
            self.vectors[source] = [np.asarray(engine.forward([ids])[0]).copy() for ids in self.sequences]
            self.encoded[source] = [] if engine.text is None else [engine.encode([text])[0] for text in SENTENCES]
        self.calls = [(call, call(threads=1)) for call in self._calls(rng)]
        backends = ["cython", "numba"] if self.numba else ["cython"]
        self.generation, self.speech = Generation(backends), Speech(backends)
        self.batch = make_batch(SMALL, [70, 30, 64, 5, 140, 140, 1])
        self.plan_result = make_plan(SMALL, WEIGHTS).forward(self.batch)
        self.damaged = folder / "damaged.npz"
        data = self.sources[0].path.read_bytes()
        self.damaged.write_bytes(data[: len(data) // 2])

    def _sources(self) -> list[Source]:
        text = tiny_text(prompts={"q": "query: "}, max_seq_length=40, pooling=("cls", "mean"), normalize=True)
        sizes = {"num_layers": 2, "vocab_size": 30, "max_positions": 512}
        words = random_model(text, hidden_size=96, num_heads=6, head_width=16, ffn_size=200, **sizes)
        gated = random_model(seed=1, hidden_size=80, num_heads=4, head_width=20, num_kv_heads=2, ffn_size=130,
                             norm="rms", norm_place="pre", gated=True, activation="silu", **sizes)  # fmt: skip
        files = {name: self.folder / f"{name}.npz" for name in ("words", "gated", "words-int8")}
        save_encoder(words, files["words"])
        save_encoder(gated, files["gated"])
        save_encoder(convert_encoder(words, "int8"), files["words-int8"])
        backends = ["cython", "numba"] if self.numba else ["cython"]
        choices = [("words", None), ("words", "bfloat16"), ("words-int8", None), ("gated", None), ("gated", "int8"),
                   ("gated", "int4")]
        return [Source(files[name], backend, precision) for backend in backends for name, precision in choices]

    def _calls(self, rng: np.random.Generator) -> list[Callable[..., np.ndarray]]:
        q, k, v = rng.standard_normal((3, 2, 4, 90, 24), np.float32)
        x, weight = rng.standard_normal((40, 96), np.float32), rng.standard_normal((130, 96), np.float32)
        calls: list[Callable[..., np.ndarray]] = [
            partial(ops.attention, q, k, v, causal=True, window=(20, None)),
            partial(ops.attention, q, k[:, :2], v[:, :2], softcap=30.0, kv_lengths=np.array([90, 33])),
            partial(ops.linear, x, weight, activation="gelu"),
            partial(ops.layer_norm, x),
            partial(ops.softmax, x),
            partial(ops.rotary, q),
        ]
        if self.numba:
            calls.append(partial(ops.attention, q, k, v, score_mod=partial(softened, slope=0.01)))
        return calls


class Worker:
    """One thread's actions, chosen at random."""

    def __init__(self, world: World, engines: list[tuple[Engine, Source]], rng: random.Random):
        self._world, self._engines, self._rng = world, engines, rng
        self.actions: dict[Callable[[], None], int] = {
            self.forward: 30, self.padded: 6, self.encode: 12, self.single: 12, self.plan: 3, self.load: 8,
            self.generate: 12, self.stream: 6, self.session: 4, self.transcribe: 1, self.unpickle: 2, self.convert: 2,
            self.time_out: 5, self.refuse: 3, self.fork: 1,
        }  # fmt: skip

    def step(self) -> str:
        """Do something, and return its name."""
        action = self._rng.choices(list(self.actions), list(self.actions.values()))[0]
        action()
        return action.__name__

    def forward(self) -> None:
        engine, source = self._rng.choice(self._engines)
        chosen, batch = self._ragged(self._rng.randrange(12))
        self._compare(source, chosen, engine.forward(batch))

    def padded(self) -> None:
        engine, source = self._rng.choice(self._engines)
        chosen, rows = self._ragged(4)
        width = max(map(len, rows), default=0)
        ids, mask = np.zeros((2, len(rows), width), np.int64)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        out = engine.forward(ids, mask)
        self._compare(source, chosen, [out[row, : len(tokens)] for row, tokens in enumerate(rows)])

    def encode(self) -> None:
        engine, source = self._rng.choice(self._engines)
        if engine.text is None:
            return
        chosen = [self._rng.randrange(len(SENTENCES)) for _ in range(self._rng.randrange(1, 16))]
        rows = engine.encode([SENTENCES[i] for i in chosen], batch_size=self._rng.choice([None, 1, 3]))
        for i, row in zip(chosen, rows, strict=True):
            same(row, self._world.encoded[source][i], ("encode", source, i))

    def single(self) -> None:
        """Call a single operation."""
        call, expected = self._rng.choice(self._world.calls)
        same(call(threads=self._rng.choice([None, 1, 2])), expected, call)

    def plan(self) -> None:
        """Run a plan of its own, on more threads than an engine would use."""
        plan = make_plan(SMALL, WEIGHTS, self._rng.randrange(1, 6))
        same(plan.forward(self._world.batch), self._world.plan_result, "plan")

    def generate(self) -> None:
        self._world.generation.run(self._rng)

    def stream(self) -> None:
        self._world.generation.stream(self._rng)

    def session(self) -> None:
        self._world.generation.session(self._rng)

    def transcribe(self) -> None:
        self._world.speech.run(self._rng)

    def load(self) -> None:
        """Load an engine in the place of another one, which ends with its last call."""
        source = self._rng.choice(self._world.sources)
        self._engines[self._rng.randrange(len(self._engines))] = (self.loaded(source), source)

    def loaded(self, source: Source) -> Engine:
        """Return a new engine, with random options that do not change a bit."""
        return Engine.load(source.path, backend=source.backend, precision=source.precision,
                           threads=self._rng.choice([None, 1, 2]), max_batch_tokens=self._rng.choice([512, 2048]),
                           memory=self._rng.choice(["map", "copy"]))  # fmt: skip

    def unpickle(self) -> None:
        engine, source = self._rng.choice(self._engines)
        chosen, batch = self._ragged(3)
        self._compare(source, chosen, pickle.loads(pickle.dumps(engine)).forward(batch))

    def convert(self) -> None:
        """Write a model file, load it, and remove it."""
        source = self._rng.choice([one for one in self._world.sources if one.precision is None])
        path = self._world.folder / f"{self._rng.getrandbits(64):x}.npz"
        save_encoder(load_encoder(source.path), path)
        engine = Engine.load(path, backend=source.backend)
        chosen, batch = self._ragged(3)
        self._compare(source, chosen, engine.forward(batch))
        path.unlink()

    def time_out(self) -> None:
        engine, source = self._rng.choice(self._engines)
        chosen, batch = self._ragged(60)
        with suppress(TimedOut):
            self._compare(source, chosen, engine.forward(batch, timeout=self._rng.choice([1e-5, 1e-3, 1e-2, 60.0])))

    def refuse(self) -> None:
        """Pass what is wrong, and expect the error."""
        engine, _ = self._rng.choice(self._engines)
        for error, call in ((InputError, partial(engine.forward, [[10**6]])), (InputError, partial(engine.encode, [3])),
                            (WeightsError, partial(Engine.load, self._world.damaged)),
                            (InputError, partial(ops.softmax, "x"))):  # fmt: skip
            try:
                call()
            except error:
                continue
            except EngineError as other:
                if engine.text is not None or "tokenizer" not in str(other):
                    raise
                continue
            raise AssertionError(f"{call} raised no {error.__name__}")

    def fork(self) -> None:
        """Compute in a child while the other threads of this process hold what they hold."""
        with self._world.one_child:
            self._fork()

    def _fork(self) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # Not dump_traceback_later: in a child it waits for the watching thread of the parent.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                faulthandler.enable(file=sys.__stderr__)
                faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
                signal.alarm(CHILD_SECONDS)
                for action in (self.forward, self.encode, self.single, self.plan, self.generate, self.load):
                    action()
                status = 0
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            finally:
                sys.__stderr__.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            raise AssertionError(f"a forked child ended with status {status}")

    def interrupt(self) -> str:
        """Be interrupted in a call, as by Ctrl-C; only the main thread can be."""
        engine, source = self._rng.choice(self._engines)
        chosen, batch = self._ragged(self._rng.randrange(100))
        generation = self._world.generation
        call = self._rng.choice([lambda: self._compare(source, chosen, engine.forward(batch)),
                                 lambda: generation.run(self._rng), lambda: generation.stream(self._rng)])
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, math.exp(self._rng.uniform(-9, -3)))
            try:
                call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(3):  # Python runs a handler that is due before it repeats a loop
                pass
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            signal.signal(signal.SIGALRM, before)
        return "not interrupted"

    def _ragged(self, most: int) -> tuple[list[int], list[np.ndarray]]:
        """Return at least one of the sequences, up to `most`, with their numbers."""
        chosen = [self._rng.randrange(len(self._world.sequences)) for _ in range(max(1, most))]
        return chosen, [self._world.sequences[i] for i in chosen]

    def _compare(self, source: Source, chosen: list[int], rows: Any) -> None:
        for i, row in zip(chosen, rows, strict=True):
            same(row, self._world.vectors[source][i], ("forward", source, i))
