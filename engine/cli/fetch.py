"""Implement `engine fetch`: download a model of the Hugging Face hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..base.errors import InputError, shown
from ..files.writing import check_folder
from ..loading import hub
from ..loading.load import open_source
from ..model.bits import FASTEST, PORTABLE
from .convert import write


def fetch(args: argparse.Namespace) -> None:
    """Download a model of the hub and print its path; with --packed, write one packed .npz and print the path of it."""
    stated = args.output is not None or args.precision is not None or args.bits == PORTABLE or args.long_context
    if stated and not args.packed:
        raise InputError("--output, --precision, --bits and --long-context say how --packed writes the model; add "
                         "--packed")
    if args.output is not None:
        if not args.output.endswith(".npz"):
            raise InputError(f"the output must be named *.npz, not {args.output!r}")
        check_folder(Path(args.output))
    name = hub.as_name(args.name)
    if name is None and Path(args.name).exists():
        raise InputError(f"{shown(args.name)} is here already, and is no name of a model on the hub; give this "
                         "path to the other commands, or org/name to download a model")
    if name is None:
        raise InputError(f"{shown(args.name)} is no name of a model on the hub; expected org/name, or org/name/FILE "
                         "for a .gguf or .npz file of a repository")
    fetched = hub.fetch(name, args.revision)
    if not args.packed:
        print(fetched.path)
        return
    out = args.output or str(_packed_path(fetched.path, name, args.precision, args.bits, args.long_context))
    write(open_source(fetched.path), out, kind=args.kind, task=args.task, precision=args.precision, packed=True,
          bits=args.bits, long_context=args.long_context)
    print(out)


def _packed_path(path: Path, name: hub.HubName, precision: str | None, bits: str, long_context: bool) -> Path:
    """Return the default path of a packed file: in the folder of the commit, with which the cache removes it.

    path: of the model in the cache, a folder or a file. The name of the file has all that the packing depends on.
    """
    from ..backends.cython_cpu import isa

    stem = name.repository.partition("/")[2] if path.is_dir() else path.stem
    folder = path if path.is_dir() else path.parent
    parts = (stem, isa.chosen().isa, precision, None if bits == FASTEST else bits, "long" * long_context)
    return folder / f"{'-'.join(filter(None, parts))}.npz"
