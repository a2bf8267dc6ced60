"""Implement `engine serve`: load models, and answer requests for them over HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from ..base.arguments import positive_int
from ..base.errors import InputError, listed
from ..base.install import require_server
from ..files.reading import mapped_files
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.load import load
from ..interface.reranker import Reranker
from ..interface.transcriber import Transcriber
from ..loading.hub import as_name
from ..loading.load import choose_kind, find_model, open_source
from ..loading.model_files import checksum
from ..server.settings import Settings
from .console import MODEL_OR_GGUF, add_model, run_options

AnyModel: TypeAlias = Engine | Reranker | Generator | Transcriber
Names: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""The names by which requests ask for a model: answers show the first tuple of them, and never the second one."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine serve`, except those of the backend and the precision."""
    add_model(command, MODEL_OR_GGUF, nargs="+")
    command.add_argument("--host", help="address to listen at; by default 127.0.0.1, which this "
                         "machine alone reaches")
    command.add_argument("--port", type=int, help="port to listen at; by default 8080, and 0 for a free one")
    command.add_argument("--uds", metavar="PATH", help="Unix socket to listen at, in place of a port")
    command.add_argument("--api-key-file", metavar="FILE", help="file with the keys that clients may have, one a line, "
                         "or sha256: and the hash of one. The key in the variable ENGINE_API_KEY holds beside them; "
                         "without any key every client is served")
    command.add_argument("--served-model-name", action="append", metavar="NAME", help="name of the model in requests; "
                         "may come several times, and by default it is the last part of the path MODEL. Of several "
                         "models, each has one of the names, in their order")
    command.add_argument("--memory", choices=("map", "copy"), default="map", help="map leaves the weights in the file, "
                         "so nobody may write to it; copy reads the file into memory. By default map")
    command.add_argument("--max-batch-tokens", type=int, default=Settings.max_batch_tokens, metavar="N",
                         help="the most tokens that are computed at a time; by default "
                         f"{Settings.max_batch_tokens}, and more is slower for each and faster for all")
    command.add_argument("--max-text-tokens", type=int, metavar="N", help="the most tokens of one text, which is read "
                         "at once, so that others wait for it; by default as many as the model reads, or 8192 for a "
                         "model without a limit")
    command.add_argument("--max-wait", type=float, default=Settings.max_wait, metavar="SECONDS",
                         help="refuse a request with 429 whose first answer would wait longer; by default "
                         f"{Settings.max_wait:g}")
    command.add_argument("--timeout", type=float, metavar="SECONDS", help="how long a request may take, which the "
                         "header x-request-timeout shortens; by default 60, and 600 for a text that a model writes, "
                         "also of a recording")
    command.add_argument("--cache-tokens", type=int, metavar="N", help="the most tokens in the cache of a model that "
                         "writes texts; by default as many as a quarter of the memory has room for")
    command.add_argument("--keep-tokens", type=int, metavar="N", help="the most tokens of prompts and answers that "
                         "such a model keeps for later prompts that begin alike; by default 4096")
    command.add_argument("--max-rows", type=int, metavar="N", help="the most answers that such a model writes at a "
                         "time; by default 64")
    command.add_argument("--max-body-bytes", type=int, default=Settings.max_body, metavar="N", help="the most bytes of "
                         f"the body of a request; by default {Settings.max_body}")
    command.add_argument("--max-recording-bytes", type=int, default=Settings.max_recording, metavar="N",
                         help="the most bytes of the body of a request with a recording; by default "
                         f"{Settings.max_recording}")


def serve(args: argparse.Namespace) -> None:
    """Load the models, and serve them until the process gets SIGTERM or SIGINT."""
    require_server("uvicorn")
    from ..server.keys import KEY_VARIABLE, ApiKeys
    from ..server.start import bind  # here: the other commands need none of these packages

    names = _all_names(args)
    settings = _settings(args, names[0])
    keys = ApiKeys.of(args.api_key_file, os.environ.get(KEY_VARIABLE))
    with bind(settings) as listener:
        models = [_model(args, path) for path in args.model]
        _run(models, names, settings, keys, listener)


def _settings(args: argparse.Namespace, names: Names) -> Settings:
    """Return the settings of the server from the arguments. names: of the first model. Raises `InputError`."""
    if args.uds is not None and (args.host is not None or args.port is not None):
        raise InputError("--uds and --host or --port both say where to listen; give one of them")
    host = Settings.host if args.host is None else args.host
    port = Settings.port if args.port is None else args.port
    times = {} if args.timeout is None else {"timeout": args.timeout, "text_timeout": args.timeout}
    return Settings(host, port, uds=args.uds, names=names[0], silent_names=names[1],
                    max_batch_tokens=args.max_batch_tokens, max_wait=args.max_wait, max_body=args.max_body_bytes,
                    max_recording=args.max_recording_bytes, **times)


