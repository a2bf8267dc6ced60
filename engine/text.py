"""Tokenize sentences with the model's own tokenizer, and group them into batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from .checks import is_one_of
from .config import TextConfig
from .endings import finish, resized
from .errors import InputError, UnsupportedError, WeightsError, shown
from .installation import install_command
from .pairs import Frame, PairEncoding, find_frame

LOG = logging.getLogger("engine")

Sentence: TypeAlias = str | tuple[str, str]
"""A text, or a pair of texts that the model reads together as one sequence."""

SLICE_SENTENCES = 4096
SLICE_CHARACTERS = 2**20
"""Limits on the sentences tokenized at one time, unless one sentence alone exceeds them.

They bound the memory: a result of `tokenizers` takes about 100 bytes per token.
"""

_NO_LIMIT = 2**31 - 1
"""A number of tokens that is no limit, and the largest token id."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of some sentences."""

    input_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence, special tokens included."""
    token_type_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence: the text of a pair, 0 or 1, that each token belongs to."""


START_CHARACTERS = 8
"""How many characters of a long text are tokenized first, for each token that is kept."""
MAX_CHARACTERS = 2**18
"""Limit on the characters of one text that are tokenized to find the tokens that are kept; 260 bytes for each."""


_CUT_MARGIN = 64
"""How many characters beside a cut are uncertain, beyond the longest added token and pattern of a normalizer."""


@dataclass(frozen=True)
class _Part:
    """The start of a text, or its end where the tokenizer keeps the end, and how much is known of its tokens."""

    text: str
    tokens: int
    """Number of its tokens."""
    certain: int
    """Number of its first tokens that the whole text has too. The last two words may go on after the cut."""
    whole: bool


