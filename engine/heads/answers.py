"""Find answers to questions, which are parts of a text, by the rules of the pipeline of transformers until version 4.

The text is read in windows that overlap, each after the question. The score of tokens s to e of a window is

    softmax(start)[s] softmax(end)[e],      s <= e,

over the tokens of the text and the first token, which stands for "no answer". The scores of answers with the same words
are added up, over all windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import count_or_none, flag, positive_int
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..text.tokens import Places
from ..uncertainty.measures import entropy
from ..weights.modules import softmax
from .runner import HeadRunner

CANDIDATES = 20
"""How many answers of a text may be in its set of answers, whose losses are at most a limit from a calibration."""


@dataclass(frozen=True)
class Answering(Options):
    """How `answer` chooses answers."""

    top_k: int = option(1, positive_int)
    """The most answers of a text."""
    max_answer_len: int = option(15, positive_int)
    """The most tokens of an answer."""
    handle_impossible_answer: bool = option(False, flag)
    """Whether "no answer" is one of the answers."""
    align_to_words: bool = option(True, flag)
    """Whether an answer begins and ends with a word, by the tokenizer's own words."""
    max_seq_len: int = option(384, positive_int)
    """The most tokens of a window, the question and special tokens included."""
    doc_stride: int | None = option(None, count_or_none)
    """The number of tokens by which windows overlap; None for 128, or half of a smaller window."""


def answer_windows(runner: HeadRunner, pairs: Sequence[tuple[str, str]], answering: Answering, stop: Stop = NEVER
                   ) -> list[list[Places]]:
    """Return the windows of each pair (question, text) with their tokens: the first of the three steps of `answer`."""
    tokenizer = runner.encoder.tokenizer
    limit = min(answering.max_seq_len, tokenizer.limit)
    stride = min(limit // 2, 128) if answering.doc_stride is None else answering.doc_stride
    return tokenizer.windows(pairs, stride, limit, stop=stop)


def candidates(impossible: bool) -> Answering:
    """Return the settings with which `answer` finds all candidates of a set. impossible: may "no answer" be one?"""
    return Answering(top_k=CANDIDATES, handle_impossible_answer=impossible)


def loss_of(answers: Sequence[dict[str, Any]], right: str) -> np.float32:
    """Return 1 - the score of the right answer, compared in lower case; infinity if it is missing.

    answers: the results of `answer` with the settings of `candidates`.
    """
    wanted = right.strip().lower()
    return next((_loss(one) for one in answers if one["answer"].strip().lower() == wanted), np.float32(np.inf))


def answer_or_abstain(answers: Sequence[dict[str, Any]], limit: np.float32) -> dict[str, Any]:
    """Return a result with the only answer whose loss is at most `limit`; it abstains if there are none or several.

    answers: the candidates, at least one, the best first. An infinite limit says that the right answer is missing too
    often among the candidates, so the result always abstains.

    The result has the set as "answers", and "abstains"; if it abstains, its "answer", "start" and "end" are None.
    "margin" is the best score minus the second best, and "entropy" that of all scores, scaled to a sum of 1.
    """
    kept = [one for one in answers if _loss(one) <= limit]
    scores = np.array([one["score"] for one in answers], np.float64)
    total = scores.sum()
    second = scores[1] if len(scores) > 1 else 0.0
    abstains = len(kept) != 1 or bool(np.isinf(limit))
    chosen = {"answer": None, "start": None, "end": None} if abstains else {
        name: kept[0][name] for name in ("answer", "start", "end")}
    return {"score": answers[0]["score"], **chosen, "abstains": abstains, "answers": kept,
            "margin": float(scores[0] - second),
            "entropy": float(entropy(scores[None] / total)[0]) if total > 0 else 0.0}


def _loss(one: Mapping[str, Any]) -> np.float32:
    """Return 1 - the score of an answer."""
    return np.float32(1 - one["score"])


def best_answers(first_id: int | None, text: str, windows: Sequence[Places], logits: Sequence[np.ndarray],
                 answering: Answering, stop: Stop) -> list[dict[str, Any]]:
    """Return the best answers in the windows of one text, the last of three steps of `answer`.

    first_id: the id of the first token, which stands for "no answer" (`HeadConfig.first_id`); None if no token does.
    logits: float32 [T, 2] of each window: of start and of end. Raises the error of `stop`.
    """
    by_text: dict[str, dict[str, Any]] = {}     # the answers, by their words in lower case
    no_answer = 1e6     # becomes the least score of "no answer" of all windows, each of which is at most 1
    for places, rows in zip(windows, logits, strict=True):
        of_text = np.array([number == 1 for number in places.texts])        # the question has the number 0
        allowed = of_text if first_id is None else of_text | (places.input_ids == first_id)
        start, end = (softmax(np.where(allowed, rows[:, i], np.float32(-10000))) for i in range(2))     # e^-10000 is 0
        no_answer = min(no_answer, float(start[0] * end[0]))     # the span of the first token alone
        start[~of_text] = end[~of_text] = 0
        words = _words_of(places) if answering.align_to_words else {}
        for i, (s, e, score) in enumerate(_best_spans(start, end, answering)):
            if i % 1024 == 0:
                stop.check()
            a, b = _characters_of(places, s, e, words)
            # Spans with the same words, in any windows, are one answer with the sum of their scores.
            answer = by_text.setdefault(text[a:b].lower(), {"score": 0.0, "start": a, "end": b, "answer": text[a:b]})
            answer["score"] += score
    answers = list(by_text.values())
    if answering.handle_impossible_answer or not answers:
        score = no_answer if answering.handle_impossible_answer else 0.0
        answers.append({"score": score, "start": 0, "end": 0, "answer": ""})
    return sorted(answers, key=lambda one: -float(one["score"]))[: answering.top_k]


def _best_spans(start: np.ndarray, end: np.ndarray, answering: Answering) -> list[tuple[int, int, float]]:
    """Return (s, e, score) of the best spans of tokens s to e, the best first; start, end: probabilities [T]."""
    T = len(start)
    width = min(answering.max_answer_len, T)
    padded = np.concatenate([end, np.zeros(width - 1, np.float32)])
    scores = start[:, None] * np.lib.stride_tricks.sliding_window_view(padded, width)      # [T, width]: [s, e - s]
    # Some spans become one answer when they are widened to whole words, so return more spans than answers.
    most = 2 * answering.top_k + 10 if answering.align_to_words else answering.top_k
    flat = scores.reshape(-1)
    best = [i for i in np.argsort(-flat, kind="stable")[:most].tolist() if flat[i] > 0]
    return [(i // width, i // width + i % width, float(flat[i])) for i in best]


def _words_of(places: Places) -> dict[int, tuple[int, int]]:
    """Return {number of a word of a window's text: (place of its first character, place after its last character)}."""
    spans: dict[int, tuple[int, int]] = {}
    for number, word, (first, end) in zip(places.texts, places.words, places.offsets, strict=True):
        if number == 1 and word is not None:
            spans[word] = spans.get(word, (first, end))[0], end
    return spans


def _characters_of(places: Places, s: int, e: int, words: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    """Return (place of the first character, place after the last character) of a span of tokens s to e.

    words: the result of `_words_of`, to widen the span to the words of both tokens; empty to leave it as it is.
    """
    first, last = (places.words[i] for i in (s, e))
    if first is None or last is None or not words:
        return places.offsets[s][0], places.offsets[e][1]
    return words[first][0], words[last][1]
