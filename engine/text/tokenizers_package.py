"""Load tokenizers and decoders of the package `tokenizers`, and turn its exceptions into errors of the engine."""

from __future__ import annotations

import json
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..base.install import install_command, require
from ..model.text_config import TextConfig
from .incremental import DecodeTokens

NO_LIMIT = 2**31 - 1
"""A number of tokens that is no limit, and the largest token id."""


def tokenizers_package() -> ModuleType:
    """Return the package `tokenizers`; raises `UnsupportedError` if it is missing, or a release with a known fault."""
    tokenizers = require("tokenizers")
    _check_release(tokenizers)
    return tokenizers


@cache
def _check_release(tokenizers: ModuleType) -> None:
    """Refuse a release that stops at the limit of a text: it makes no further windows, and does not report the cut."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.enable_truncation(2)
    if len(words.encode("a a a a").overflowing) != 1:       # 0.23.1 and 0.23.2 have none
        raise UnsupportedError(f"tokenizers {tokenizers.__version__} loses tokens behind the limit of a text, so it "
                               f"would be cut in silence; for another release, {install_command('text')}")


def load_tokenizer(text: TextConfig) -> Any:
    """Return the `tokenizers.Tokenizer` of these settings; raises `WeightsError` for a file that it cannot read."""
    tokenizers = tokenizers_package()
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(text.tokenizer_json)
    except BaseException as error:
        if not _is_failure(error):
            raise
        raise WeightsError(f"the model's tokenizer.json cannot be read by tokenizers {tokenizers.__version__}: "
                           f"{_cut_message(error)}") from error
    _check_added_tokens(tokenizer)
    if text.lower_case:
        steps = [tokenizers.normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    if not text.special_tokens:
        tokenizer.post_processor = None     # it also changes offsets, which a model without heads does not need
    return tokenizer


def make_decoder(step: dict[str, Any]) -> DecodeTokens:
    """Return the function of one decoder. step: its settings in a tokenizer.json."""
    tokenizers = tokenizers_package()
    document = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()) | {"decoder": step}
    decoder = tokenizers.Tokenizer.from_str(json.dumps(document)).decoder

    def decode(tokens: list[str]) -> str:
        with failures("turns tokens into text"):
            return str(decoder.decode(tokens))

    return decode


def _check_added_tokens(tokenizer: Any) -> None:
    """Refuse an added token that the normalizer makes empty, because `tokenizers` would search for it without end."""
    with failures("normalizes its added tokens"):
        for token in tokenizer.get_added_tokens_decoder().values() if tokenizer.normalizer else ():
            if token.normalized and not tokenizer.normalizer.normalize_str(token.content):
                raise WeightsError(f"the normalizer of the model's tokenizer.json leaves nothing of the added token "
                                   f"{shown(token.content)}; remove the token")


class failures:  # noqa: N801, as it is called in `with` statements
    """Convert the exceptions of `tokenizers` in a `with` block to `WeightsError`; one object serves many blocks."""

    __slots__ = ("_when",)

    def __init__(self, when: str):
        """when: the words of the message for what the tokenizer does in the block, such as "reads a text"."""
        self._when = when

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and _is_failure(error):
            raise WeightsError(f"the model's tokenizer fails when it {self._when}: {_cut_message(error)}") from error


def _is_failure(error: BaseException) -> bool:
    """Return whether an error comes from `tokenizers`, which documents no types; a panic of Rust is a BaseException."""
    return type(error) in (Exception, ValueError, TypeError, OverflowError) or type(error).__name__ == "PanicException"


def _cut_message(error: BaseException) -> str:
    """Return the message of an error, cut to 300 characters."""
    text = str(error)
    return text if len(text) <= 300 else text[:297] + "..."


def int32_ids(numbers: list[int]) -> np.ndarray:
    """Return token ids, or token types, as int32 [T]; raises `WeightsError` for larger numbers."""
    if max(numbers, default=0) > NO_LIMIT:
        raise WeightsError(f"the model's tokenizer gives the token id {max(numbers)}, which no vocabulary reaches")
    return np.array(numbers, np.int32)
