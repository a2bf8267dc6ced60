"""Tokenize sentences with the model's own tokenizer, and group them into batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from .config import TextConfig
from .errors import InputError, UnsupportedError, WeightsError
from .installation import install_command

LOG = logging.getLogger("engine")

Sentence: TypeAlias = str | tuple[str, str]
"""A text, or a pair of texts that the model reads together as one sequence."""

SLICE_SENTENCES = 4096
SLICE_CHARACTERS = 2**20
"""Limits on the sentences tokenized at one time, unless one sentence alone exceeds them.

They bound the memory: a result of `tokenizers` takes about 100 bytes per token.
"""


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of some sentences."""

    input_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence, special tokens included."""
    token_type_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence: the text of a pair, 0 or 1, that each token belongs to."""


class Tokenizer:
    """A model's tokenizer, which truncates and does not pad. Several threads may call it at once."""

    def __init__(self, text: TextConfig, max_tokens: int | None, threads: int):
        """Load the tokenizer; it truncates sentences to the smaller of `text.max_seq_length` and `max_tokens`.

        A limit that is None is ignored. With threads=1 the caller's thread does all the work; otherwise `tokenizers`
        chooses the number of threads.
        """
        self._threads = threads
        self._tokenizer = _load(text)
        limits = [limit for limit in (text.max_seq_length, max_tokens) if limit is not None]
        self._limit = min(limits, default=None)
        self._check_room(is_pair=False)
        direction = (self._tokenizer.truncation or {}).get("direction", "right")
        self._tokenizer.no_padding()
        if self._limit is not None:
            self._tokenizer.enable_truncation(self._limit, direction=direction)
        else:
            self._tokenizer.no_truncation()

    def __call__(self, sentences: Sequence[Sentence]) -> Tokens:
        """Tokenize sentences that `check_sentences` has returned."""
        encodings = self._encode(sentences)
        return Tokens(
            [np.array(e.ids, np.int32) for e in encodings], [np.array(e.type_ids, np.int32) for e in encodings]
        )

    def prompt_length(self, prompt: str) -> int:
        """Return the number of tokens that a prompt puts at the start of a sentence, special tokens included."""
        [encoding] = self._encode([prompt])
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        ids = encoding.ids
        return len(ids) - 1 if ids and ids[-1] in special else len(ids)

    def _check_room(self, is_pair: bool) -> None:
        """Raise `WeightsError` if the length limit is below the number of special tokens."""
        special = self._tokenizer.num_special_tokens_to_add(is_pair=is_pair)
        if self._limit is not None and self._limit < special:
            what = "a pair of texts" if is_pair else "a text"
            raise WeightsError(
                f"the model's length limit of {self._limit} tokens is below the {special} special tokens of {what}; "
                "correct max_seq_length in the model folder"
            )

    def _encode(self, sentences: Sequence[Sentence]) -> list[Any]:
        if not all(isinstance(sentence, str) for sentence in sentences):
            self._check_room(is_pair=True)
        if self._threads > 1 and len(sentences) > 1:
            return list(self._tokenizer.encode_batch_fast(sentences))
        return [self._tokenizer.encode(*((s,) if isinstance(s, str) else s)) for s in sentences]