class Tokenizer:
    """A model's tokenizer, which truncates and does not pad. Several threads may call it at once."""

    def __init__(self, text: TextConfig, max_tokens: int | None, threads: int):
        """Load the tokenizer; it truncates sentences to the smaller of `text.max_seq_length` and `max_tokens`.

        A limit that is None is ignored. With threads=1 the caller's thread does all the work; otherwise `tokenizers`
        chooses the number of threads.
        """
        from .growth import check_tokenizer  # here, because `import engine` shall stay light

        self._text, self._threads = text, threads
        self._margin = _CUT_MARGIN + check_tokenizer(text.tokenizer_json)
        self._tokenizer = _load(text)
        limits = [min(limit, _NO_LIMIT) for limit in (text.max_seq_length, max_tokens) if limit is not None]
        self._limit = min(limits, default=_NO_LIMIT)
        self._check_room(is_pair=False)
        with _failures("counts its special tokens"):
            special = self._tokenizer.num_special_tokens_to_add(is_pair=True)
        direction = (self._tokenizer.truncation or {}).get("direction", "right")
        self._from_right = direction == "left"
        self._even = (self._limit - special) % 2 == 0
        self._tokenizer.no_padding()
        if limits:
            self._tokenizer.enable_truncation(self._limit, direction=direction)
        else:
            self._tokenizer.no_truncation()

    def __call__(self, sentences: Sequence[Sentence]) -> Tokens:
        """Tokenize sentences that `check_sentences` has returned."""
        encodings = self._encode(sentences)
        ids = [finish(self._text, self._known(_int32(e.ids)), self._limit) for e in encodings]
        return Tokens(ids, [resized(_int32(e.type_ids), len(i), 0) for e, i in zip(encodings, ids, strict=True)])

    def _known(self, ids: np.ndarray) -> np.ndarray:
        """Return ids with `unknown_id` in the place of ids that the model does not know."""
        known, unknown = self._text.known_ids, self._text.unknown_id
        return np.where(ids < known, ids, np.int32(unknown)) if known else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        with _failures("turns ids into text"):
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt_length(self, prompt: str) -> int:
        """Return the number of tokens that a prompt puts at the start of a sentence, special tokens included."""
        [encoding] = self._encode([prompt])
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        ids = encoding.ids
        return len(ids) - 1 if ids and ids[-1] in special else len(ids)

    def _check_room(self, is_pair: bool) -> None:
        """Raise `WeightsError` if the length limit is below the number of special tokens."""
        with _failures("counts its special tokens"):
            special = self._tokenizer.num_special_tokens_to_add(is_pair=is_pair)
        if self._limit < special:
            what = "a pair of texts" if is_pair else "a text"
            raise WeightsError(
                f"the model's length limit of {self._limit} tokens is below the {special} special tokens of {what}; "
                "correct max_seq_length in the model folder"
            )

    def _encode(self, sentences: Sequence[Sentence]) -> list[Any]:
        if not all(isinstance(sentence, str) for sentence in sentences):
            self._check_room(is_pair=True)
        sentences = [self._cut(sentence) for sentence in sentences]
        with _failures("reads a text"):
            if self._threads > 1 and len(sentences) > 1 and not any(map(self._is_long_pair, sentences)):
                return list(self._tokenizer.encode_batch_fast(sentences))
            return [self._encode_one(sentence) for sentence in sentences]

    def _encode_one(self, sentence: Sentence) -> Any:
        if isinstance(sentence, str):
            return self._tokenizer.encode(sentence)
        return self._encode_long_pair(sentence) if self._is_long_pair(sentence) else self._tokenizer.encode(*sentence)

    def _is_long_pair(self, sentence: Sentence) -> bool:
        return not isinstance(sentence, str) and len(sentence[0]) * len(sentence[1]) > (4 * self._limit) ** 2

    def _encode_long_pair(self, pair: tuple[str, str]) -> PairEncoding:
        first, second = (self._tokenizer.encode(text, add_special_tokens=False) for text in pair)
        if self._frame is None:
            raise InputError(f"a pair of {len(pair[0]):,} and {len(pair[1]):,} characters is too long for this model's "
                             "tokenizer; shorten it")
        return self._frame.join((first, second), self._limit, self._from_right)

    @cached_property
    def _frame(self) -> Frame | None:
        tokenizer = _load(self._text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return find_frame(tokenizer)

    def _cut(self, sentence: Sentence) -> Sentence:
        """Return a sentence without text that truncation would remove: the tokens that are kept stay the same.

        `tokenizers` reads the whole of a text before it truncates. Raises `InputError` for a text with too few tokens
        in its first `MAX_CHARACTERS`, and for a pair if its first characters do not show which text has more tokens.
        """
        start = START_CHARACTERS * self._limit
        texts = (sentence,) if isinstance(sentence, str) else sentence
        if max(map(len, texts)) <= start:
            return sentence
        parts: list[list[_Part]] = [[] for _ in texts]
        size = start
        while not self._suffice([found[-1] for found in parts if found]):
            if parts[0] and size > max(MAX_CHARACTERS, 4 * start):
                longest = max(texts, key=len)
                fault = "has too few tokens"
                if all(self._enough(found[-1]) for found in parts):
                    fault = "and the other text of its pair do not show which of them has more tokens"
                raise InputError(f"a text of {len(longest):,} characters, {shown(longest[:100])}, {fault} in "
                                 f"{size // 2:,} characters, which is the limit; shorten it")
            for found, text in zip(parts, texts, strict=True):
                if not (found and found[-1].whole):
                    found.append(self._part(text, size))
            size *= 2
        if len(texts) == 1:
            return parts[0][-1].text
        longer = parts[0][-1].tokens > parts[1][-1].tokens
        pairs = sorted(product(*parts), key=lambda pair: len(pair[0].text) + len(pair[1].text))
        first, second = next(pair for pair in pairs if all(self._enough(part) for part in pair)
                             and (pair[0].tokens > pair[1].tokens) == longer)
        return first.text, second.text

    def _suffice(self, parts: list[_Part]) -> bool:
        """Return whether these parts of all texts of a sentence give the tokens that the whole texts give."""
        if not parts or not all(self._enough(part) for part in parts):
            return False
        if len(parts) == 1 or self._even or all(part.whole for part in parts):
            return True
        # Of an odd number of tokens, the text that has more tokens gets one more: which has more must be certain.
        one, other = parts
        return (one.whole and other.certain > one.tokens) or (other.whole and one.certain > other.tokens)

    def _enough(self, part: _Part) -> bool:
        return part.whole or part.certain >= self._limit

    def _part(self, text: str, size: int) -> _Part:
        """Tokenize `size` characters of a text, from the side that truncation keeps."""
        part = text[-size:] if self._from_right else text[:size]
        with _failures("reads a text"):
            encoding = self._tokenizer.encode(part, add_special_tokens=False)
        encodings = (encoding, *encoding.overflowing)
        words = np.array([-1 if word is None else word for one in encodings for word in one.word_ids], np.int64)
        places = np.array([place for one in encodings for place in one.offsets], np.int64).reshape(-1, 2)
        if self._from_right:
            certain = (words >= 2) & (places[:, 0] >= self._margin)
        else:
            certain = (words <= words.max(initial=0) - 2) & (places[:, 1] <= len(part) - self._margin)
        return _Part(part, len(words), int(certain.sum()), len(part) == len(text))


def _load(text: TextConfig) -> Any:
    tokenizers = require("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(text.tokenizer_json)
    except BaseException as error:
        if not _is_failure(error):
            raise
        raise WeightsError(
            f"the model's tokenizer.json cannot be read by tokenizers {tokenizers.__version__}: {_cut_message(error)}"
        ) from error
    _check_added_tokens(tokenizer)
    if text.lower_case:
        steps = [tokenizers.normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
        tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    return tokenizer


def _check_added_tokens(tokenizer: Any) -> None:
    """Refuse an added token of which the normalizer leaves nothing: `tokenizers` then searches for it without end."""
    with _failures("normalizes its added tokens"):
        for token in tokenizer.get_added_tokens_decoder().values() if tokenizer.normalizer else ():
            if token.normalized and not tokenizer.normalizer.normalize_str(token.content):
                raise WeightsError(f"the normalizer of the model's tokenizer.json leaves nothing of the added token "
                                   f"{shown(token.content)}; remove the token")


def _is_failure(error: BaseException) -> bool:
    """Return whether an error comes from `tokenizers`, which documents none: a panic of Rust is a BaseException."""
    return type(error) in (Exception, ValueError, TypeError, OverflowError) or type(error).__name__ == "PanicException"


def _cut_message(error: BaseException) -> str:
    text = str(error)
    return text if len(text) <= 300 else text[:297] + "..."


@contextmanager
def _failures(when: str) -> Iterator[None]:
    """Convert what `tokenizers` raises to a `WeightsError`."""
    try:
        yield
    except BaseException as error:
        if not _is_failure(error):
            raise
        raise WeightsError(f"the model's tokenizer fails when it {when}: {_cut_message(error)}") from error


def _int32(numbers: list[int]) -> np.ndarray:
    array = np.array(numbers, np.int64)
    if array.size and array.max() > _NO_LIMIT:
        raise WeightsError(f"the model's tokenizer gives the token id {array.max()}, which no vocabulary reaches")
    return array.astype(np.int32)


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
        for start in range(0, len(text), SLICE_CHARACTERS):
            text[start : start + SLICE_CHARACTERS].encode()
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
        if prompt_name is None or not is_one_of(prompt_name, text.prompts):
            known = ", ".join(map(repr, text.prompts)) or "it has none"
            raise InputError(f"the model has no prompt called {shown(prompt_name)}; its prompts: {known}")
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
def progress(total: int, show: bool | None, name: str = "Sentences",
             unit: str = " sentences") -> Iterator[Callable[[int], object]]:
    """Show a progress bar over `total` of a unit; yields a function to call with the number just completed.

    If `show` is None, the bar appears when the log level is INFO or DEBUG and tqdm is installed.
    """
    if show is None:
        show = LOG.getEffectiveLevel() in (logging.INFO, logging.DEBUG) and find_spec("tqdm") is not None
    if show:
        with require("tqdm").tqdm(total=total, desc=name, unit=unit) as bar:
            yield bar.update
    else:
        yield lambda done: None


def _shown(value: Any) -> str:
    """Return a value's type and its repr, cut to 60 characters, for an error message."""
    return f"{type(value).__name__} {shown(value, 60)}"
