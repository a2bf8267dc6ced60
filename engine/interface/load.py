"""`load`: read a model, and return an `Engine`, `Generator`, `Transcriber` or `Reranker` for it."""

from __future__ import annotations

import os
from inspect import signature
from typing import Any

from ..base.arguments import renamed_arguments
from ..base.errors import InputError, listed, nearest
from .engine import Engine
from .generator import Generator
from .reranker import Reranker
from .transcriber import Transcriber

SERVES: dict[str, type[Engine] | type[Generator] | type[Reranker] | type[Transcriber]] = {
    "encode": Engine,
    "generate": Generator,
    "rank": Reranker,
    "transcribe": Transcriber,
}
"""The class that serves each kind of use."""


@renamed_arguments
def load(path: str | os.PathLike[str], *, kind: str | None = None, cache_tokens: int | None = None,
         **options: Any) -> Engine | Generator | Reranker | Transcriber:
    """Load a model, and return the object that serves it: an `Engine`, `Generator`, `Reranker` or `Transcriber`.

    path: a folder of Hugging Face, of sentence-transformers or of CTranslate2, an `.npz` or a `.gguf`; or
        the name of a model on the Hugging Face hub, with `revision` among the options, as in `Engine.load`.
    kind: "encode", "generate", "rank" or "transcribe"; None reads the kind from the files. If a model fits two kinds,
        as T5 and Qwen3 do, modules.json or the key architectures of config.json decides.
    cache_tokens, options: the options of the `load` of the class, which explains each; a `Generator` alone has
        cache_tokens.

    Raises `InputError` for an option that the class lacks, and the errors of the `load` of the class.
    """
    from ..loading.load import choose_kind, open_source  # here, because `import engine` shall stay light

    source = open_source(path, options.get("memory", "map"), options.get("revision"))
    served = SERVES[choose_kind(source, kind)]
    known = list(signature(served.load).parameters)[1:]     # all but the path
    if cache_tokens is not None:
        options["cache_tokens"] = cache_tokens
    if unknown := [name for name in options if name not in known]:
        raise InputError(f"{served.__name__}.load has no option {listed(unknown)}{nearest(unknown[0], known)}; it has "
                         f"{listed(known)}")
    opened: Any = source        # `load` also takes a path that was opened already, so nothing is read twice
    return served.load(opened, **options)