def _load(text: TextConfig) -> Any:
    tokenizers = require("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(text.tokenizer_json)
    except Exception as error:  # `tokenizers` documents no narrower class
        raise WeightsError(
            f"the model's tokenizer.json cannot be read by tokenizers {tokenizers.__version__}: {error}"
        ) from error
    if text.lower_case:
        steps = [tokenizers.normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    return tokenizer


def require(module: str) -> ModuleType:
    """Import a module of the [text] extra, or raise an `UnsupportedError` that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError(f"encode needs the package {module}; {install_command('text')}") from error


def check_sentences(sentences: Any) -> list[Sentence]:
    """Return the sentences as a list, or raise an `InputError` that names the first wrong one.

    Each must be a string or a pair of strings.
    """
    kind = type(sentences).__name__
    if isinstance(sentences, Mapping) or hasattr(sentences, "columns"):
        # A DataFrame of any library has columns. Its iterator yields their names, as a mapping's yields its keys.
        raise InputError(
            f"sentences must be a string or a list of strings, not {kind}; pass one of its columns or values as a list"
        )
    if getattr(sentences, "shape", None) == ():
        raise InputError(f"sentences must be a string or a list of strings, not {kind} without axes; pass str(...)")
    if isinstance(sentences, bytes) or not isinstance(sentences, Iterable):
        raise InputError(f"sentences must be a string or a list of strings, not {kind}")
    return [_check_sentence(i, sentence) for i, sentence in enumerate(sentences)]


def _check_sentence(i: int, sentence: Any) -> Sentence:
    if isinstance(sentence, str):
        return _check_unicode(f"sentence {i}", sentence)
    if isinstance(sentence, (tuple, list)) and len(sentence) == 2 and all(isinstance(text, str) for text in sentence):
        first, second = (_check_unicode(f"sentence {i}", text) for text in sentence)
        return first, second
    raise InputError(f"sentence {i} must be a string, or a pair of strings, not {_shown(sentence)}")


def _check_unicode(what: str, text: str) -> str:
    """Return the text, or raise `InputError` if it holds half of a surrogate pair, which `tokenizers` cannot read.

    Strings from file names and from JSON may hold one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not valid Unicode: {error}") from error
    return text


def add_prompt(prompt: str, sentences: list[Sentence]) -> list[Sentence]:
    """Put the prompt in front of each sentence, or of the first text of a pair."""
    return [prompt + s if isinstance(s, str) else (prompt + s[0], s[1]) for s in sentences]


def choose_prompt(text: TextConfig, prompt: str | None, prompt_name: str | None) -> str:
    """Return `prompt`, or else the model's prompt called `prompt_name`, or else its default prompt, or else "".

    Raises `InputError`.
    """
    if prompt is None and prompt_name is None:
        return text.prompts.get(text.default_prompt_name or "", "")
    if prompt is None:
        if prompt_name not in text.prompts:
            known = ", ".join(map(repr, text.prompts)) or "it has none"
            raise InputError(f"the model has no prompt called {prompt_name!r}; its prompts: {known}")
        return text.prompts[prompt_name]
    if not isinstance(prompt, str):
        raise InputError(f"prompt must be a string, not {_shown(prompt)}")
    if prompt_name is not None:
        LOG.warning("both prompt and prompt_name are given; prompt_name=%r is ignored", prompt_name)
    return _check_unicode("prompt", prompt)


def slices(sentences: list[Sentence]) -> Iterator[range]:
    """Yield ranges of consecutive sentences to tokenize at one time, within SLICE_SENTENCES and SLICE_CHARACTERS."""
    first = characters = 0
    for i, sentence in enumerate(sentences):
        size = len(sentence) if isinstance(sentence, str) else len(sentence[0]) + len(sentence[1])
        if i > first and (i - first == SLICE_SENTENCES or characters + size > SLICE_CHARACTERS):
            yield range(first, i)
            first, characters = i, 0
        characters += size
    if first < len(sentences):
        yield range(first, len(sentences))


def batches(lengths: list[int], max_tokens: int, batch_size: int | None) -> Iterator[list[int]]:
    """Group sequences into batches of at most `max_tokens` tokens and `batch_size` sequences, the longest ones first.

    Yields lists of indices into `lengths`. A sequence longer than `max_tokens` is a batch by itself.
    """
    batch: list[int] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (tokens + lengths[i] > max_tokens or len(batch) == batch_size):
            yield batch
            batch, tokens = [], 0
        batch.append(i)
        tokens += lengths[i]
    if batch:
        yield batch


@contextmanager
def progress(total: int, show: bool | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar over sentences; yields a function to call with the number of sentences just completed.

    If `show` is None, the bar appears when the log level is INFO or DEBUG and tqdm is installed.
    """
    if show is None:
        show = LOG.getEffectiveLevel() in (logging.INFO, logging.DEBUG) and find_spec("tqdm") is not None
    if show:
        with require("tqdm").tqdm(total=total, desc="Sentences", unit=" sentences") as bar:
            yield bar.update
    else:
        yield lambda done: None


def _shown(value: Any) -> str:
    """Return a value's type and its repr, cut to 60 characters, for an error message."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
