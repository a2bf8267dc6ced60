"""Check the sentences of a caller, put prompts in front of them, and group them into slices; methods/ call this."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from typing import Any, TypeAlias, overload

import numpy as np

from ..base.arguments import has_no_axes, is_one_of
from ..base.errors import InputError, shown
from ..base.ranges import ranges
from ..model.text_config import TextConfig

LOG = logging.getLogger("engine")

Sentence: TypeAlias = str | tuple[str, str]
"""A text, or a pair of texts that the model reads together as one sequence."""

SLICE_SENTENCES = 4096
SLICE_CHARACTERS = 2**20
"""Limits on the sentences that are tokenized at one time, unless one sentence alone exceeds them.

They bound the memory: a result of `tokenizers` takes about 100 bytes for each token.
"""


def check_sentences(sentences: Any, name: str = "sentences") -> list[Sentence]:
    """Return the sentences as a list, or raise an `InputError` that names the first wrong one.

    Each must be a string or a pair of strings. name: the caller's own argument, for messages: "sentences", "documents".
    """
    return [check_sentence(i, sentence, name) for i, sentence in enumerate(check_collection(sentences, name))]


def check_texts(texts: Any, name: str = "texts") -> list[str]:
    """Return texts as a list, or raise an `InputError` that names the first wrong one; a pair is wrong, too."""
    return [str(check_sentence(i, text, name, pairs=False)) for i, text in enumerate(check_collection(texts, name))]


def read_sentences(given: Any, name: str = "sentences") -> tuple[list[Sentence], bool]:
    """Return (the checked texts and pairs of a call, whether the caller gave a single string and not a list)."""
    if isinstance(given, str):
        return [check_sentence(0, given, name)], True
    return check_sentences(given, name), False


def read_texts(given: Any, name: str = "texts") -> tuple[list[str], bool]:
    """Return (the checked texts of a call, whether the caller gave a single string and not a list)."""
    if isinstance(given, str):
        return [str(check_sentence(0, given, name, pairs=False))], True
    return check_texts(given, name), False


def check_collection(sentences: Any, name: str = "sentences") -> Iterable[Any]:
    """Return `sentences` itself if it may hold sentences, or raise an `InputError`; its items are not read.

    name: the caller's own argument, for messages.
    """
    kind, expected = type(sentences).__name__, f"{name} must be a string or a list of strings"
    if isinstance(sentences, Mapping) and "text_pair" in sentences:
        raise InputError(f"{expected}, not {kind}; a pair of texts is a tuple in the list: [(text, text_pair)]")
    if isinstance(sentences, Mapping) or hasattr(sentences, "columns"):
        # A DataFrame of any library has columns. Its iterator yields their names, as a mapping's yields its keys.
        raise InputError(f"{expected}, not {kind}; pass one of its columns or values as a list")
    check_order(sentences, expected)
    if has_no_axes(sentences):
        raise InputError(f"{expected}, not {kind} without axes; pass str(...)")
    if isinstance(sentences, bytes) or not isinstance(sentences, Iterable):
        raise InputError(f"{expected}, not {_shown(sentences)}")
    return sentences


def check_order(items: Any, expected: str) -> None:
    """Raise `InputError` for a set: its order is by chance, so that the caller could not tell whose result is whose.

    The views of a dict have an order, so they are allowed. expected: the start of the message.
    """
    if isinstance(items, Set) and not isinstance(items, (MappingView, Sequence)):
        raise InputError(f"{expected}, not {type(items).__name__}, whose order is by chance, so that nobody could "
                         "tell whose result is whose; pass sorted(...) of it")


def listed_in_order(items: Any, expected: str) -> list[Any]:
    """Return an ordered collection as a list; raises `InputError` for anything else. expected: the message's start."""
    if isinstance(items, (str, bytes, Mapping)) or has_no_axes(items) or not isinstance(items, Iterable):
        raise InputError(f"{expected}, not {shown(items)}")
    check_order(items, expected)
    return list(items)


