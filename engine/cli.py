"""Implement the `engine` command: one function for each subcommand, and its options in `_parser`."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import IO

import numpy as np

from . import __version__
from .architectures import programs_of
from .backends import BACKENDS, Backend, get_backend
from .compare import compare_precision, parse_data
from .cpus import cpu_limits
from .engine import Engine
from .errors import EngineError, InputError
from .generating_cli import add_settings
from .generating_cli import run as run_generator
from .model import Model, load_model, save_model
from .outline import outline
from .parameters import expected_shapes, parameters_of
from .precision import COMPUTED, PRECISIONS, STORED, canonical_name
from .quantize import convert_model
from .sequences import load_sequence_model, save_sequence_model
from .transcribing_cli import add_options as add_transcription
from .transcribing_cli import run as transcribe
from .weights.output import replacing

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C, by which shells stop a script."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after an error, or `INTERRUPTED`; stderr says why."""
    args = _parser().parse_args(arguments)
    try:
        args.run(args)
    except BrokenPipeError:
        # The reader of standard output has gone, as `head` does. Python would fail again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (EngineError, OSError) as error:
        print(f"engine {args.command}: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"engine {args.command}: out of memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"engine {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="engine", description="Transformers on CPUs, from exported weights.")
    parser.add_argument("--version", action="version", version=f"encoder-engine {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("convert", help="turn a model folder into one .npz file")
    command.add_argument("folder", help="Hugging Face or sentence-transformers folder")
    command.add_argument("out", help="file to write, ending in .npz")
    command.add_argument(
        "--precision",
        type=canonical_name,
        choices=PRECISIONS,
        help="precision of the weights to write: bfloat16 takes half of float32's bytes, int8 a quarter; "
        "by default the weights keep theirs",
    )
    command.add_argument(
        "--bounded",
        action="store_true",
        help="with --precision int8: write integers for CPUs without VNNI, which would otherwise round the weights of "
        "linear layers a second time; the cosine to float32 is then the same on all CPUs, and lower on CPUs with VNNI",
    )
    command.add_argument(
        "--packed",
        action="store_true",
        help="write the weights as the kernels of this CPU read them: loading takes milliseconds, and processes share "
        "the memory; a CPU with other kernels refuses the file, so keep the original. --precision is then also the "
        "precision of the computation",
    )
    _add_task(command)
    _add_generates(command)
    command.set_defaults(run=convert)

    command = commands.add_parser("info", help="show the backends of this machine and the contents of a model")
    command.add_argument("model", nargs="?", help="model folder, .npz or .gguf file")
    _add_generates(command)
    command.set_defaults(run=info)

    command = commands.add_parser("encode", help="compute the vectors of a file's sentences, one per line")
    command.add_argument("model", help="model folder or .npz file")
    command.add_argument("file", nargs="?", default="-", help="UTF-8 text, one sentence per line; - for standard input")
    command.add_argument(
        "-o",
        "--output",
        required=True,
        help="file to write: *.npy for a NumPy array, float32 [lines, dimensions]; *.csv or *.jsonl for one vector a "
        "line; - for JSON lines on standard output",
    )
    command.add_argument("--prompt-name", help="name of the model's prompt to put in front of each sentence")
    command.add_argument(
        "--normalize", action="store_true", help="scale the vectors to length 1, even when the model does not"
    )
    _add_run_options(command)
    _add_precision(command)
    _add_task(command)
    command.set_defaults(run=encode)

    for name, text in (("generate", "continue the prompts of a file, or generate from its texts, one per line"),
                       ("translate", "write what a model with an encoder makes of the texts of a file, one per line")):
        command = commands.add_parser(name, help=text)
        add_settings(command)
        _add_run_options(command)
        _add_precision(command)
        if name == "generate":
            command.add_argument("--stream", action="store_true", help="write each result token by token")
        else:
            for side in ("source", "target"):
                command.add_argument(f"--{side}-language", metavar="CODE", help=f"language of the {side}, for models "
                                     "of several languages: the model's own code, such as de_DE, deu_Latn or de")
        command.set_defaults(run=generate)

    command = commands.add_parser("transcribe", help="write what recordings say, one line for each")
    add_transcription(command)
    _add_run_options(command)
    _add_precision(command)
    command.set_defaults(run=transcribe)

    command = commands.add_parser("bench", help="compare a model's speed with the limits of this machine")
    command.add_argument("model", help="model folder or .npz file")
    _add_run_options(command)
    _add_precision(command)
    command.set_defaults(run=bench)

    command = commands.add_parser("compare", help="compare another precision with float32 on your sentences")
    command.add_argument("model", help="model folder or .npz file with float32 weights")
    command.add_argument(
        "--precision",
        type=canonical_name,
        required=True,
        choices=COMPUTED,
        help="precision to compare with float32",
    )
    command.add_argument(
        "--data",
        required=True,
        help="UTF-8 text: each line has a score and two sentences, two sentences, or one; tabs separate them",
    )
    _add_run_options(command)
    command.set_defaults(run=compare)
    return parser


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--backend", default="auto", choices=["auto", *BACKENDS])
    command.add_argument(
        "--threads", type=int, help="maximum number of threads; by default all CPUs that the process may use"
    )


def _add_generates(command: argparse.ArgumentParser) -> None:
    command.add_argument("--generates", action="store_true", help="read the model as one that generates tokens: its "
                         "decoder, and its encoder if it has one")  # fmt: skip


def _add_precision(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--precision",
        type=canonical_name,
        choices=COMPUTED,
        help="precision of the computation; by default int8 for int8 weights, otherwise float32",
    )


def _add_task(command: argparse.ArgumentParser) -> None:
    command.add_argument("--task", help="adapter to merge into the weights, for a folder that holds adapters")


def convert(args: argparse.Namespace) -> None:
    """Convert a model folder to one .npz file."""
    if not args.out.endswith(".npz"):
        raise InputError(f"the output must be named *.npz, not {args.out!r}")
    if args.bounded and args.precision != "int8":
        raise InputError("--bounded is about int8 weights; add --precision int8")
    if args.packed and args.precision not in (None, *COMPUTED):
        raise InputError(f"--packed needs a precision that kernels compute in, {', '.join(COMPUTED)}, not "
                         f"{args.precision}")
    if args.generates and (args.packed or args.task is not None):
        raise InputError("--generates excludes --packed and --task, which are for encoders")
    halves = load_sequence_model(args.folder) if args.generates else None
    models = {"": load_model(args.folder, task=args.task)} if halves is None else halves.halves
    if args.precision is not None:
        models = {name: convert_model(model, args.precision, bounded=args.bounded) for name, model in models.items()}
    if args.packed:
        models = {"": _pack(models[""], args.precision)}
    if halves is None:
        save_model(models[""], args.out)
    else:
        save_sequence_model(replace(halves, decoder=models["decoder"], encoder=models.get("encoder")), args.out)
    print(f"{args.out}: {os.path.getsize(args.out) / 1e6:.1f} MB")
    _print_models(models)


def _pack(model: Model, precision: str | None) -> Model:
    """Return the model packed for the compiled kernels of this CPU, which compute in `precision`."""
    get_backend("cython")  # raises the reason why it cannot run
    from .backends.cython_cpu import isa
    from .backends.cython_cpu.packed import pack_model

    return pack_model(model, isa.chosen().product(model.precision_for(precision)))


def info(args: argparse.Namespace) -> None:
    """Print the backends and CPU limits of this machine and, if a model is given, its description."""
    print(f"encoder-engine {__version__}")
    for name, module in BACKENDS.items():
        backend: Backend = import_module(module).BACKEND
        reason = backend.unavailable()
        lines = backend.describe().splitlines() if reason is None else [f"cannot run: {reason}"]
        for title, line in zip_longest([f"backend {name}"], lines, fillvalue=""):
            _print_row(title, line)
    limits = cpu_limits()
    _print_row("threads", str(min(limit.cpus for limit in limits)))
    for limit in limits:
        _print_row("", f"{limit.cpus} by {limit.source}")
    if args.model is not None:
        print()
        if args.generates:
            _print_models(load_sequence_model(args.model).halves)
        else:
            _print_model(load_model(args.model))


def encode(args: argparse.Namespace) -> None:
    """Write the vectors of a file's lines to a file, in the format of its suffix, or to standard output."""
    suffix = ".jsonl" if args.output == "-" else Path(args.output).suffix
    if suffix not in WRITERS:
        raise InputError(f"the output must be - or be named *{', *'.join(WRITERS)}, not {args.output!r}")
    engine = Engine.load(
        args.model, backend=args.backend, threads=args.threads, precision=args.precision, task=args.task
    )
    sentences = _read_lines(args.file)
    vectors = engine.encode(
        sentences,
        prompt_name=args.prompt_name,
        normalize_embeddings=args.normalize,
        show_progress_bar=sys.stderr.isatty(),
    )
    if args.output == "-":
        WRITERS[suffix](sys.stdout.buffer, vectors)
        sys.stdout.buffer.flush()
        return
    with replacing(Path(args.output)) as file:
        WRITERS[suffix](file, vectors)
    print(f"{args.output}: {len(vectors)} vectors of {vectors.shape[1]} dimensions")


def _write_lines(file: IO[bytes], vectors: np.ndarray, template: str) -> None:
    """Write each vector as one line; nine digits are enough to read the same float32 numbers back."""
    for vector in vectors:
        file.write((template % ",".join(f"{x:.9g}" for x in vector)).encode())


def generate(args: argparse.Namespace) -> None:
    """Write the result of each line of a file to standard output."""
    run_generator(args, _read_lines(args.file))


WRITERS: dict[str, Callable[[IO[bytes], np.ndarray], None]] = {
    ".npy": np.save,
    ".csv": partial(_write_lines, template="%s\n"),
    ".jsonl": partial(_write_lines, template="[%s]\n"),
}
"""The function that writes vectors in the format of each suffix."""


def bench(args: argparse.Namespace) -> None:
    """Print a roofline table: the speed for each shape beside the measured limits."""
    from .bench import HEADER, measure, row  # imported here, because it needs the compiled kernels

    engine = Engine.load(args.model, backend=args.backend, threads=args.threads, precision=args.precision)
    print(engine)
    print(HEADER)
    for measurement in measure(engine):
        print(row(measurement), flush=True)
    print("of peak: of the highest rate of the products alone; of moment: of their median rate between the passes")
    print("* is the higher floor, which no run can beat; the limits are measured again for each shape")


def compare(args: argparse.Namespace) -> None:
    """Print how much the vectors of another precision differ from float32's, and how well both rank scored pairs."""
    data = parse_data(_read_lines(args.data), args.data)
    result = compare_precision(
        args.model,
        args.precision,
        data,
        backend=args.backend,
        threads=args.threads,
        show_progress_bar=sys.stderr.isatty(),
    )
    print(f"{args.precision} against float32: {len(data.rows):,} {'lines' if data.scores is None else 'scored pairs'}")
    _print_row("cosine", f"mean {result.cosine_mean:.5f}, min {result.cosine_min:.5f}")
    if result.spearman is not None:
        before, after = result.spearman
        _print_row("Spearman x 100", f"{before:.3f} in float32, {after:.3f} in {args.precision}: {after - before:+.3f}")


def _read_lines(name: str) -> list[str]:
    """Read the lines of a file, or of standard input for "-", without their line ends; only a line feed ends a line."""
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: {error}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _print_models(models: Mapping[str, Model]) -> None:
    """Print each half of a model under its name; the name of a whole model is empty."""
    for name, model in models.items():
        if name:
            print(name)
        _print_model(model)


def _print_model(model: Model) -> None:
    c, text = model.config, model.text
    parameters = sum(math.prod(shape) for shape in expected_shapes(c).values())
    size = sum(array.nbytes for array in model.weights.values())
    _print_row("family", c.family)
    _print_row(
        "layers",
        f"{c.num_layers}, width {c.hidden_size}, {c.num_heads} heads of {c.head_width}, "
        f"feed-forward {c.ffn_size}, {c.activation}",
    )
    for program in programs_of(c):
        for label, formulas in outline(program):
            _print_row(label, formulas)
    _print_row("tables", f"{c.vocab_size} words, {c.max_positions} positions, {c.token_types} token types")
    _print_row("parameters", f"{parameters / 1e6:.1f} million, {size / 1e6:.1f} MB in memory")
    linear, tables = _stored(model, "linear"), _stored(model, "table")
    _print_row("precision", linear if tables in ("", linear) else f"{linear}, tables in {tables}")
    if model.layout is not None:
        _print_row("packed", str(model.layout))
    if model.stem is not None:
        _print_row("input", f"{model.stem.given}: {model.stem.expected} for each")
        return
    if text is None:
        _print_row("text", "no tokenizer; token ids only")
        return
    limit = text.max_seq_length or c.longest_sequence
    dense = "".join(f", dense to {len(dense.weight)}" for dense in model.dense)
    tokens = f"{'up to ' + str(limit) if limit else 'any number of'} tokens"
    vector = f", pooling {'+'.join(text.pooling)}{dense}{', normalised' if text.normalize else ''}"
    _print_row("text", tokens if c.decodes else tokens + vector)
    if text.prompts:
        _print_row("prompts", ", ".join(text.prompts))


def _stored(model: Model, kind: str) -> str:
    """Name the precisions in which parameters of this kind are stored."""
    parameters = parameters_of(model.config)
    if kind == "linear" and model.layout is not None:
        return model.layout.precision
    dtypes = {model.weights[name].dtype for name, parameter in parameters.items() if parameter.kind == kind}
    return " and ".join(sorted(STORED[dtype] for dtype in dtypes))


def _print_row(label: str, value: str) -> None:
    print(f"  {label:<18} {value}")
