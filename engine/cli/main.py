"""The `engine` command: `main` runs it, and `parsers` lists the subcommands, each with its function and its options."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from ..backends import BACKENDS
from ..base.errors import EngineError
from ..base.version import __version__
from ..loading.source import CLASS_OF_KIND
from ..model.bits import BITS, FASTEST
from ..model.precision import CACHED, LOADABLE, ROUNDED, STORABLE
from .bench import bench
from .calibrate import add_options as add_calibrate
from .calibrate import run as calibrate
from .chat import add_options as add_chat
from .chat import chat
from .compare import add_calibration, compare
from .console import MODEL_OR_GGUF, add_model, add_revision, add_texts, precision_among, warnings_in_a_line, write_utf8
from .convert import convert
from .doctor import add_options as add_doctor
from .doctor import doctor
from .embed import add_options as add_embed
from .embed import embed
from .encode import encode
from .fetch import fetch
from .generate import add_settings, generate
from .heads import COMMANDS as HEAD_COMMANDS
from .heads import add_options as add_head_options
from .heads import run as run_head
from .info import info
from .parsing import CommandParser, CommandsParser, parse
from .serve import add_options as add_serving
from .serve import serve
from .transcribe import add_options as add_transcription
from .transcribe import run as transcribe

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C, 130, which makes shells stop a script."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after an error, or `INTERRUPTED`; stderr says why."""
    write_utf8()
    parser, commands = parsers()
    args = parse(parser, commands, sys.argv[1:] if arguments is None else arguments)
    # Messages of the library name arguments of Python; users of the command read options in their place.
    spoken = partial(commands[args.command].with_options, args=args)
    try:
        with warnings_in_a_line(f"engine {args.command}", spoken):
            args.run(args)
    except BrokenPipeError:
        # A reader of standard output such as `head` has gone. Without the null device in its place, Python would fail
        # again when it flushes the stream at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (EngineError, OSError) as error:
        print(f"engine {args.command}: {spoken(str(error))}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"engine {args.command}: out of memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        done = f"; {interrupt}" if str(interrupt) else ""
        print(f"engine {args.command}: interrupted{done}", file=sys.stderr)
        return INTERRUPTED
    return 0


@cache
def parsers() -> tuple[argparse.ArgumentParser, Mapping[str, CommandParser]]:
    """Return the parser of the command line, and the parser of each command by its name, in the order of the help."""
    parser = CommandsParser(prog="engine", description="Transformers on CPUs, from exported weights.")
    parser.add_argument("--version", action="version", version=f"encoder-engine {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str, *options: Callable[[Any], None],
            description: str | None = None) -> None:
        """Add a command. run: executes it. text: its line in the list of commands. options: functions that add some."""
        command = commands.add_parser(name, help=text, description=description)
        for add_some in options:
            add_some(command)
        command.set_defaults(run=run)

    files = _add_bits, _add_task, _add_kind, _add_long_context
    add("convert", convert, "turn a model folder into one .npz file", _add_convert, *files)
    add("fetch", fetch, "download a model of the Hugging Face hub, and print its path", _add_fetch, *files)
    add("info", info, "show the backends of this machine and the contents of a model",
        partial(add_model, holds=MODEL_OR_GGUF, nargs="?"), _add_kind)
    add("doctor", doctor, "show what the report of a bug needs: versions, CPU, threads, extras", add_doctor)
    vectors = _add_run_options, partial(_add_precision, auto=True), _add_task
    add("encode", encode, "compute the vectors of a file's sentences, one per line", _add_encode, *vectors,
        description="Compute the vectors of the sentences of one file that fits in memory. engine embed serves many or "
        "large files, and goes on after a stop.")
    add("embed", embed, "compute the vectors of many files, in parts; a stopped job goes on", add_embed, *vectors,
        description="Compute the vectors of the rows of many or large files. Each unit of rows becomes one part, whole "
        "or not at all, so that the same command goes on after a stop. engine encode serves one file that fits in "
        "memory.")
    for name, text in HEAD_COMMANDS.items():
        add(name, run_head, text, partial(add_head_options, name=name), _add_run_options, _add_precision)
    generating = _add_run_options, partial(_add_precision, cache=True)
    add("generate", generate, "continue the prompts of a file, or generate from its texts, one per line",
        partial(add_settings, text="prompt"), *generating, _add_long_context, _add_stream)
    add("translate", generate, "write what a model with an encoder makes of the texts of a file, one per line",
        partial(add_settings, text="text"), *generating, _add_languages)
    add("chat", chat, "talk with a language model: type, or one message a line over a pipe", add_chat, *generating,
        _add_long_context)
    add("transcribe", transcribe, "write what recordings say, one line for each", add_transcription, *generating)
    add("serve", serve, "answer HTTP requests for texts, vectors, ranks, labels and tags", add_serving, _add_kind,
        _add_run_options, partial(_add_precision, auto=True, cache=True), _add_long_context, _add_task,
        description="Answer HTTP requests in the forms of OpenAI, Cohere, Jina, vLLM and text-embeddings-inference, "
        "until the process gets SIGTERM. docs/server.md explains the routes.")
    add("calibrate", calibrate, "fit a model's probabilities to labelled texts", add_calibrate, _add_kind,
        _add_run_options, _add_precision)
    add("bench", bench, "compare a model's speed with the limits of this machine", add_model, _add_run_options,
        _add_precision, _add_long_context)
    add("compare", compare, "compare another precision with float32 on your sentences", _add_compare, add_calibration,
        _add_run_options)
    return parser, commands.choices


def _add_convert(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine convert`."""
    add_model(command, "Hugging Face or sentence-transformers folder", "folder")
    command.add_argument("out", nargs="?", help="file to write, ending in .npz")
    command.add_argument("-o", "--output", metavar="OUT", help="the same")
    _add_one_of(command, "--precision", STORABLE, "precision of the weights to write: bfloat16 takes half of float32's "
                "bytes, int8 a quarter; by default the weights keep theirs")
    command.add_argument("--calibration", metavar="FILE", help="with --precision int4: a file with a few thousand "
                         "words like those that the model will read. The model reads up to 8,192 tokens of it, and the "
                         "rounding spares the inputs that are large there: far nearer to the original")
    command.add_argument("--bounded", action="store_true", help="with --precision int8: write integers for CPUs "
                         "without VNNI, which would otherwise round the weights of linear layers a second time; the "
                         "cosine to float32 is then the same on all CPUs, and lower on CPUs with VNNI")
    command.add_argument("--packed", action="store_true", help="write the weights as the kernels of this CPU read "
                         "them: loading takes milliseconds, and processes share the memory; a CPU with other kernels "
                         "refuses the file, so keep the original. --precision is then also the precision of the "
                         "computation")


def _add_fetch(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine fetch`."""
    command.add_argument("name", help="name of the model, such as intfloat/e5-small-v2; of a repository with several "
                         ".gguf or .npz files, org/name/FILE")
    add_revision(command)
    command.add_argument("--packed", action="store_true", help="write one .npz that the kernels of this CPU read as it "
                         "is, as engine convert --packed does, and print its path")
    command.add_argument("-o", "--output", metavar="FILE", help="with --packed: file to write, ending in .npz; by "
                         "default beside the model in the cache")
    _add_one_of(command, "--precision", ROUNDED, "with --packed: precision of the weights; by default they keep theirs")


def _add_encode(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine encode`."""
    add_model(command)
    command.add_argument("file", nargs="?", help="UTF-8 text, one sentence per line; - for standard input, the "
                         "default; or one sentence itself, where there is no such file; or images, by their paths or "
                         "by patterns in quotes; for a model of images alone a line is the path of one")
    add_texts(command, "--text", "a sentence")
    command.add_argument("-o", "--output", required=True, help="file to write: *.npy for a NumPy array, float32 "
                         "[lines, dimensions]; *.csv or *.jsonl for one vector a line; - for JSON lines on standard "
                         "output")
    command.add_argument("--prompt-name", help="name of the model's prompt to put in front of each sentence")
    command.add_argument("--prompt", metavar="TEXT", help="text to put in front of each sentence")
    command.add_argument("--route", help="the encoder to run, such as query or document, of a model that has several")
    command.add_argument("--normalize", action="store_true", help="scale the vectors to length 1, even when the model "
                         "does not")


def _add_stream(command: argparse.ArgumentParser) -> None:
    """Add the option that writes a result while it is generated."""
    command.add_argument("--stream", action="store_true", help="write each result token by token")


def _add_languages(command: argparse.ArgumentParser) -> None:
    """Add the languages of `engine translate`."""
    for side in ("source", "target"):
        command.add_argument(f"--{side}-language", metavar="CODE", help=f"language of the {side}, for models of "
                             "several languages: the model's own code, such as de_DE, deu_Latn or de")


def _add_compare(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine compare`, except those of a calibrated model."""
    add_model(command, "model folder or .npz file with float32 weights")
    _add_one_of(command, "--precision", LOADABLE, "precision to compare with float32; with --calibration, by default "
                "bfloat16 and int8")
    command.add_argument("--data", required=True, help="UTF-8 text: each line has a score and two sentences, two "
                         "sentences, or one; tabs separate them. With --calibration, each line has a label and a text")


def _add_run_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say how a model is run, except its precision; `console.run_options` reads them."""
    command.add_argument("--backend", default="auto", choices=["auto", *BACKENDS], help="what computes; by default "
                         "auto, the fastest one of this machine")
    command.add_argument("--threads", type=int, help="maximum number of threads; by default all CPUs that the process "
                         "may use, or OMP_NUM_THREADS of them")
    _add_bits(command)


def _add_bits(command: argparse.ArgumentParser) -> None:
    """Add the option for results with the same bits on every CPU."""
    command.add_argument("--bits", default=FASTEST, choices=BITS, help="portable for results with the same bits on "
                         "every CPU with fused multiply-adds; by default those of the fastest arithmetic of this CPU")


def _add_kind(command: argparse.ArgumentParser) -> None:
    """Add the kind of use of a model; --generates is an earlier option, which `console.warn_generates` explains."""
    command.add_argument("--kind", choices=CLASS_OF_KIND, help="what the model is for, where its files fit two kinds, "
                         "such as T5's encoder alone or all of T5; by default what the files say")
    command.add_argument("--generates", action="store_true", help=argparse.SUPPRESS)


def _add_precision(command: argparse.ArgumentParser, auto: bool = False, cache: bool = False) -> None:
    """Add the precision of the computation, and with `cache` the precision of a decoder's cache.

    auto: whether the engine may choose the precision, as `Engine.load` can.
    """
    names = (*LOADABLE, "auto") if auto else LOADABLE
    _add_one_of(command, "--precision", names, "precision of the computation; by default that of the weights where "
                "they are integers, otherwise float32"
                + ("; auto is the fastest one whose vectors have a cosine of 0.999 to float32's" if auto else ""))
    if cache:
        _add_one_of(command, "--cache", CACHED, "precision of the keys and values that are kept; by default float32 "
                    "for precision float32, otherwise bfloat16")


def _add_long_context(command: argparse.ArgumentParser) -> None:
    """Add the option that chooses between two tables of positions."""
    command.add_argument("--long-context", action="store_true", help="take the positions for sequences longer than "
                         "those of the training, of a model with two tables of them, such as Phi-3.5")


def _add_one_of(command: argparse.ArgumentParser, option: str, names: Sequence[str], text: str) -> None:
    """Add an option whose value is one of these names of precisions, or another spelling of one. text: its help."""
    command.add_argument(option, type=precision_among(names), metavar=f"{{{','.join(names)}}}", help=text)


def _add_task(command: argparse.ArgumentParser) -> None:
    """Add the option that chooses an adapter."""
    command.add_argument("--task", help="adapter to merge into the weights, for a folder that holds adapters")
