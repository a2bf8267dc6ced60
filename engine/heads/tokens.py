"""Tag tokens, and join them to entities, by the rules of transformers' pipeline of token classification.

    strategy    joins                                                    label and score of a word
    none        nothing: one result for each token
    simple      adjacent tokens of one tag
    first       words, then adjacent words of one tag                    of its first token
    average     the same                                                 the mean of its tokens' probabilities
    max         the same                                                 of its token with the largest probability

A tag with the prefix B- begins an entity. A tag with I-, or without a prefix, goes on with an entity of the same tag.
The score of an entity is the mean of the scores of its tokens or words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ..base.arguments import count_or_none, has_no_axes
from ..base.errors import InputError, listed, shown
from ..base.stop import NEVER, Stop
from ..text.sentences import check_order, read_texts
from ..text.tokens import Places
from ..uncertainty.measures import entropy, margin
from ..weights.modules import softmax
from .runner import HeadRunner, check_choice

STRATEGIES = ("none", "simple", "first", "average", "max")
WORDS = ("spaces", "tokenizer")
"""Rules for which token goes on with a word: "spaces" is the pipeline's rule, which looks for "##" or for a space
before the token; "tokenizer" asks the tokenizer, which is right even if a token's offsets include the space before it.
"""
_Join: TypeAlias = Callable[[Sequence[str]], str]
"""`TokenTexts.join`: returns the text of tokens, given by their own texts."""


@dataclass(frozen=True, eq=False)
class _Token:
    """A token of a text, or a word made of several, with its tag."""

    label: str
    score: np.float32
    text: str
    start: int
    """The place of its first character in the text; `end` is the place after its last character."""
    end: int
    index: int = 0
    """Its place among the tokens of its window, special ones included."""
    probabilities: np.ndarray | None = None
    """float32 [labels]."""
    goes_on: bool = False
    """Whether it is a part of the same word as the token before it."""


@dataclass(frozen=True)
class Tagging:
    """The settings by which `tag` makes entities."""

    strategy: str = "none"
    """One of `STRATEGIES`."""
    ignored: Collection[str] = ("O",)
    """The labels that results leave out; a set if they may be many."""
    words: str = "spaces"
    """One of `WORDS`."""


def check_tagging(strategy: Any, ignored: Any, stride: Any, words: Any) -> tuple[Tagging, int | None]:
    """Return (settings of entities, stride) from arguments of `Engine.tag`; raises `InputError` for wrong ones."""
    tagging = Tagging(check_choice("aggregation_strategy", strategy, STRATEGIES),
                      _read_labels("ignore_labels", ignored), check_choice("words", words, WORDS))
    if stride is not None and tagging.strategy == "none":
        raise InputError('stride is for an aggregation_strategy, by which the windows of a text are joined; say '
                         'aggregation_strategy="simple", for example')
    return tagging, count_or_none("stride", stride)


def read_words(texts: Any) -> tuple[list[list[str]], bool]:
    """Return (lists of words, whether the caller gave one list alone and not a list of lists); raises `InputError`."""
    if isinstance(texts, (str, bytes, Mapping)) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise InputError(f"with is_split_into_words, texts must be lists of words, not {shown(texts)}")
    check_order(texts, "with is_split_into_words, texts must be lists of words")
    rows = list(texts)
    single = bool(rows) and all(isinstance(word, str) for word in rows)
    for row in rows if not single else ():
        if isinstance(row, str):
            raise InputError(f"with is_split_into_words, each text must be a list of words, and {shown(row)} is a "
                             "string")
    return [read_texts(row)[0] for row in ([rows] if single else rows)], single


def _read_labels(name: str, value: Any) -> tuple[str, ...]:
    """Return the labels of an argument as a tuple; raises `InputError`."""
    if isinstance(value, str) or has_no_axes(value) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list of labels, not {shown(value)}")
    labels = tuple(value)
    if not all(isinstance(label, str) for label in labels):
        raise InputError(f"{name} must be a list of labels, not {listed(map(str, labels))}")
    return labels


def tag_windows(runner: HeadRunner, texts: Sequence[str | Sequence[str]], *, stride: int | None, split: bool,
                stop: Stop = NEVER) -> list[list[Places]]:
    """Return the windows of each text with their tokens: the first of three steps of `tag`, before `HeadRunner.logits`.

    stride: the number of tokens by which windows overlap; None for one window of each text, which is cut at the model's
    limit. split: whether each text is a list of words; the offsets of a token are then those in its word.
    """
    tokenizer = runner.encoder.tokenizer
    if stride is None:
        return [[places] for places in tokenizer.places(texts, split=split, stop=stop)]
    return tokenizer.windows(texts, stride, split=split, stop=stop)


def entities_of(runner: HeadRunner, texts: Sequence[str | Sequence[str]], windows: Sequence[Sequence[Places]],
                logits: Mapping[int, np.ndarray], tagging: Tagging, *, split: bool, stop: Stop = NEVER
                ) -> Iterator[list[dict[str, Any]]]:
    """Yield the entities of each text, the last of three steps of `tag`.

    windows: those of each text. logits: float32 [T, labels] by the number of the window, counted over all texts; a
    window without tokens has none. split: whether each text is a list of words.
    """
    first = 0       # the number of the first window of the text
    for text, windows_of_text in zip(texts, windows, strict=True):
        entities: list[dict[str, Any]] = []
        # The place of each word in the text, which is the words joined by spaces.
        starts = [0, *np.cumsum([len(word) + 1 for word in text]).tolist()] if split else None
        joined = text if isinstance(text, str) else " ".join(text)
        for n, places in enumerate(windows_of_text, first):
            stop.check()
            entities += _entities_of_window(runner, joined, places, logits.get(n), tagging, starts)
        first += len(windows_of_text)
        yield _without_overlaps(entities) if len(windows_of_text) > 1 else entities


def _entities_of_window(runner: HeadRunner, text: str, places: Places, logits: np.ndarray | None, tagging: Tagging,
                        starts: list[int] | None) -> list[dict[str, Any]]:
    """Return the entities of one window, or with the strategy "none" a result for each of its tokens.

    logits: float32 [T, labels]; None for a window without tokens. starts: for a text that the caller has split into
    words, the place of each word in it; otherwise None. The results of a calibrated model have `_doubts`, too.
    """
    if logits is None:
        return []
    tokens = list(_tagged_tokens(runner, text, places, logits, tagging, starts))
    is_calibrated = runner.calibration is not None
    if tagging.strategy == "none":
        return [{"entity": token.label, "score": float(token.score), "index": token.index, "word": token.text,
                 "start": token.start, "end": token.end, **(_doubts([token]) if is_calibrated else {})}
                for token in tokens if token.label not in tagging.ignored]
    join = runner.encoder.tokenizer.join
    if tagging.strategy != "simple":
        tokens = [_join_word(group, tagging.strategy, runner.config.labels, join)
                  for group in _split_into_groups(tokens, lambda before, token: token.goes_on)]
    entities = [_make_entity(group, join) | (_doubts(group) if is_calibrated else {})
                for group in _split_into_groups(tokens, _same_entity)]
    return [entity for entity in entities if entity["entity_group"] not in tagging.ignored]


def _tagged_tokens(runner: HeadRunner, text: str, places: Places, logits: np.ndarray, tagging: Tagging,
                   starts: list[int] | None) -> Iterator[_Token]:
    """Yield the tokens of a window with their tags, without special ones. Arguments: as for `_entities_of_window`."""
    prefix = runner.encoder.tokenizer.continuing_prefix
    previous_word: int | None = None
    probabilities = softmax(logits) if runner.calibration is None else runner.probabilities(logits).astype(np.float32)
    best = probabilities.argmax(axis=1).tolist()
    for i, (token_text, (start, end)) in enumerate(zip(places.tokens, places.offsets, strict=True)):
        if places.special[i]:
            continue
        word = places.words[i]
        if starts is not None and word is not None:
            start, end = start + starts[word], end + starts[word]
        if tagging.words == "tokenizer":
            goes_on = word is not None and word == previous_word
        elif prefix is not None:    # the pipeline's rule: a prefix such as ## makes a token longer than its characters
            goes_on = len(token_text) != end - start
        else:       # the pipeline's rule: no space before the token, and none as its first character
            goes_on = start > 0 and " " not in text[start - 1 : start + 1]
        if int(places.input_ids[i]) == runner.config.unknown_id:
            # The pipeline shows the characters of an unknown token, which begins a word.
            token_text, goes_on = text[start:end], goes_on and tagging.words == "tokenizer"
        previous_word = word
        yield _Token(runner.config.labels[best[i]], probabilities[i, best[i]], token_text, start, end, index=i,
                     probabilities=probabilities[i], goes_on=goes_on)


def _split_into_groups(tokens: Iterable[_Token], joins: Callable[[_Token, _Token], bool]) -> Iterator[list[_Token]]:
    """Yield the tokens in groups; joins(before, token) says whether a token joins the group of the token before it."""
    group: list[_Token] = []
    for token in tokens:
        if group and not joins(group[-1], token):
            yield group
            group = []
        group.append(token)
    if group:
        yield group


def _join_word(tokens: Sequence[_Token], strategy: str, labels: Sequence[str], join: _Join) -> _Token:
    """Return the word of these tokens, with the label and the score of the strategy."""
    if len(tokens) == 1:        # all strategies give it its own tag
        return replace(tokens[0], text=join([tokens[0].text]))
    rows = np.stack([token.probabilities for token in tokens if token.probabilities is not None])
    if strategy == "average":
        probabilities = rows.mean(axis=0)
    else:
        probabilities = rows[0 if strategy == "first" else int(rows.max(axis=1).argmax())]
    best = int(probabilities.argmax())
    return _Token(labels[best], probabilities[best], join([token.text for token in tokens]), tokens[0].start,
                  tokens[-1].end, probabilities=probabilities)


def _same_entity(before: _Token, token: _Token) -> bool:
    """Return whether a token goes on with the entity of the one before it."""
    return not token.label.startswith("B-") and _without_prefix(token.label) == _without_prefix(before.label)


def _without_prefix(label: str) -> str:
    """Return a label without its prefix B- or I-, if it has one."""
    return label[2:] if label.startswith(("B-", "I-")) else label


def _make_entity(tokens: Sequence[_Token], join: _Join) -> dict[str, Any]:
    """Return the entity of these tokens or words; its name is the part of the label after the first hyphen."""
    score = tokens[0].score if len(tokens) == 1 else np.mean(np.array([token.score for token in tokens], np.float32))
    return {"entity_group": tokens[0].label.split("-", 1)[-1], "score": float(score),
            "word": join([token.text for token in tokens]), "start": tokens[0].start, "end": tokens[-1].end}


def _doubts(tokens: Sequence[_Token]) -> dict[str, float]:
    """Return the entries "margin" and "entropy" of a result: the means over its tokens or words."""
    rows = np.stack([token.probabilities for token in tokens if token.probabilities is not None])
    return {"margin": float(margin(rows).mean()), "entropy": float(entropy(rows).mean())}


def first_of_words(places: Places) -> dict[int, int]:
    """Return {number of a word: place of its first token}, for the words that the model reads."""
    first: dict[int, int] = {}
    for t, word in enumerate(places.words):
        if word is not None and not places.special[t]:
            first.setdefault(word, t)
    return first


def _without_overlaps(entities: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entities of all windows of a text, sorted by their start.

    Of two that overlap, only the longer one stays; of two equally long ones, the one with the larger score.
    """
    longest: list[dict[str, Any]] = []
    for entity in sorted(entities, key=lambda entity: int(entity["start"])):
        if not longest or not longest[-1]["start"] <= entity["start"] < longest[-1]["end"]:
            longest.append(entity)
        elif (_length(entity), entity["score"]) > (_length(longest[-1]), longest[-1]["score"]):
            longest[-1] = entity
    return longest


def _length(entity: dict[str, Any]) -> int:
    """Return the number of characters of an entity."""
    return int(entity["end"]) - int(entity["start"])
