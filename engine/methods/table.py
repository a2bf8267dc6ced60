"""The methods of models with an encoder, by their names."""

from __future__ import annotations

from typing import Any

from .answer import ANSWER
from .classify import CLASSIFY
from .encode import ENCODE
from .encode_sparse import ENCODE_SPARSE
from .encode_tokens import ENCODE_TOKENS
from .fill_mask import FILL_MASK
from .method import Method
from .pairs import PREDICT, RANK
from .tag import TAG

METHODS: dict[str, Method[Any]] = {method.name: method for method in (
    ENCODE, ENCODE_SPARSE, ENCODE_TOKENS, CLASSIFY, PREDICT, RANK, TAG, ANSWER, FILL_MASK)}
STREAMED: dict[str, Method[Any]] = {method.streamed: method for method in METHODS.values() if method.streamed}
"""The method that computes each kind of result of `Engine.encode_stream` and of the command `engine embed`."""
