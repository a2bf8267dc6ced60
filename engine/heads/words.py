"""Words for the masks of a text, as transformers' pipeline for masked words gives them.

The logits of a vocabulary are computed at the masks alone: [masks, V], not [tokens, V].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base.arguments import warn_caller
from ..base.errors import InputError, UnsupportedError, shown
from ..base.stop import NEVER, Stop
from ..encoding.call import Call
from ..text.sentences import read_texts, slices
from ..text.tokenizer import Tokens
from .runner import HeadRunner


def mask_id(runner: HeadRunner) -> int:
    """Return the id of the mask; raises `UnsupportedError` for a tokenizer without one."""
    if runner.config.mask_id is None:
        raise UnsupportedError("the model's tokenizer has no mask; tokenizer_config.json may name it as mask_token")
    return runner.config.mask_id


def fill_mask(runner: HeadRunner, texts: Sequence[str], call: Call, *, top_k: int, targets: np.ndarray | None
              ) -> Iterator[list[Any]]:
    """Yield the best words for the mask of each text, or for each of its masks a list of them.

    targets: the ids to choose from; None for all. Raises `InputError` for a text without a mask.
    """
    for part in slices(list(texts)):
        tokens = runner.encoder.tokens(texts[part.start : part.stop], stop=call.stop)
        asked = masks_of(runner, texts, part.start, tokens)
        filled: list[Any] = [None] * len(part)
        for i, logits in runner.logits(tokens, call, asked):        # float32 [masks, V]
            filled[i] = words_of(runner, tokens.input_ids[i], asked[i], logits, top_k, targets, call.stop)
        yield from call.counted(filled)


def masks_of(runner: HeadRunner, texts: Sequence[str], first: int, tokens: Tokens) -> list[np.ndarray]:
    """Return the places of the masks among the tokens of each text: the first of three steps of `fill_mask`.

    The second step is `HeadRunner.logits`, which reads these places alone. tokens: of the texts from `first` on. Raises
    `InputError` for a text without a mask.
    """
    tokenizer, mask = runner.encoder.tokenizer, mask_id(runner)
    asked = [np.flatnonzero(ids == mask) for ids in tokens.input_ids]
    for i, places in enumerate(asked, first):
        if not len(places):
            token = tokenizer.decode([mask], skip_special_tokens=False)
            raise InputError(f"text {i}, {shown(texts[i])}, has no {token} among the {tokenizer.limit:,} tokens "
                             "that the model reads at most; write one for each word to fill in")
    return asked


def words_of(runner: HeadRunner, ids: np.ndarray, places: np.ndarray, logits: np.ndarray, top_k: int,
             targets: np.ndarray | None, stop: Stop = NEVER) -> list[Any]:
    """Return the best words for the mask of a text, or for each of its masks: the last of three steps of `fill_mask`.

    ids: of the tokens of the text; places [masks]; logits: float32 [masks, V].
    """
    rows = []
    for place, scores in zip(places.tolist(), runner.ops.softmax(logits), strict=True):
        stop.check()
        rows.append(_words(runner, ids, place, scores, top_k, targets, single=len(places) == 1))
    return rows[0] if len(rows) == 1 else rows


def _words(runner: HeadRunner, text: np.ndarray, place: int, scores: np.ndarray, top_k: int,
           targets: np.ndarray | None, *, single: bool) -> list[dict[str, Any]]:
    """Return the best words for one mask; scores: [V]."""
    ids = np.arange(len(scores)) if targets is None else targets
    k = min(top_k, len(ids))
    least = -np.partition(-scores[ids], k - 1)[k - 1]       # the k-th largest score
    ids = ids[~(scores[ids] < least)]       # all, where NaN is among the scores
    pad = -1 if runner.config.pad_id is None else runner.config.pad_id
    words = []
    for token in ids[np.argsort(-scores[ids], kind="stable")][:k].tolist():
        filled = text.copy()
        filled[place] = token
        decode = runner.encoder.tokenizer.decode
        words.append({"score": float(scores[token]), "token": token,
                      "token_str": decode([token], skip_special_tokens=False),
                      "sequence": decode(filled[filled != pad].tolist(), skip_special_tokens=single)})
    return words


def target_ids(runner: HeadRunner, targets: Any) -> np.ndarray:
    """Return the ids of texts to choose from; the first token stands for a text that is no token, with a warning."""
    tokenizer = runner.encoder.tokenizer
    numbers = []
    for text in read_texts(targets, "targets")[0]:
        number = tokenizer.token_id(text)
        if number is None:
            ids = tokenizer.encode(text, add_special_tokens=False)
            if not ids:
                raise InputError(f"the target {shown(text)} has no tokens; leave it out")
            number = ids[0]
            warn_caller(f"the target {shown(text)} is no token of the vocabulary; "
                        f"{shown(tokenizer.decode([number], skip_special_tokens=False))} stands for it", UserWarning)
        if number < runner.config.outputs:
            numbers.append(number)
    if not numbers:
        raise InputError("targets must be one text or more, whose tokens the model knows")
    return np.unique(numbers)
