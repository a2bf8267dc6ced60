"""What the commands share: options of a model and of texts, lines of input, files of output, and messages."""

from __future__ import annotations

import argparse
import glob
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..base.errors import InputError, listed, shown
from ..files.writing import check_folder, replacing
from ..images.sources import ENDINGS
from ..model.precision import FORMATS, WAYS, canonical_name

MODEL_OR_GGUF = "model folder, .npz or .gguf file"


def add_model(command: argparse.ArgumentParser, holds: str = "model folder or .npz file", name: str = "model",
              **options: Any) -> None:
    """Add the model that a command reads, by path or name, and --revision. holds: the forms of a path, for the help."""
    command.add_argument(name, help=f"{holds}; or the name of a model on the Hugging Face hub, such as "
                         "intfloat/e5-small-v2", **options)
    add_revision(command)


def add_revision(command: argparse.ArgumentParser) -> None:
    """Add the revision of a model on the hub."""
    command.add_argument("--revision", help="branch, tag or commit of a model on the Hugging Face hub; by default the "
                         "main branch")


def run_options(args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Return the options of `Engine.load` and the like from the command line: those of every command, and `more`."""
    return {name: getattr(args, name) for name in ("backend", "threads", "precision", "bits", *more)}


def warn_generates(args: argparse.Namespace) -> None:
    """Say on standard error that the earlier option --generates has no effect, if it was typed."""
    if args.generates:
        print(f"engine {args.command}: --generates does nothing any more, because the files say what the model is for; "
              "leave it out", file=sys.stderr)


STDIO = "-"
"""The name of standard input among files to read, and of standard output among files to write."""
NOT_LINES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".xlsx")
"""Ends of the names of files whose lines are no texts, as commas, quotes and braces would be read as words."""
TABS = (".tsv",)
TABS_ADVICE = "write a tab between the columns, into a .tsv file"
"""The advice in a message about a file in another format, for commands that read columns separated by tabs."""
NOT_WRITTEN = (".csv", ".tsv", ".npy", ".npz", ".parquet", ".xlsx")
"""Ends of the names of files that do not hold lines of text or JSON."""


def add_texts(command: argparse.ArgumentParser, option: str, kind: str) -> None:
    """Add an option whose value is an input itself. kind: the noun for it with its article, for the help."""
    command.add_argument(option, dest="texts", action="append", metavar="TEXT", help=f"{kind} itself, in place of a "
                         "file; the option may come several times")


def add_labels(command: argparse.ArgumentParser) -> None:
    """Add the options for labels of the user, among which `Engine.classify` chooses."""
    command.add_argument("--candidate-label", dest="candidate_labels", action="append", metavar="LABEL", help="a label "
                         "of your own to choose from, with a classifier of natural language inference; the option may "
                         "come several times, and a single one is split at its commas")
    command.add_argument("--hypothesis-template", metavar="TEXT", help="with labels of your own: what the model is "
                         "asked about a label, which stands in place of {}; by default: This example is {}.")
    command.add_argument("--multi-label", action="store_true", help="with labels of your own: several may be right, so "
                         "that each has a probability of its own")


def label_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `Engine.classify` from the options of `add_labels`; raises `InputError`."""
    labels = args.candidate_labels
    if labels is None and (args.hypothesis_template is not None or args.multi_label):
        raise InputError("--hypothesis-template and --multi-label are about labels of your own; give each with "
                         "--candidate-label")
    if labels is None:
        return {}
    options = {"candidate_labels": labels[0] if len(labels) == 1 else labels,
               "hypothesis_template": args.hypothesis_template, "multi_label": args.multi_label or None}
    return {name: value for name, value in options.items() if value is not None}


def add_output(command: argparse.ArgumentParser) -> None:
    """Add the file for the results, of a command that writes lines."""
    command.add_argument("-o", "--output", default=STDIO, metavar="FILE", help="file to write, which appears when it "
                         "is complete; by default standard output")


def read_inputs(args: argparse.Namespace, option: str, *, kept: Sequence[str] = (), other: str = "",
                one_text: bool = True, images: bool = False) -> tuple[list[Any], list[str]]:
    """Return (inputs of a command, the name of each for messages): the texts of `option`, or the lines of a file.

    kept: the ends of names among `NOT_LINES` that the command reads. other: advice for a file with another of these
    ends. one_text: whether a text may stand in the place of the file, and is then the only input. images: whether the
    file may be an image, or a pattern of images, which others may follow. Raises `InputError`.
    """
    if images and args.texts is None and args.file is not None and (paths := _images([args.file, *args.more])):
        return [*map(Path, paths)], paths
    texts = given_texts(args, one_text)
    if texts is None:
        name = args.file or STDIO
        lines = read_lines(name, f"; {option} TEXT gives the text itself", kept=kept, other=other)
        return lines, [f"{spoken(name)}, line {i}" for i in range(1, len(lines) + 1)]
    if args.texts is None:
        if not re.search(r"\s", args.file):     # perhaps a file was meant
            print(f"engine {args.command}: there is no file {shown(args.file)}, so it is read as the text itself",
                  file=sys.stderr)
        return texts, [f"the text {shown(args.file)}"]
    if args.file is not None:
        raise InputError(f"{option} comes in place of a file; leave out {shown(args.file)}")
    return texts, [f"{option} {shown(text)}" for text in texts]


def is_image_name(word: str) -> bool:
    """Return whether a word is the name of an image, or a pattern of such names, by its end."""
    return Path(word).suffix.lower() in ENDINGS


def _images(words: Sequence[str]) -> list[str]:
    """Return the paths of images from words of the command line, paths or patterns; [] if they name other files.

    Raises `InputError` if some are images and others are not, and for a pattern without a file or a folder of images.
    """
    paths: list[str] = []
    for word in words:
        is_pattern = glob.has_magic(word) and not os.path.lexists(word)
        matches = sorted(glob.glob(word, recursive=True)) if is_pattern else [word]
        if not matches and is_image_name(word):
            raise InputError(f"{shown(word)}: no file matches this pattern; give the path of an image, or another "
                             "pattern in quotes")
        paths += matches
    images = [*map(is_image_name, paths)]
    if any(images) and not all(images):
        raise InputError(f"{shown(paths[images.index(False)])} is no image by its name, beside "
                         f"{shown(paths[images.index(True)])}; give images alone, or files of texts in a call of their "
                         f"own. The names of images end in {', '.join(ENDINGS)}")
    if len(words) == 1 and os.path.isdir(words[0]) and any(map(is_image_name, os.listdir(words[0]))):
        raise InputError(f"{shown(words[0])} is a folder; give its images by a pattern in quotes, such as "
                         f"{shown(os.path.join(words[0], '*.jpg'))}")
    return paths if any(images) else []


def given_texts(args: argparse.Namespace, one_text: bool = True) -> list[str] | None:
    """Return the texts that were typed on the command line; None if they are in a file.

    one_text: whether a text may stand in the place of the file.
    """
    if args.texts is None and one_text and args.file is not None and is_text(args.file):
        return [args.file]
    texts: list[str] | None = args.texts
    return texts


def is_text(word: str) -> bool:
    """Return whether a word in the place of a file is a text: there is no such file, and no file seems to be meant.

    A single word means a file if it has a slash, or a suffix at its end. Several words mean a file only if they begin
    as a path, or end as the name of a file of texts.
    """
    if word == STDIO or os.path.lexists(word):
        return False
    if re.search(r"\s", word):
        return not re.match(r"(~|\.{1,2})?/", word) and not word.lower().endswith((".txt", *NOT_LINES))
    return re.search(r"[/\\]|\.\w+$", word) is None


def spoken(name: str) -> str:
    """Return the name of a file to read for messages."""
    return "standard input" if name == STDIO else name


def read_lines(name: str, advice: str = "", *, kept: Sequence[str] = (), other: str = "") -> list[str]:
    """Read the lines of a file, or of standard input for "-", without their line ends; only a line feed ends a line.

    advice: the end of the message about a missing file. kept: the ends of names among `NOT_LINES` that the command
    reads. other: advice for a file whose name has another of these ends. Raises `InputError`.
    """
    suffix = Path(name).suffix.lower()
    if suffix in NOT_LINES and suffix not in kept:
        other = other or "write one text a line into a .txt file"
        raise InputError(f"{shown(name)}: each line would be read as a text, and the lines of a {suffix} file are no "
                         f"texts; {other}. Standard input (-) is read as it is")
    if name == STDIO:
        check_stdin("give a file, or send the lines over a pipe")
    if name == STDIO and sys.stdin.isatty():
        print("reading lines from the terminal; Ctrl-D ends them", file=sys.stderr)
    try:
        data = sys.stdin.buffer.read() if name == STDIO else Path(name).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{shown(name)}: no such file; expected a file of UTF-8 text, one text per line, or - for "
                         f"standard input{advice}") from None
    except IsADirectoryError:
        raise InputError(f"{shown(name)} is a folder; expected a file of UTF-8 text, one text per line, or - for "
                         f"standard input{advice}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: {error}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def check_stdin(advice: str) -> None:
    """Raise `InputError` if standard input was closed when the process started. advice: the end of the message."""
    if sys.stdin is None:
        raise InputError(f"standard input is closed; {advice}")


def check_output(name: str, written: str) -> None:
    """Raise an error for an output file that cannot be written, to call before anything is computed.

    written: a noun for the results, such as "lines of JSON", for the message.
    """
    if name == STDIO:
        return
    if Path(name).suffix.lower() in NOT_WRITTEN:
        raise InputError(f"{shown(name)}: the command writes {written}; choose a name that does not end in "
                         f"{listed(NOT_WRITTEN)}")
    check_folder(Path(name))


@contextmanager
def writing_lines(name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes a line: at once to standard output, or to a file that appears after the block."""
    if name == STDIO:
        yield partial(print, flush=True)
        return
    with replacing(Path(name)) as file:
        def write(line: str) -> None:
            file.write(f"{line}\n".encode())

        yield write


def print_row(label: str, value: str) -> None:
    """Print a row of a table of two columns."""
    print(f"  {label:<18} {value}")


def write_utf8() -> None:
    """Let standard output and standard error write UTF-8, whatever the environment says.

    Paths and variables of the environment may hold other bytes, which Python keeps as surrogates: standard output
    writes the bytes again, and messages show escapes. A stream that was closed at the start becomes the null device.
    """
    _hold_streams()
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _hold_streams() -> None:
    """Open the null device in place of standard streams that were closed at the start of this process.

    Otherwise the next file or connection would get the number of such a stream, and the text that is written to it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)      # the system gives it the smallest free number, which is this one
    for name in ("stdout", "stderr"):       # a closed standard input has an error of its own where it is read
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


@contextmanager
def warnings_in_a_line(command: str, spoken: Callable[[str], str] = str) -> Iterator[None]:
    """Write each warning as a line of its own after the name of the command, without the place in the code.

    spoken: returns a message with options in place of arguments of Python.
    """

    def write(message: Warning | str, *_: object, **__: object) -> None:
        """Print a warning; it has the signature of `warnings.showwarning`."""
        try:
            print(f"{command}: {spoken(str(message))}", file=sys.stderr)
        except OSError:     # nobody can read it; the stream would fail again at the end of the process
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

    with warnings.catch_warnings():
        warnings.showwarning = write
        yield


def precision_among(names: Sequence[str]) -> Callable[[str], str]:
    """Return a function for argparse that reads a precision, one of `names`, in any spelling that the engine knows."""

    def precision(typed: str) -> str:
        """Return the engine's name of a precision; raises an error that says why a name is refused."""
        name = canonical_name(typed)
        if name not in names:
            why = " is no precision here"
            if name in WAYS:
                why = f" is a way to multiply {FORMATS[name].stored} weights, and nothing is stored in it"
            elif name in FORMATS:
                why = " is only stored, and nothing computes in it"
            raise argparse.ArgumentTypeError(f"{shown(typed)}{why}; choose {', '.join(names)}")
        return name

    return precision
