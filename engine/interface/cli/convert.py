"""Implement `engine convert`."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from ...backends import get_backend
from ...base.errors import InputError
from ...files.writing import check_folder
from ...loading.load import choose_kind, load_model, open_source
from ...loading.npz_model import save
from ...model.precision import ROUNDED
from ...weights.model import Transformer
from ...weights.quantize import convert_model
from ..importance import measure_importance
from .console import read_lines, warn_generates
from .info import print_model


def convert(args: argparse.Namespace) -> None:
    """Convert a model folder to one .npz file."""
    if not args.out.endswith(".npz"):
        raise InputError(f"the output must be named *.npz, not {args.out!r}")
    if args.bounded and args.precision != "int8":
        raise InputError("--bounded is about int8 weights; add --precision int8")
    if args.calibration is not None and args.precision != "int4":
        raise InputError("--calibration is about int4 weights; add --precision int4")
    if args.packed and args.precision not in (None, *ROUNDED):
        raise InputError(f"--packed needs a precision that kernels compute in, {', '.join(ROUNDED)}, not "
                         f"{args.precision}")
    check_folder(Path(args.out))
    warn_generates(args)
    source = open_source(args.folder)
    kind = choose_kind(source, args.kind)
    model = load_model(source, kind=kind, task=args.task, precision=args.precision)
    if args.precision is not None:
        importance = None
        if args.calibration is not None:
            importance = measure_importance(model, "\n".join(read_lines(args.calibration)))
        model = convert_model(model, args.precision, bounded=args.bounded, importance=importance)
    if args.packed:
        model = model.map(partial(_pack, precision=args.precision))
    save(model, args.out)
    print(f"{args.out}: {os.path.getsize(args.out) / 1e6:.1f} MB")
    print_model(model, model.kind)
    if kind == "rank":
        answers = list(source.answers() or ("yes", "no"))
        print(f"engine convert: an .npz does not say that its model is a reranker; load it with "
              f"Reranker.load({args.out!r}, answers={answers})", file=sys.stderr)


def _pack(part: Transformer, precision: str | None) -> Transformer:
    """Return an encoder or a decoder packed for the compiled kernels of this CPU, which compute in `precision`."""
    get_backend("cython")  # raises the reason why it cannot run
    from ...backends.cpu.packer import pack_transformer
    from ...backends.cython_cpu import isa

    return pack_transformer(part, isa.chosen().product(part.precision_for(precision), part.config.decodes))
