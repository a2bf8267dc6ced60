"""Implement `engine convert`: write a model as one .npz; `engine fetch --packed` also uses `write`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..backends import choose_backend
from ..base.errors import InputError
from ..files.writing import check_folder
from ..loading.load import choose_kind, load_model, open_source
from ..loading.npz_model import save
from ..loading.source import Source
from ..model.bits import FASTEST, PORTABLE
from ..model.precision import ROUNDED
from ..studies.importance import measure_importance
from ..weights.model import Model, Transformer
from ..weights.quantize import convert_model
from .console import read_lines, warn_generates
from .info import print_model


def convert(args: argparse.Namespace) -> None:
    """Convert a model folder to one .npz file, and describe it."""
    if (args.out is None) == (args.output is None):
        raise InputError(f"give one file to write: engine convert {args.folder} out.npz")
    out = args.out or args.output
    if not out.endswith(".npz"):
        raise InputError(f"the output must be named *.npz, not {out!r}")
    if args.bounded and args.precision != "int8":
        raise InputError("--bounded is about int8 weights; add --precision int8")
    if args.calibration is not None and args.precision != "int4":
        raise InputError("--calibration is about int4 weights; add --precision int4")
    if args.packed and args.precision not in (None, *ROUNDED):
        raise InputError(f"--packed needs a precision that kernels compute in, {', '.join(ROUNDED)}, not "
                         f"{args.precision}")
    if args.bits == PORTABLE and not args.packed:
        raise InputError("--bits says for which kernels --packed writes the weights; add --packed, or load the file "
                         "with bits=\"portable\"")
    check_folder(Path(out))
    warn_generates(args)
    calibration = None if args.calibration is None else read_lines(args.calibration)
    model = write(open_source(args.folder, revision=args.revision), out, kind=args.kind, task=args.task,
                  precision=args.precision, bounded=args.bounded, calibration=calibration, packed=args.packed,
                  bits=args.bits, long_context=args.long_context)
    print(f"{out}: {os.path.getsize(out) / 1e6:.1f} MB")
    print_model(model, model.kind)


def write(source: Source, out: str, *, kind: str | None, task: str | None, precision: str | None,
          packed: bool, bounded: bool = False, calibration: Sequence[str] | None = None, bits: str = FASTEST,
          long_context: bool = False) -> Model:
    """Write a model as one .npz file `out`, and return it as it was written.

    calibration: lines of text by which int4 weights are rounded. The other arguments are those of the command.
    """
    kind = choose_kind(source, kind)
    model = load_model(source, kind=kind, task=task, precision=precision, long_context=long_context)
    if precision is not None:
        importance = None
        if calibration is not None:
            importance = measure_importance(model, "\n".join(calibration))
        model = convert_model(model, precision, bounded=bounded, importance=importance)
    if packed:
        model = model.map(partial(_pack, precision=precision, bits=bits))
    save(model, out)
    if kind == "rank":
        answers = list(source.answers() or ("yes", "no"))
        print(f"engine convert: an .npz does not say that its model is a reranker; load it with "
              f"Reranker.load({out!r}, answers={answers})", file=sys.stderr)
    return model


def _pack(part: Transformer, precision: str | None, bits: str) -> Transformer:
    """Return an encoder or a decoder packed for the compiled kernels of this CPU, which compute in `precision`."""
    choose_backend("cython", bits)      # raises an error with the reason if the kernels cannot run
    from ..backends.cpu.packer import pack_transformer
    from ..backends.cython_cpu import isa

    product = isa.chosen().product(part.precision_for(precision), part.config.decodes, bits == PORTABLE)
    return pack_transformer(part, product)
