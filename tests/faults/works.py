"""The pieces of work that faults are put into: engines, plans, operations, model files and commands."""

import contextlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from engine import Engine, ops
from engine.base.errors import EngineError
from engine.cli import main as cli
from engine.model.config import ModelConfig
from tests.faults.run import Work
from tests.tools.model_files import st_folder
from tests.tools.plans import make_batch, make_plan, make_weights
from tests.tools.tiny_models import random_model
from tests.tools.tiny_text import tiny_text

from ..tools.encoders import engine_of, load_encoder, save_encoder

FILES = ("mmap", "madvise", "open", "read", "write", "fsync", "rename")
TEXTS = ["the cat sat on a mat", "", "far and away"]


def works(folder: Path) -> Iterator[Work]:
    """Write model files into a folder, and yield the work to do with them."""
    text = tiny_text()
    npz, home = folder / "m.npz", st_folder(folder / "st", "Transformer", "Pooling", "Normalize")
    save_encoder(random_model(text, num_layers=1), npz)
    (home / "tokenizer.json").write_bytes(text.tokenizer_json)
    for precision in ("float32", "bfloat16", "int8"):
        yield Work(f"an engine in {precision}", ("malloc", "mmap", "madvise"), partial(_engine, npz, precision))
    yield Work("a plan on three threads", ("malloc", "mmap", "pthread_create"), _plan)
    for name, operation in _operations().items():
        yield Work(name, ("malloc",), lambda operation=operation: operation().tobytes())
    for path in (npz, home):
        for memory in ("map", "copy"):
            yield Work(f"load {path.name} with memory={memory}", FILES, partial(_load, path, memory))
    (folder / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
    yield _command(folder, "convert", str(home), out="out.npz")
    for suffix in (".npy", ".csv"):
        yield _command(folder, "encode", str(npz), str(folder / "texts"), "--threads", "1", "-o", out=f"out{suffix}")


def _engine(path: Path, precision: str) -> bytes:
    engine = Engine.load(path, threads=1, precision=precision)
    tokens = engine.forward([[1, 2, 3], [], [4] * 12])
    return b"".join(row.tobytes() for row in tokens) + engine.encode(TEXTS).tobytes()


CONFIG = ModelConfig("test", hidden_size=20, num_layers=1, num_heads=2, head_width=10, ffn_size=24, vocab_size=50,
                     max_positions=140)
WEIGHTS = make_weights(CONFIG)
BATCH = make_batch(CONFIG, [90, 3, 64])


def _plan() -> bytes:
    plan = make_plan(CONFIG, WEIGHTS, threads=3)
    return plan.forward(BATCH).tobytes()


def _operations() -> dict[str, Callable[[], np.ndarray]]:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 2, 70, 8), np.float32)
    x, w = rng.standard_normal((9, 20), np.float32), rng.standard_normal((21, 20), np.float32)
    bias, mask = rng.standard_normal((70, 70), np.float32), rng.random((70, 70)) < 0.9
    options = {"backend": "cython", "threads": 1}
    return {
        "attention": lambda: ops.attention(q, k, v, bias=bias, mask=mask, causal=True, **options),
        "linear": lambda: ops.linear(x, w, w[:, 0].copy(), activation="gelu", **options),
        "layer_norm": lambda: ops.layer_norm(x, w[0], **options),
        "rms_norm": lambda: ops.rms_norm(x, **options),
        "softmax": lambda: ops.softmax(x, **options),
        "silu": lambda: ops.silu(x, **options),
        "rotary": lambda: ops.rotary(q, **options),
    }


def _load(path: Path, memory: str) -> bytes:
    model = load_encoder(path, memory=memory)
    return engine_of(model, threads=1).forward([[1, 2, 3]])[0].tobytes()


def _command(folder: Path, *arguments: str, out: str) -> Work:
    """Return the work of a command of `engine` that replaces a file in a folder of its own."""
    place = folder / f"replace {out}"
    place.mkdir()
    path = place / out
    run_command([*arguments, str(path)])
    new, old = path.read_bytes(), b"the old file"

    def leftover(ended: bool) -> str:
        names = [file.name for file in place.iterdir() if file.name != out]
        if names:
            return f"left {names}"
        found = path.read_bytes()
        return "" if found == new or (found == old and not ended) else "the output is neither the old file nor the new"

    return Work(f"engine {arguments[0]} to {path.suffix}", FILES, lambda: run_command([*arguments, str(path)]),
                lambda: path.write_bytes(old), leftover)


def run_command(arguments: list[str]) -> None:
    """Run the command line; raises `EngineError` with what it printed as its error."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = cli.main(arguments)
    message = errors.getvalue()
    if status == 1 and message.startswith(f"engine {arguments[0]}: ") and message.count("\n") == 1:
        raise EngineError(message)
    if status or message:
        raise RuntimeError(f"status {status}: {message}")
