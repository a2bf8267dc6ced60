"""Change the scores of the next token, as the logits processors of transformers do, for R rows at once.

`processors_of` lists the processors in the order of transformers. Its forced tokens are not among them, because they
need no scores (results.py); they win over a removal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.generation_config import GenerationConfig
from .logit_changes import Change, Processor, Removal
from .texts import Followers, Texts
from .timestamps import Timestamps
from .top_k import Exp


@dataclass(frozen=True)
class TableRemoval(Removal):
    """Removes the same tokens from some of the rows."""

    rows: NDArray[np.bool_]
    table: NDArray[np.bool_]
    """bool [V]"""

    def removes(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.table[ids] & self.rows[:, None]

    def apply(self, scores: NDArray[np.float32]) -> None:
        scores[np.ix_(self.rows, self.table)] = -np.inf


@dataclass(frozen=True)
class PairRemoval(Removal):
    """Removes single tokens from single rows."""

    keys: NDArray[np.int64]
    """[pairs], ascending: V times the row, plus the token."""
    vocab_size: int

    def removes(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        keys = np.arange(len(ids))[:, None] * self.vocab_size + ids
        # A search, and no comparison [R, k, most]: that has gigabytes if a long prompt may not be repeated. It leaves
        # out the last key, so that each place that it finds has a key.
        return self.keys[np.searchsorted(self.keys[:-1], keys)] == keys

    def apply(self, scores: NDArray[np.float32]) -> None:
        scores[np.divmod(self.keys, self.vocab_size)] = -np.inf


def pair_removal(rows: NDArray[np.intp], ids: NDArray[np.int64], vocab_size: int) -> PairRemoval | None:
    """Return the removal of ids[i] from the row rows[i], without ids that have no score; None if nothing is left.

    A pair may come any number of times, and counts once.
    """
    inside = ids < vocab_size
    keys = np.unique(rows[inside] * vocab_size + ids[inside])
    most_in_a_row = int(np.bincount(keys // vocab_size).max(initial=0))
    return PairRemoval(most_in_a_row, keys, vocab_size) if len(keys) else None


class RepetitionPenalty:
    """Make tokens that a row has already less likely: s becomes s * p if s < 0, else s / p, once for each token."""

    removes_only = False

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def change(self, texts: Texts) -> Change:
        tokens = texts.tokens[:, : texts.lengths.max()]
        here = (np.arange(tokens.shape[1]) < texts.lengths[:, None]) & (tokens < self.vocab_size)
        rows = np.nonzero(here)[0]
        return _Penalty(rows, tokens[here], texts.penalties[rows])


@dataclass(frozen=True)
class _Penalty(Change):
    rows: NDArray[np.intp]
    ids: NDArray[np.int64]
    penalties: NDArray[np.float32]
    """The penalty of each pair of a row and an id."""

    def apply(self, scores: NDArray[np.float32]) -> None:
        read = scores[self.rows, self.ids]  # all are read before one is written, so that a repeated id counts once
        scores[self.rows, self.ids] = np.where(read < 0, read * self.penalties, read / self.penalties)


class NoRepeatNGram:
    """Remove each token with which the last n tokens of the row would equal n tokens before them."""

    removes_only = True

    def __init__(self, size: int, vocab_size: int) -> None:
        self.size, self.vocab_size = size, vocab_size

    def change(self, texts: Texts) -> Removal | None:
        n, lengths = self.size, texts.lengths
        windows = int(lengths.max()) + 1 - n
        if windows <= 0:
            return None
        # Window w is tokens w to w + n - 1. It removes its last token if the others are the row's last n - 1 tokens.
        match = np.arange(windows) + n <= lengths[:, None]      # [R, windows]
        rows = np.arange(len(lengths))
        for i in range(n - 1):
            suffix = texts.tokens[rows, np.maximum(lengths + 1 - n + i, 0)]     # any token, where a row is too short
            match &= texts.tokens[:, i : i + windows] == suffix[:, None]
        repeating, window = np.nonzero(match)
        return pair_removal(repeating, texts.tokens[repeating, window + n - 1], self.vocab_size)


class NoRepeatOfSource:
    """Remove each token with which the last n tokens of the row would be n tokens of the source of its request, which
    is the prompt in a model without an encoder."""

    removes_only = True

    def __init__(self, size: int, vocab_size: int) -> None:
        self.size, self.vocab_size = size, vocab_size

    def change(self, texts: Texts) -> Removal | None:
        n, rows, removed = self.size, [], []
        for row, (followers, length) in enumerate(zip(texts.followers, texts.lengths.tolist(), strict=True)):
            if length >= n - 1:
                following = followers.get(tuple(texts.tokens[row, length + 1 - n : length].tolist()), [])
                rows += [row] * len(following)
                removed += following
        return pair_removal(np.array(rows, np.intp), np.array(removed, np.int64), self.vocab_size)


def followers_of(ids: NDArray[np.int64], n: int) -> Followers:
    """Return the last id of each run of n ids of a source, by the ids before it in the run."""
    followers: dict[tuple[int, ...], list[int]] = {}
    listed = ids.tolist()
    for i in range(len(listed) + 1 - n):
        followers.setdefault(tuple(listed[i : i + n - 1]), []).append(listed[i + n - 1])
    return followers


class BadWords:
    """Remove the last token of each listed sequence from the rows that end with its other tokens.

    An end token alone is not removed, as in transformers.
    """

    removes_only = True

    def __init__(self, words: tuple[tuple[int, ...], ...], vocab_size: int) -> None:
        self.words, self.vocab_size = words, vocab_size

    def change(self, texts: Texts) -> Removal | None:
        rows = np.arange(len(texts))
        removed = np.zeros((len(texts), len(self.words)), bool)
        for w, word in enumerate(self.words):
            match = texts.lengths >= len(word) - 1
            for i, token in enumerate(word[:-1]):
                match &= texts.tokens[rows, np.maximum(texts.lengths + 1 - len(word) + i, 0)] == token
            removed[:, w] = match
        rows, words = np.nonzero(removed)
        return pair_removal(rows, np.array([word[-1] for word in self.words], np.int64)[words], self.vocab_size)


class Suppressed:
    """Remove tokens from every row."""

    removes_only = True

    def __init__(self, ids: tuple[int, ...], vocab_size: int) -> None:
        self.table = np.zeros(vocab_size, bool)
        self.table[list(ids)] = True
        self.most = int(self.table.sum())

    def rows(self, texts: Texts) -> NDArray[np.bool_]:
        """Return the rows from which the tokens are removed."""
        return np.ones(len(texts), bool)

    def change(self, texts: Texts) -> Removal | None:
        rows = self.rows(texts)
        return TableRemoval(self.most, rows, self.table) if rows.any() else None


class MinimumLength(Suppressed):
    """Remove the end tokens while a row has fewer than `new` new tokens, or fewer than `total` tokens in all."""

    def __init__(self, new: int, total: int, eos: tuple[int, ...], vocab_size: int) -> None:
        super().__init__(eos, vocab_size)
        self.new, self.total = new, total

    def rows(self, texts: Texts) -> NDArray[np.bool_]:
        """Return the rows that are too short to end."""
        return (texts.lengths < self.total) | (texts.lengths - texts.prompts < self.new)


class SuppressedAtBegin(Suppressed):
    """Remove tokens from the first new token, or from the second one if the first one is forced.

    The first one is forced (forced_bos_token_id) only after a prompt of one token, the start token.
    """

    def __init__(self, ids: tuple[int, ...], forced: bool, vocab_size: int) -> None:
        super().__init__(ids, vocab_size)
        self.forced = forced

    def rows(self, texts: Texts) -> NDArray[np.bool_]:
        """Return the rows that choose their first free token."""
        return texts.lengths == texts.prompts + (texts.prompts == 1) * self.forced


def processors_of(config: GenerationConfig, vocab_size: int, exp: Exp = np.exp) -> list[Processor]:
    """Return the processors that the settings ask for, in the order of transformers. exp: e^x of scores."""
    processors: list[Processor] = []
    if config.repetition_penalty != 1:
        processors.append(RepetitionPenalty(vocab_size))      # `Texts` has the penalty of each row
    if config.no_repeat_ngram_size:
        processors.append(NoRepeatNGram(config.no_repeat_ngram_size, vocab_size))
    if config.encoder_no_repeat_ngram_size:
        processors.append(NoRepeatOfSource(config.encoder_no_repeat_ngram_size, vocab_size))
    single = tuple(w[0] for w in config.bad_words_ids if len(w) == 1 and w[0] not in config.eos_token_id)
    longer = tuple(w for w in config.bad_words_ids if len(w) > 1)
    if single:
        processors.append(Suppressed(single, vocab_size))
    if longer:
        processors.append(BadWords(longer, vocab_size))
    new = config.min_new_tokens
    total = 0 if new else config.min_length     # min_new_tokens wins, as in transformers
    if (new or total) and config.eos_token_id:
        processors.append(MinimumLength(new, total, config.eos_token_id, vocab_size))
    if config.suppress_tokens:
        processors.append(Suppressed(config.suppress_tokens, vocab_size))
    if config.begin_suppress_tokens:
        forced = config.forced_bos_token_id is not None
        processors.append(SuppressedAtBegin(config.begin_suppress_tokens, forced, vocab_size))
    if config.return_timestamps and config.no_timestamps_token_id is not None:
        processors.append(Timestamps(config.no_timestamps_token_id, config.eos_token_id[0],
                                     config.max_initial_timestamp_index, exp))
    return processors
