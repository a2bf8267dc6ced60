"""Find when each word of a text is spoken, from the weights of cross-attention; transcription.py calls this.

The alignment heads of Whisper attend, for each token, to the audio in which it is spoken. The time of a token comes
from the best path through these weights that never goes back in time (dynamic time warping; Sakoe and Chiba 1978), as
in OpenAI's Whisper.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

_MEDIAN = 7
"""The number of positions whose median replaces each weight of a token, which smooths them over time."""
_OPENING, _CLOSING = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
"""Marks that belong to the word after them, and marks that belong to the word before them."""
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")
"""The languages without spaces between words; here each character counts as a word."""


def token_times(weights: np.ndarray, first: int, positions: int) -> np.ndarray:
    """Return the position at which each token begins, and at which the last one ends: ints that never fall.

    weights: those of the alignment heads, [heads, tokens, S]; a row predicts the token after its own. first: the row
    that predicts the first token of the text; the last row predicts nothing, because it belongs to the end token.
    positions: how many of the S positions, each of 20 ms, are audio and not padding.
    """
    heard = weights[:, :, :positions].astype(np.float64)
    heard /= heard.sum(axis=2, keepdims=True)       # as if the softmax had seen the audio alone
    deviation = heard.std(axis=1, keepdims=True)
    heard = (heard - heard.mean(axis=1, keepdims=True)) / np.where(deviation == 0, 1, deviation)
    smooth = median_filter(heard).mean(axis=0)
    rows, columns = shortest_path(-smooth[first:-1])
    # A token begins in the first column of its row of the path.
    return columns[np.searchsorted(rows, np.arange(rows[-1] + 1))]


def median_filter(x: np.ndarray) -> np.ndarray:
    """Return the median of each number and its three neighbours on both sides in the last axis; ends are mirrored."""
    half = _MEDIAN // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN, axis=-1), axis=-1)


def shortest_path(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, columns), ints [k] each, of the path through costs [n,m] with the least sum, [0,0] to [n-1,m-1].

    A step goes to the next row, to the next column, or to both. Among equal sums, the path stays in its row.
    """
    n, m = costs.shape
    # Compute the least sums by diagonals: diagonal d has [i, d - i] at place i + 1, and needs the two before it.
    steps = np.full((n + m - 1, n), 2, np.int8)     # to [i, d - i]: 0 diagonally, 1 from the row above, 2 in its row
    older = np.full(n + 1, np.inf)
    newer = np.full(n + 1, np.inf)
    newer[1] = costs[0, 0]
    for d in range(1, n + m - 1):
        i = np.arange(max(0, d - m + 1), min(n, d + 1))
        diagonal, down, along = older[i], newer[i], newer[i + 1]
        step = np.where((diagonal < down) & (diagonal < along), 0, np.where((down < diagonal) & (down < along), 1, 2))
        sums = np.full(n + 1, np.inf)
        sums[i + 1] = costs[i, d - i] + np.choose(step, (diagonal, down, along))
        steps[d, i] = step
        older, newer = newer, sums
    i, j = n - 1, m - 1
    path = [(i, j)]
    while i or j:
        step = steps[i + j, i]
        i, j = i - int(step != 2), j - int(step != 1)
        path.append((i, j))
    rows, columns = np.array(path[::-1]).T
    return rows, columns


@dataclass(frozen=True)
class TokensOfWord:
    """A word with its marks, and the tokens of the text in which it is spoken; marks take no time."""

    text: str
    first: int
    """The place of its first token."""
    end: int
    """The place after its last token."""


def split_words(ids: Sequence[int], decode: Callable[[list[int]], str], spaced: bool) -> list[TokensOfWord]:
    """Return the words of a text, each with the marks before and after it.

    decode: turns ids into a text. spaced: whether spaces separate the words; else each character is a word.
    """
    words: list[TokensOfWord] = []
    begin = 0
    for end in range(1, len(ids) + 1):
        text = decode(list(ids[begin:end]))
        if "\ufffd" in text and end < len(ids):     # the last token ends inside a character
            continue
        if not spaced or not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append(TokensOfWord(text, begin, end))
        else:
            words[-1] = TokensOfWord(words[-1].text + text, words[-1].first, end)
        begin = end
    return _with_marks(words)


def _with_marks(words: list[TokensOfWord]) -> list[TokensOfWord]:
    """Return the words, in which each mark is joined to the word before it or after it."""
    joined: list[TokensOfWord] = []
    opening = ""
    for word in words:
        if word.text.startswith(" ") and word.text.strip() and word.text.strip() in _OPENING and word is not words[-1]:
            opening += word.text
        elif joined and not opening and not joined[-1].text.endswith(" ") and word.text in _CLOSING:
            joined[-1] = replace(joined[-1], text=joined[-1].text + word.text)
        else:
            joined.append(replace(word, text=opening + word.text))
            opening = ""
    return joined
