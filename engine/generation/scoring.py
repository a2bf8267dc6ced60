"""Score given continuations: the log probability of each of their tokens under the model itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row
from ..base.errors import InputError, located
from ..base.stop import NEVER, Stop
from ..model.generation_config import check_length, ids_array
from .batching import Budget, Traffic, decoder_ids
from .encoder_decoder import SourceStepper
from .results import Request, logits_error
from .top_k import log_sum_exp

CHUNK = 64
"""The most tokens of a continuation that the model reads in one step. It changes no bit."""
LOGITS = 2**24
"""The most logits of one step (64 MiB), unless one token alone has more."""
Seen: TypeAlias = Callable[[NDArray[np.float32], NDArray[np.int64]], object]
"""Gets the logits [n, V] for the places of tokens, and the ids [n] of these tokens."""


def score(
    stepper: SourceStepper,
    requests: Iterable[Request],
    continuations: Iterable[Sequence[int]],
    *,
    budget: Budget | None = None,
    stop: Stop = NEVER,
    traffic: Traffic | None = None,
    temperature: float = 1.0,
    seen: Seen | None = None,
) -> list[list[float]]:
    """Return log p(id | source, prompt, ids before it) of each id of the continuation of each request.

    temperature: logits are divided by it. seen: gets the logits [n, V] before that, and the ids [n] of the tokens.

    Of the settings of a request only its start token and its prefix count: no setting changes these probabilities.
    budget, stop and traffic are those of `generate`. Raises `InputError` for wrong ids.
    """
    budget = budget or Budget()
    chunk = chunk_of(stepper.vocab_size)
    most = min(budget.rows, max(1, LOGITS // (stepper.vocab_size * chunk)))
    texts = iter([*_texts(stepper, requests, continuations)])       # all are checked before one is computed
    waiting = next(texts, None)
    results: list[list[float]] = []
    batch: list[_Text] = []
    try:
        while batch or waiting:
            tokens = sum(text.cost(chunk) for text in batch)
            while waiting and (not batch or (len(batch) < most and tokens + waiting.cost(chunk) <= budget.tokens)):
                if len(waiting.tokens) > waiting.prompt:
                    number = stepper.open(waiting.packed, len(waiting.tokens), not batch)
                    if number is None:
                        break
                    waiting.number = number
                    batch.append(waiting)
                    if traffic is not None:
                        traffic.add(len(waiting.tokens) + (0 if waiting.source is None else len(waiting.source)))
                tokens += waiting.cost(chunk)
                results.append(waiting.found)
                waiting = next(texts, None)
            stop.check()
            _step(stepper, batch, chunk, temperature, seen)
            for text in [text for text in batch if text.done]:
                batch.remove(text)
                stepper.close(text.number)
    finally:
        for text in batch:
            stepper.close(text.number)
    return results


def chunk_of(vocab_size: int) -> int:
    """Return the most tokens of a continuation that the model reads in one step."""
    return max(1, min(CHUNK, LOGITS // vocab_size))


def check_continuation(prompt: int, ids: Sequence[int], vocab_size: int, longest: int | None) -> NDArray[np.int64]:
    """Return the ids of a continuation, int64 [n]; raises `InputError` for wrong ids, and for too many.

    prompt: the number of tokens before it. longest: the most tokens that the model reads, the last one not counted.
    """
    found = ids_array("a continuation", ids)
    if found.size and found.max() >= vocab_size:
        raise InputError(f"a continuation has the id {found.max()}, but the model has {vocab_size} tokens")
    check_length("the prompt with its continuation", prompt + len(found), None if longest is None else longest + 1,
                 "scores")
    return found


@dataclass(eq=False)
class _Text:
    """A request with its continuation."""

    place: int
    """The place among the requests."""
    source: NDArray[np.int64] | None
    packed: Any
    """The source as `SourceStepper.open` takes it."""
    tokens: NDArray[np.int64]
    """The prompt and the continuation."""
    prompt: int
    """The number of tokens of the prompt."""
    number: int = -1
    """The number that `SourceStepper.open` gave."""
    read: int = 0
    """The number of tokens that the model has read."""
    parent: int | None = None
    found: list[float] = field(default_factory=list)
    """The log probabilities of the first tokens of the continuation."""

    @property
    def done(self) -> bool:
        """Return whether every token has its log probability."""
        return len(self.found) == len(self.tokens) - self.prompt

    def cost(self, chunk: int) -> int:
        """Return the most tokens that the model reads in a step of this text."""
        return max(self.prompt + (0 if self.source is None else len(self.source)), chunk)


def _texts(stepper: SourceStepper, requests: Iterable[Request], continuations: Iterable[Sequence[int]]
           ) -> Iterator[_Text]:
    """Yield the texts, checked."""
    for place, (request, continuation) in enumerate(zip(requests, continuations, strict=True)):
        source, prompt = decoder_ids(request)
        ids = check_continuation(len(prompt), continuation, stepper.vocab_size, stepper.longest)
        yield _Text(place, source, stepper.packed(source), np.concatenate([prompt, ids]), len(prompt))


def _step(stepper: SourceStepper, batch: Sequence[_Text], chunk: int, temperature: float, seen: Seen | None) -> None:
    """Let the model read the prompt, or the next chunk of the continuation, of each text."""
    if not batch:
        return
    rows = []
    for text in batch:
        end = text.prompt if not text.read else min(text.read + chunk, len(text.tokens) - 1)
        rows.append(Row(text.number, text.parent, text.tokens[text.read : end],
                        end - text.read if text.read else 1))
    scores = stepper.step(rows)
    stepper.release([row.parent for row in rows if row.parent is not None])
    logits = scores.logits if temperature == 1 else scores.logits / np.float32(temperature)
    for text, finite in zip(batch, scores.finite.tolist(), strict=True):
        with located(f"input {text.place}"):
            if not finite:
                raise logits_error()
    log_total = log_sum_exp(logits, stepper.exp).astype(np.float64)
    line = 0
    for text, row, hypothesis in zip(batch, rows, scores.hypotheses.tolist(), strict=True):
        text.read, text.parent = text.read + len(row.tokens), hypothesis
        here = np.arange(line, line + row.scored)
        targets = text.tokens[text.read + 1 - row.scored : text.read + 1]
        text.found += (logits[here, targets] - log_total[here]).tolist()
        if seen is not None:
            seen(scores.logits[here], targets)
        line += row.scored


def last_logits(
    stepper: SourceStepper,
    groups: Sequence[Sequence[NDArray[np.int64]]],
    ids: Sequence[int],
    *,
    budget: Budget | None = None,
    stop: Stop = NEVER,
    advance: Callable[[int], object] = lambda done: None,
    place: Callable[[int, int], str] = lambda group, prompt: f"prompt {prompt} of group {group}",
) -> list[NDArray[np.float32]]:
    """Return for each group the logits of `ids` after each of its prompts: float32 [prompts, ids].

    A prompt has the same logits, to the last bit, alone and in any group. budget and stop are those of `generate`.
    advance: gets the number of prompts that have just been completed. place: returns what a message calls a prompt of a
    group.
    """
    return _Prompts(stepper, ids, budget or Budget(), stop, advance, place).run(groups)


class _Prompts:
    """The prompts of one call, of which some wait for the next step."""

    def __init__(self, stepper: SourceStepper, ids: Sequence[int], budget: Budget, stop: Stop,
                 advance: Callable[[int], object], place: Callable[[int, int], str]):  # fmt: skip
        self.stepper, self.ids, self.budget, self.stop, self.advance = stepper, ids, budget, stop, advance
        self.place = place
        self.most = max(1, min(budget.rows, LOGITS // stepper.vocab_size))
        self.rows: list[Row] = []
        self.places: list[tuple[int, int]] = []
        """The group of each waiting row, and its place in the group."""
        self.opened: list[int] = []
        """The requests of groups of which a row waits, or may still come."""
        self.found: list[NDArray[np.float32]] = []

    def run(self, groups: Sequence[Sequence[NDArray[np.int64]]]) -> list[NDArray[np.float32]]:
        try:
            for g, group in enumerate(groups):
                self.found.append(np.empty((len(group), len(self.ids)), np.float32))
                self._open(sum(map(len, group)))
                shared = common_prefix(group)
                parent = self._parent(group[0][:shared]) if shared else None
                for i, prompt in enumerate(group):
                    self._wait(Row(self.opened[-1], parent, prompt[shared:]), (g, i))
            self._flush()
        finally:
            self._close(0)
        return self.found

    def _open(self, tokens: int) -> None:
        """Open the request of a group, after those before it if there is no room beside them."""
        number = self.stepper.open(None, tokens, not self.opened)
        if number is None:
            self._flush()
            self._close(0)
            number = self.stepper.open(None, tokens, True)
            assert number is not None
        self.opened.append(number)

    def _parent(self, tokens: NDArray[np.int64]) -> int:
        self.stop.check()
        return int(self.stepper.step([Row(self.opened[-1], None, tokens, scored=0)]).hypotheses[0])

    def _wait(self, row: Row, place: tuple[int, int]) -> None:
        tokens = sum(len(waiting.tokens) for waiting in self.rows)
        if self.rows and (len(self.rows) >= self.most or tokens + len(row.tokens) > self.budget.tokens):
            self._flush()
        self.rows.append(row)
        self.places.append(place)

    def _flush(self) -> None:
        if not self.rows:
            return
        self.stop.check()
        scores = self.stepper.step(self.rows)
        for own, finite in zip(self.places, scores.finite.tolist(), strict=True):
            with located(self.place(*own)):
                if not finite:
                    raise logits_error()
        for (group, i), line in zip(self.places, scores.logits[:, list(self.ids)], strict=True):
            self.found[group][i] = line
        self.stepper.release(scores.hypotheses.tolist())
        self.advance(len(self.rows))
        self.rows, self.places = [], []
        self._close(1)

    def _close(self, kept: int) -> None:
        """Close the open requests, except the last `kept` ones."""
        while len(self.opened) > kept:
            self.stepper.close(self.opened.pop(0))


def common_prefix(prompts: Sequence[NDArray[np.int64]]) -> int:
    """Return the length of the prefix that all prompts share, below that of the shortest; 0 for a single prompt."""
    if len(prompts) < 2:
        return 0
    most = min(map(len, prompts)) - 1
    differs = np.any([prompt[:most] != prompts[0][:most] for prompt in prompts[1:]], axis=0)
    return int(differs.argmax()) if differs.any() else most