def check_sentence(i: int, sentence: Any, name: str = "sentences", *, pairs: bool = True) -> Sentence:
    """Return a string, or a pair of strings, with the plain type `str`; raises `InputError` for anything else.

    i: its number in the list. name: the caller's own argument, such as "sentences". pairs: whether it may be a pair.
    """
    if isinstance(sentence, str):
        return _check_unicode(sentence, name, i)
    is_row = isinstance(sentence, (tuple, list)) or getattr(sentence, "shape", None) == (2,)
    if pairs and is_row and len(sentence) == 2 and all(isinstance(text, str) for text in sentence):
        return _check_unicode(sentence[0], name, i), _check_unicode(sentence[1], name, i)
    missing = sentence is None or type(sentence).__name__ == "NAType" or (
        isinstance(sentence, (float, np.floating)) and sentence != sentence)        # NaN
    advice = f'; a table has such a value where a row has no text: leave the row out of {name}, or pass ""'
    expected = f"{_singular(name)} {i} must be a string{', or a pair of strings,' if pairs else ','}"
    raise InputError(f"{expected} not {_shown(sentence)}{advice if missing else ''}")


def check_text(name: str, text: Any) -> str:
    """Return one text with the plain type `str`; raises `InputError`. name: the caller's own argument."""
    if not isinstance(text, str):
        raise InputError(f"{name} must be a text, not {_shown(text)}")
    return _check_unicode(text, name)


def _singular(name: str) -> str:
    """Return the name of one item of an argument: "sentence" for "sentences"."""
    return name.removesuffix("s")


def _check_unicode(text: str, name: str, i: int | None = None) -> str:
    """Return the text as a `str`, or raise `InputError` for half of a surrogate pair, which `tokenizers` cannot read.

    Strings from file names and from JSON may hold one. name: the caller's own argument; i: the number of the text in
    it, if it has several.
    """
    try:
        if not str.isascii(text):
            for start in range(0, len(text), SLICE_CHARACTERS):     # in slices, because `encode` copies the text
                text[start : start + SLICE_CHARACTERS].encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name if i is None else f'{_singular(name)} {i}'} is not valid Unicode: {error}") from error
    return str.__str__(text)      # NumPy's texts, and other subclasses of str, become plain ones


def add_prompt(prompt: str, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
    """Return the sentences with the prompt in front of each, or of the first text of a pair.

    Each text with its prompt is made when it is read, because all of them together could need far too much memory.
    """
    return _Prompted(prompt, sentences) if prompt else sentences


class _Prompted(Sequence[Sentence]):
    """Sentences with a prompt in front of each, which are made when they are read."""

    def __init__(self, prompt: str, sentences: Sequence[Sentence]):
        self._prompt, self._sentences = prompt, sentences

    def __len__(self) -> int:
        return len(self._sentences)

    @overload
    def __getitem__(self, place: int) -> Sentence: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sentence]: ...
    def __getitem__(self, place: int | slice) -> Sentence | list[Sentence]:
        """Make one sentence with the prompt, or a list of some."""
        if isinstance(place, slice):
            return [self._with_prompt(sentence) for sentence in self._sentences[place]]
        return self._with_prompt(self._sentences[place])

    def _with_prompt(self, sentence: Sentence) -> Sentence:
        """Return a sentence with the prompt in front."""
        return self._prompt + sentence if isinstance(sentence, str) else (self._prompt + sentence[0], sentence[1])


def choose_prompt(text: TextConfig, prompt: str | None, prompt_name: str | None) -> str:
    """Return `prompt`, or else the model's prompt called `prompt_name`, or else its default prompt, or else "".

    Raises `InputError` for a name that the model does not have, and for a prompt that is no text.
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
    return _check_unicode(prompt, "prompt")


def characters_of(sentence: Any) -> int:
    """Return the number of characters of a text, or of all parts of a pair or a list of words."""
    return len(sentence) if isinstance(sentence, str) else sum(map(len, sentence))


def slices(sentences: Sequence[Sentence], most: int | None = None, most_characters: int | None = None, copies: int = 1
           ) -> Iterator[range]:
    """Return an iterator over ranges of consecutive sentences to tokenize at one time.

    most, most_characters: the most sentences and characters of a range, unless one sentence alone has more characters;
    None for SLICE_SENTENCES and SLICE_CHARACTERS. copies: how often each sentence is read, and so counts.
    """
    if len(sentences) == 1:
        return iter((range(1),))
    sizes = (copies * characters_of(sentence) for sentence in sentences)     # lazily, for `_Prompted`
    return ranges(sizes, most_characters or SLICE_CHARACTERS, max(1, (most or SLICE_SENTENCES) // copies))


def _shown(value: Any) -> str:
    """Return a value's type and its repr, cut to 60 characters, for an error message."""
    return f"{type(value).__name__} {shown(value, 60)}"