def _all_names(args: argparse.Namespace) -> list[Names]:
    """Return the names of each model, in order; raises `InputError` if two models have one name."""
    stated, models = args.served_model_name, args.model
    if len(models) == 1:
        return [(tuple(dict.fromkeys(stated)), ()) if stated else _names(models[0])]
    if args.kind is not None or args.task is not None:
        raise InputError("--kind and --task say what one model is for; serve one model with them, or leave them out")
    if stated and len(stated) != len(models):
        raise InputError(f"there are {len(models)} models and {len(stated)} names; give --served-model-name once for "
                         "each model, in their order, or not at all")
    names: list[Names] = [((name,), ()) for name in stated] if stated else [_names(model) for model in models]
    first = [shown for shown, _ in names]
    if len(set(first)) < len(first):
        raise InputError(f"two models have the name {listed(next(one for one in first if first.count(one) > 1))}; give "
                         "--served-model-name once for each model")
    return names


def _names(model: str) -> Names:
    """Return the default names of a model, and the names that no answer shows.

    For a path these are its last part, and the whole path; for a name on the hub the name, and its last part.
    """
    last = os.fsencode(os.path.basename(os.path.abspath(model))).decode("utf-8", "replace") or "model"
    return ((model,), (last,)) if as_name(model) and not os.path.lexists(model) else ((last,), (model,))


def _model(args: argparse.Namespace, path: str) -> AnyModel:
    """Return the model at a path, loaded with the options and limits of the command line."""
    options = run_options(args, "revision", "kind", "memory", *(["task"] if args.task is not None else []))
    most = None if args.max_text_tokens is None else positive_int("--max-text-tokens", args.max_text_tokens)
    source: Any = open_source(path, args.memory, args.revision)
    kind = choose_kind(source, args.kind)
    if kind == "generate":
        options |= {name: getattr(args, name) for name in ("cache_tokens", "keep_tokens", "cache", "long_context")}
        options |= {} if args.max_rows is None else {"max_rows": args.max_rows}
    model: Any = load(source, **options)
    if isinstance(model, Engine):
        limit = min(most or model.max_seq_length or model.max_batch_tokens, model.max_seq_length or sys.maxsize)
        if limit > model.max_batch_tokens:      # a larger limit takes memory only once such a text comes
            model = load(source, **options, max_batch_tokens=limit)
        return model if model.text is None else model.limited_to(limit)
    if isinstance(model, Reranker) and most is not None:
        model = load(source, **options, max_length=most)
    served: AnyModel = model
    return served


def _run(models: Sequence[AnyModel], names: Sequence[Names], settings: Settings, keys: Any, listener: Any) -> None:
    """Make a service for each model, and answer requests on the bound socket until the process is told to stop.

    keys: an `ApiKeys`. listener: the bound socket. The imports stand here, as other commands need none of the packages.
    """
    from ..server import logs
    from ..server.mapped import MappedFiles
    from ..server.metrics import Metrics
    from ..server.served import Named, Served
    from ..server.service import Service
    from ..server.speech_service import SpeechService
    from ..server.start import run
    from ..server.text_service import TextService

    named: list[Named] = []
    for model, (shown, silent) in zip(models, names, strict=True):
        beside = named[0].service if named else None
        service: Any
        if isinstance(model, Generator):
            service = TextService(model, max_wait=settings.max_wait, beside=beside, checksum=_checksum(model))
        elif isinstance(model, Transcriber):
            service = SpeechService(model, max_wait=settings.max_wait, beside=beside)
        else:
            service = Service(model, max_batch_tokens=settings.max_batch_tokens, max_wait=settings.max_wait,
                              beside=beside)
        named.append(Named(service, shown, silent))
    infos = [{"model": shown[0], "precision": model.precision, "backend": model.backend}
             for model, (shown, _) in zip(models, names, strict=True)]
    metrics = Metrics([each.service for each in named], infos)
    run(Served(named[0].service, settings, keys, metrics, files=MappedFiles(mapped_files()), others=named[1:]),
        listener, lambda address: logs.announce(f"{' and '.join(one['model'] for one in infos)} "
                                                f"{'is' if len(infos) == 1 else 'are'} served at {address}"))


def _checksum(model: Generator) -> str:
    """Return the checksum of the files that a model was loaded from."""
    assert model.address is not None
    return checksum(find_model(*model.address)[0])
