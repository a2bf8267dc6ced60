"""`Engine.fill_mask`: the likely words for the masks of a text, as in the fill-mask pipeline of transformers.

The logits of a vocabulary are computed at the masks alone: [masks, V], not [tokens, V].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base.arguments import positive_int, warn_caller
from ..base.errors import InputError, UnsupportedError, shown
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..encoding.call import Call
from ..heads.runner import HeadRunner
from ..queues.work import Work
from ..text.sentences import read_texts
from ..text.tokens import Tokens
from .method import EncodingModel, Method, listed_texts
from .workload import DICTIONARY_BYTES, NUMBER_BYTES, Computation, Cost, Slice, Workload


@dataclass(frozen=True)
class FillMaskOptions(Options):
    """The options of `Engine.fill_mask` that say what is computed."""

    top_k: int = option(5, positive_int)
    targets: Any = None


class _Words(Workload):
    """The workload whose results are the best words for the mask of each text; for several masks, a list of lists."""

    def __init__(self, runner: HeadRunner, texts: Sequence[str], top_k: int, targets: np.ndarray | None):
        """runner: the head, which computes logits of the vocabulary. top_k: the number of words for each mask.

        targets: the ids to choose from, int64 [n]; None for the whole vocabulary.
        """
        super().__init__(Computation(runner.encoder.queue, partial(_mask_logits, runner)), texts,
                         cost=Cost(sequence=NUMBER_BYTES * runner.config.outputs + DICTIONARY_BYTES * top_k))
        self._runner, self._top_k, self._targets = runner, top_k, targets

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of some texts; raises `InputError` for a text without a mask."""
        tokens = self._runner.encoder.tokens(self.inputs[places.start : places.stop], stop=stop)
        tokenizer = self._runner.encoder.tokenizer
        for i, ids in zip(places, tokens.input_ids, strict=True):
            if not len(_places(self._runner, ids)):
                token = tokenizer.decode([_mask_id(self._runner)], skip_special_tokens=False)
                raise InputError(f"text {i}, {shown(self.inputs[i])}, has no {token} among the {tokenizer.limit:,} "
                                 "tokens that the model reads at most; write one for each word to fill in")
        return Slice(places, tokens)

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the best words of each sequence, not its logits, [masks, V]."""
        for number, logits in zip(numbers, rows, strict=True):
            ids = part.tokens.input_ids[number]
            places, words = _places(self._runner, ids).tolist(), []
            for place, scores in zip(places, self._runner.ops.softmax(logits), strict=True):
                stop.check()
                words.append(self._words_of_mask(ids, place, scores, single=len(places) == 1))
            self.results[part.places[number]] = words[0] if len(words) == 1 else words

    def _words_of_mask(self, text: np.ndarray, place: int, scores: np.ndarray, *, single: bool
                       ) -> list[dict[str, Any]]:
        """Return the best words for one mask, the best first.

        text: the ids of its tokens. place: of the mask among them. scores: the probabilities of all words, [V]. single:
        whether the text has no other mask, so that the sequence in the result leaves special tokens out.
        """
        runner = self._runner
        ids = np.arange(len(scores)) if self._targets is None else self._targets
        k = min(self._top_k, len(ids))
        least = -np.partition(-scores[ids], k - 1)[k - 1]       # the k-th largest score
        ids = ids[~(scores[ids] < least)]       # written so that NaN keeps all
        pad = -1 if runner.config.pad_id is None else runner.config.pad_id      # -1 is no token
        words = []
        for token in ids[np.argsort(-scores[ids], kind="stable")][:k].tolist():
            filled = text.copy()
            filled[place] = token
            decode = runner.encoder.tokenizer.decode
            words.append({"score": float(scores[token]), "token": token,
                          "token_str": decode([token], skip_special_tokens=False),
                          "sequence": decode(filled[filled != pad].tolist(), skip_special_tokens=single)})
        return words


def _mask_logits(runner: HeadRunner, tokens: Tokens, call: Call) -> Work:
    """Return the work that computes, for each sequence, the logits of its masks: float32 [masks, V]."""
    return runner.logits(tokens, call, [_places(runner, ids) for ids in tokens.input_ids])


def _mask_id(runner: HeadRunner) -> int:
    """Return the id of the mask; raises `UnsupportedError` for a tokenizer without one."""
    if runner.config.mask_id is None:
        raise UnsupportedError("the model's tokenizer has no mask; tokenizer_config.json may name it as mask_token")
    return runner.config.mask_id


def _places(runner: HeadRunner, ids: np.ndarray) -> np.ndarray:
    """Return the places of the masks among the token ids of a text: int64 [masks]."""
    return np.flatnonzero(ids == _mask_id(runner))


def _target_ids(runner: HeadRunner, targets: Any) -> np.ndarray:
    """Return the sorted ids of the option `targets`; its first token stands for a text of several, with a warning."""
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


def _prepare(model: EncodingModel, texts: Sequence[str], options: FillMaskOptions) -> Workload:
    """Return the workload of a call for texts."""
    runner = model.runner_of("fill_mask")
    targets = None if options.targets is None else _target_ids(runner, options.targets)
    return _Words(runner, texts, options.top_k, targets)


FILL_MASK = Method("fill_mask", FillMaskOptions, lambda model: model.runner_of("fill_mask"),
                   lambda given, options: read_texts(given), _prepare, listed_texts)
