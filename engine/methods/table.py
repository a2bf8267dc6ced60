"""Tables of all methods by their names, and the methods that a model has, for the classes of `interface/`."""

from __future__ import annotations

from typing import Any

from ..base.errors import UnsupportedError
from .answer import ANSWER
from .chat import CHAT
from .classify import CLASSIFY
from .decoding import DecoderMethod, GeneratingModel
from .encode import ENCODE
from .encode_sparse import ENCODE_SPARSE
from .encode_tokens import ENCODE_TOKENS
from .fill_mask import FILL_MASK
from .generate import GENERATE
from .method import EncodingModel, Method, NamedMethod
from .pairs import PREDICT, RANK
from .rerank import RERANKER_PREDICT, RERANKER_RANK
from .score import SCORE
from .tag import TAG
from .transcribe import TRANSCRIBE
from .translate import TRANSLATE

METHODS: dict[str, Method[Any]] = {method.name: method for method in (
    ENCODE, ENCODE_SPARSE, ENCODE_TOKENS, CLASSIFY, PREDICT, RANK, TAG, ANSWER, FILL_MASK)}
STREAMED: dict[str, Method[Any]] = {method.streamed: method for method in METHODS.values() if method.streamed}
"""The method for each name of results of `Engine.encode_stream` and of the command `engine embed`."""
RERANKING: dict[str, Method[Any]] = {method.name: method for method in (RERANKER_PREDICT, RERANKER_RANK)}
"""The methods of a `Reranker`, which has its own calibration, and whose model may be a language model."""
GENERATING: dict[str, DecoderMethod[Any, Any]] = {method.name: method for method in (GENERATE, SCORE, CHAT, TRANSLATE)}
"""The methods of a `Generator`."""
TRANSCRIBING: dict[str, DecoderMethod[Any, Any]] = {TRANSCRIBE.name: TRANSCRIBE}
"""The method of a `Transcriber`."""


def methods_of(model: EncodingModel) -> dict[str, Method[Any]]:
    """Return the methods that a model can run, by name; without a tokenizer, only methods that read images."""
    readable = {name: method for name, method in METHODS.items()
                if model.text is not None or (model.reads_images and method.prepare_images is not None)}
    return {name: method for name, method in readable.items() if _fits(method, model)}


def generating_methods_of(model: GeneratingModel) -> dict[str, DecoderMethod[Any, Any]]:
    """Return the methods that a model that generates can run, by name."""
    return {name: method for name, method in GENERATING.items() if _fits(method, model)}


def _fits(method: NamedMethod[Any], model: Any) -> bool:
    """Return whether a model has what a method needs."""
    try:
        method.needs(model)
    except UnsupportedError:
        return False
    return True
