"""Implement `engine serve`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ..base.arguments import positive_int
from ..base.errors import InputError, UnsupportedError
from ..base.install import require_server
from ..files.reading import mapped_files
from ..interface.engine import Engine
from ..interface.load import load
from ..interface.reranker import Reranker
from ..loading.hub import as_name
from .console import add_model, run_options

if TYPE_CHECKING:
    from ..server.settings import Settings


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine serve`, except those of the backend and the precision."""
    add_model(command)
    command.add_argument("--host", help="address to listen at; by default 127.0.0.1, which this "
                         "machine alone reaches")
    command.add_argument("--port", type=int, help="port to listen at; by default 8080, and 0 for a free one")
    command.add_argument("--uds", metavar="PATH", help="Unix socket to listen at, in place of a port")
    command.add_argument("--api-key-file", metavar="FILE", help="file with the keys that clients may have, one a line, "
                         "or sha256: and the hash of one. The key in the variable ENGINE_API_KEY holds beside them; "
                         "without any key every client is served")
    command.add_argument("--served-model-name", action="append", metavar="NAME", help="name of the model in requests; "
                         "may come several times, and by default it is the last part of the path MODEL")
    command.add_argument("--memory", choices=("map", "copy"), default="map", help="map leaves the weights in the file, "
                         "so nobody may write to it; copy reads the file into memory. By default map")
    command.add_argument("--max-batch-tokens", type=int, default=1024, metavar="N", help="the most tokens that are "
                         "computed at a time; by default 1024, and more is slower for each and faster for all")
    command.add_argument("--max-text-tokens", type=int, metavar="N", help="the most tokens of one text, which is read "
                         "at once, so that others wait for it; by default as many as the model reads, or 8192 for a "
                         "model without a limit")
    command.add_argument("--max-wait", type=float, default=2.0, metavar="SECONDS", help="refuse a request with 429 "
                         "whose first answer would wait longer; by default 2")
    command.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="how long a request may take, "
                         "which the header x-request-timeout shortens; by default 60")
    command.add_argument("--max-body-bytes", type=int, default=16_777_216, metavar="N", help="the most bytes of the "
                         "body of a request; by default 16777216")


def serve(args: argparse.Namespace) -> None:
    """Load a model, and serve it until the process gets SIGTERM or SIGINT."""
    require_server("uvicorn")
    from ..server.keys import KEY_VARIABLE, ApiKeys
    from ..server.start import bind  # here: the other commands need none of these packages

    settings = _settings(args)
    keys = ApiKeys.of(args.api_key_file, os.environ.get(KEY_VARIABLE))
    with bind(settings) as listener:
        model = _model(args)
        _run(model, settings, keys, listener)


def _settings(args: argparse.Namespace) -> Settings:
    from ..server.settings import Settings

    names, silent = (args.served_model_name, []) if args.served_model_name else _names(args.model)
    if args.uds is not None and (args.host is not None or args.port is not None):
        raise InputError("--uds and --host or --port both say where to listen; give one of them")
    host = Settings.host if args.host is None else args.host
    port = Settings.port if args.port is None else args.port
    return Settings(host, port, uds=args.uds, names=tuple(dict.fromkeys(names)), silent_names=tuple(silent),
                    timeout=args.timeout, max_batch_tokens=args.max_batch_tokens, max_wait=args.max_wait,
                    max_body=args.max_body_bytes)


def _names(model: str) -> tuple[list[str], list[str]]:
    """Return the names of a model that has none of its own, and the names that no answer shows.

    They are the last part of its path, and the path; or its name on the hub, and the last part of the name.
    """
    last = os.fsencode(os.path.basename(os.path.abspath(model))).decode("utf-8", "replace") or "model"
    return ([model], [last]) if as_name(model) and not os.path.lexists(model) else ([last], [model])


def _model(args: argparse.Namespace) -> Engine | Reranker:
    """Return the loaded model; raises `UnsupportedError` for one that writes texts."""
    options = run_options(args, "revision", "kind", "memory", *(["task"] if args.task is not None else []))
    most = None if args.max_text_tokens is None else positive_int("--max-text-tokens", args.max_text_tokens)
    model: Any = load(args.model, **options)
    if isinstance(model, Engine):
        limit = min(most or model.max_seq_length or model.max_batch_tokens, model.max_seq_length or sys.maxsize)
        if limit > model.max_batch_tokens:      # which costs memory only once such a text comes
            model = load(args.model, **options, max_batch_tokens=limit)
        return model.limited_to(limit)
    if isinstance(model, Reranker) and most is not None:
        model = load(args.model, **options, max_length=most)
    if not isinstance(model, Engine | Reranker):
        raise UnsupportedError(f"{args.model}: engine serve runs encoders and rerankers, and this model is for a "
                               f"{type(model).__name__}; --kind rank serves a language model that ranks")
    return model


def _run(model: Engine | Reranker, settings: Settings, keys: Any, listener: Any) -> None:
    from ..server import logs
    from ..server.mapped import MappedFiles
    from ..server.metrics import Metrics
    from ..server.served import Served
    from ..server.service import Service
    from ..server.start import run

    service = Service(model, max_batch_tokens=settings.max_batch_tokens, max_wait=settings.max_wait)
    info = {"model": settings.names[0], "precision": model.precision, "backend": model.backend}
    run(Served(service, settings, keys, Metrics(service, info), files=MappedFiles(mapped_files())), listener,
        lambda address: logs.announce(f"{settings.names[0]} is served at {address}"))
