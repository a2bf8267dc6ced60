"""The methods of models with an encoder, by their names."""

from __future__ import annotations

from typing import Any

from ..base.errors import UnsupportedError
from .answer import ANSWER
from .classify import CLASSIFY
from .encode import ENCODE
from .encode_sparse import ENCODE_SPARSE
from .encode_tokens import ENCODE_TOKENS
from .fill_mask import FILL_MASK
from .method import EncodingModel, Method
from .pairs import PREDICT, RANK
from .tag import TAG

METHODS: dict[str, Method[Any]] = {method.name: method for method in (
    ENCODE, ENCODE_SPARSE, ENCODE_TOKENS, CLASSIFY, PREDICT, RANK, TAG, ANSWER, FILL_MASK)}
STREAMED: dict[str, Method[Any]] = {method.streamed: method for method in METHODS.values() if method.streamed}
"""The method that computes each kind of result of `Engine.encode_stream` and of the command `engine embed`."""



def methods_of(model: EncodingModel) -> dict[str, Method[Any]]:
    """Return the methods that a model has what they need for; none for a model that reads no texts."""
    return {} if model.text is None else {name: method for name, method in METHODS.items() if _fits(method, model)}


def _fits(method: Method[Any], model: EncodingModel) -> bool:
    try:
        method.needs(model)
    except UnsupportedError:
        return False
    return True
