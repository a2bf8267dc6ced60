"""Implement `engine info`: the backends of this machine, and the contents of a model."""

from __future__ import annotations

import argparse
import math

from ..base.errors import UnsupportedError, WeightsError, listed
from ..base.version import __version__
from ..loading.hugging_face import FolderSource
from ..loading.load import choose_kind, load_model, open_source
from ..loading.model_files import checksum
from ..loading.source import CLASS_OF_KIND
from ..model.precision import CACHED, FORMATS, STORED, cached_bytes
from ..programs import programs_of
from ..weights.input_layers import Patches
from ..weights.model import Model, Transformer
from ..weights.modules import Dense, LayerNorm, Module, Normalize
from ..weights.parameters import expected_shapes, parameters_of
from .console import print_row, warn_generates
from .describe import outline
from .machine import print_machine
from .obstacles import obstacles


def info(args: argparse.Namespace) -> None:
    """Print the backends and CPU limits of this machine and, if a model is given, its description."""
    print(f"encoder-engine {__version__}")
    print_machine()
    warn_generates(args)
    if args.model is not None:
        print()
        source = open_source(args.model, revision=args.revision)
        try:
            kind = choose_kind(source, args.kind)
            model = load_model(source, kind=kind)
        except (UnsupportedError, WeightsError):
            if isinstance(source, FolderSource):
                print_row("path", str(source.path))
                for label, obstacle in obstacles(source.folder):
                    print_row(label, obstacle)
            raise
        if source.origin is not None:
            print_row("name", f"{source.origin.name}, commit {source.origin.commit}")
        print_row("path", str(source.path))
        print_row("checksum", f"sha256 {checksum(source.path)}, of the files that are read")
        print_model(model, kind)
        if source.longest is not None:
            print_row("long context", f"up to {source.longest} tokens with --long-context, or long_context=True")


def print_model(model: Model, kind: str) -> None:
    """Print the class that serves a model for this kind of use, and a table for each part of the model."""
    print_row("kind", f"{kind}, by {CLASS_OF_KIND[kind]}")
    for name, part in model.parts.items():
        if len(model.parts) > 1 or model.decoder is not None:
            print(name)
        _print_part(part)


def _print_part(model: Transformer) -> None:
    """Print a row for each fact of an encoder or a decoder: its layers, weights, heads, and how it reads text."""
    c, text = model.config, model.text
    parameters = sum(math.prod(shape) for shape in expected_shapes(c).values())
    size = sum(array.nbytes for array in model.weights.values())
    print_row("family", c.family)
    if c.num_layers:
        print_row("layers", f"{c.num_layers}, width {c.hidden_size}, {c.num_heads} heads of {c.head_width}, "
                            f"feed-forward {c.ffn_size}, {c.activation}")
    else:
        print_row("layers", f"none: the vector of a token is a row of the table, width {c.hidden_size}")
    for program in programs_of(c):
        for label, formulas in outline(program):
            print_row(label, formulas)
    print_row("tables", f"{c.vocab_size} words, {c.max_positions} positions, {c.token_types} token types")
    print_row("parameters", f"{parameters / 1e6:.1f} million, {size / 1e6:.1f} MB in memory")
    linear, tables = _stored(model, "linear"), _stored(model, "table")
    of_tables = "" if tables in ("", linear) else f"tables in {tables}"
    print_row("precision", ", ".join(filter(None, [linear, of_tables])))
    if c.decodes:
        print_row("cache", _cache_bytes(model))
    if model.layout is not None:
        print_row("packed", str(model.layout))
    if model.heads:
        print_row("heads", ", ".join(head.config.describe() for head in model.heads))
        for head in model.heads:
            if head.config.labels:
                print_row(f"labels ({head.config.task})", listed(head.config.labels))
    if model.calibrations:
        print_row("calibrated for", ", ".join(one.task for one in model.calibrations))
    if model.stem is not None:
        print_row("input", f"{model.stem.given}: {model.stem.expected} for each")
        if isinstance(model.stem, Patches):
            print_row("images", "no preprocessor_config.json, so that pixels alone are read" if model.images is None
                      else model.images.describe())
        return
    if text is None:
        print_row("text", "no tokenizer; token ids only")
        return
    limit = text.max_seq_length or c.longest_sequence
    modules = "".join(f", {_module(module)}" for module in model.modules)
    tokens = f"{'up to ' + str(limit) if limit else 'any number of'} tokens"
    before = "".join(f", {_module(module)}" for module in model.token_modules)
    vector = f"{before}, pooling {'+'.join(text.pooling)}{modules}{', normalised' if text.normalize else ''}"
    if text.late is not None:
        vector = f"{before}, a vector for each token, {text.similarity}"
    print_row("text", tokens if c.decodes else tokens + vector)
    if text.prompts:
        print_row("prompts", ", ".join(text.prompts))


def _module(module: Module) -> str:
    """Return a short name of a module before or after pooling, with its width if it is a linear map."""
    name = {Dense: "dense", LayerNorm: "layer norm", Normalize: "normalised"}[type(module)]
    return f"{name} to {len(module.weight)}" if isinstance(module, Dense) else name


def _cache_bytes(model: Transformer) -> str:
    """Return a text with the bytes that the keys and values of a token take in each precision of a cache."""
    c = model.config
    parts = [f"{name} {cached_bytes(2 * c.num_layers * c.kv_heads, c.head_width, name):,}" for name in CACHED]
    return f"bytes a token: {', '.join(parts)}; {FORMATS[model.precision].cache} unless --cache says otherwise"


def _stored(model: Transformer, kind: str) -> str:
    """Return the precisions in which parameters of this kind, "linear" or "table", are stored, joined by "and"."""
    parameters = parameters_of(model.config)
    if kind == "linear" and model.layout is not None:
        return model.layout.precision
    dtypes = {model.weights[name].dtype for name, parameter in parameters.items() if parameter.kind == kind}
    return " and ".join(sorted(STORED[dtype] for dtype in dtypes))
