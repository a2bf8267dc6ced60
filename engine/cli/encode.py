"""Implement `engine encode`: the vectors of the lines of one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from ..base.errors import InputError
from ..files.writing import check_folder, replacing
from ..interface.engine import Engine
from .console import STDIO, read_inputs, run_options

READS_COLUMNS = "engine embed MODEL FILES -o FOLDER reads the texts of .jsonl, .csv and .parquet files"
"""The advice about a file of another format than lines."""


def encode(args: argparse.Namespace) -> None:
    """Write the vectors of a file's lines to a file, in the format of its suffix, or to standard output."""
    suffix = ".jsonl" if args.output == STDIO else Path(args.output).suffix
    if suffix not in WRITERS:
        raise InputError(f"the output must be - or be named *{', *'.join(WRITERS)}, not {args.output!r}")
    if args.output != STDIO:
        check_folder(Path(args.output))
    sentences, _ = read_inputs(args, "--text", other=READS_COLUMNS, images=True)
    engine = Engine.load(args.model, **run_options(args, "task", "revision"))
    vectors = engine.encode(sentences, prompt_name=args.prompt_name, prompt=args.prompt,
                            normalize_embeddings=args.normalize, show_progress_bar=sys.stderr.isatty(), task=args.route)
    if args.output == STDIO:
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


WRITERS: dict[str, Callable[[IO[bytes], np.ndarray], None]] = {
    ".npy": np.save,
    ".csv": partial(_write_lines, template="%s\n"),
    ".jsonl": partial(_write_lines, template="[%s]\n"),
}
"""The function that writes vectors in the format of each suffix."""
