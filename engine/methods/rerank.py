"""`Reranker.predict` and `Reranker.rank`: pairs and documents by a cross-encoder, or by a language model with a prompt.

A cross-encoder computes pairs of texts as `Engine.predict` does. A language model reads a prompt for each pair, and the
logits of one or two answers as the next token make the logit of the pair. `model` is a `Reranker` in each function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import flag, positive_int_or_none
from ..base.errors import InputError
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..encoding.call import PLAIN, Call
from ..generation.scoring import LastLogits
from ..generation.step_queue import StepQueue
from ..generation.tickets import DecoderTicket
from ..heads.coverage import limit_of_rank
from ..heads.pairs import check_query
from ..queues.work import Pieces, Work
from ..text.sentences import add_prompt, check_text, choose_prompt
from ..text.tokens import Tokens
from .method import Method
from .pairs import QueryLogits, listed_documents, listed_pairs, pair_logits, read_pairs
from .workload import DICTIONARY_BYTES, NUMBER_BYTES, Cost, Slice, Workload


@dataclass(frozen=True)
class RerankerPredictOptions(Options):
    """The options of `Reranker.predict` that say what is computed."""

    instruction: str | None = None
    logits: bool = option(False, flag)
    cache_key: str = option("", check_text)


@dataclass(frozen=True)
class RerankerRankOptions(RerankerPredictOptions):
    """The options of `Reranker.rank` that say what is computed."""

    top_k: int | None = option(None, positive_int_or_none)
    return_documents: bool = option(False, flag)
    coverage: float | None = None


_Submitted: TypeAlias = tuple[Sequence[int], LastLogits, DecoderTicket]
"""(the numbers of the prompts of one query in the call, their work, its ticket)"""


class PromptLogits:
    """Computes the logit of each prompt of one call in the queue of a language model, as a `Computing`.

    Prompts of one query begin alike, and the model reads this beginning once for all of them. A call of the library
    submits its prompts to the queue of the model itself (`rows`). A server has a `ModelQueue` in front of that, which
    knows when the turn of a request comes; its batches have prompts of several requests (`work`).
    """

    def __init__(self, queue: StepQueue, answers: Sequence[int], queries: Sequence[str], cache_key: str = ""):
        """answers: the ids of one or two tokens. queries: the query of each prompt of the call. cache_key: calls with
        equal keys share the cached beginnings of prompts.

        The logit of a prompt is that of the first answer, minus that of the second one if there are two.
        """
        self._queue, self._answers, self._queries, self._cache_key = queue, (*answers,), queries, cache_key

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield ([number of a prompt], [its logit]) for each prompt of the call, each as soon as it is computed."""
        with ExitStack() as tickets:
            numbers = range(len(tokens.input_ids))
            for number, logit in _logits_of_prompts(self.submit(numbers, tokens.input_ids, call.stop, tickets)):
                yield [number], [logit]

    def work(self, tokens: Tokens, call: Call) -> Work:
        """Return the work of all prompts of the call for the `ModelQueue` of a server."""
        return Work(_PromptsOfCalls(self._queue, self._answers), [len(ids) for ids in tokens.input_ids],
                    (self, tokens.input_ids))

    def submit(self, numbers: Sequence[int], prompts: Sequence[NDArray[Any]], stop: Stop, tickets: ExitStack
               ) -> list[_Submitted]:
        """Submit some prompts to the queue of the model, one work for each query.

        numbers: of the prompts to submit. prompts: the ids of all prompts of the call, each int [T]. tickets: gets the
        tickets, and cancels the works at its end that have not ended.
        """
        by_query: dict[str, list[int]] = {}
        for number in numbers:
            by_query.setdefault(self._queries[number], []).append(number)
        owner = object()        # each call gets an equal share of the tokens
        submitted: list[_Submitted] = []
        for members in by_query.values():
            work = LastLogits([prompts[i] for i in members], [*self._answers], names=[f"pair {i}" for i in members])
            work.cache_key = self._cache_key
            ticket = tickets.enter_context(self._queue.submit(work, owner=owner, stop=stop))
            submitted.append((members, work, ticket))
        return submitted


@dataclass(frozen=True)
class _PromptsOfCalls:
    """A `Job` that computes prompts of several calls together. Jobs with equal answers are equal, and share batches."""

    queue: StepQueue
    answers: tuple[int, ...]

    def __call__(self, pieces: Pieces, stop: Stop) -> NDArray[np.float32]:
        """Return the logits of all pieces, float32 [pieces]. The data of each work is (`PromptLogits`, prompts)."""
        with ExitStack() as tickets:
            submitted = []      # for each work of the batch
            for work, numbers in pieces:
                computing, prompts = work.data
                submitted.append(computing.submit(numbers, prompts, stop, tickets))
            logits = [dict(_logits_of_prompts(of_work)) for of_work in submitted]       # of each work, by number
        return np.array([by_number[number] for by_number, (_, numbers) in zip(logits, pieces, strict=True)
                         for number in numbers], np.float32)


def _logits_of_prompts(submitted: Sequence[_Submitted]) -> Iterator[tuple[int, np.float32]]:
    """Yield (number of a prompt, its logit) for each submitted prompt, query by query, as they are computed."""
    for members, work, ticket in submitted:
        for token in ticket:        # its id is the index in the work of a prompt that has its logits now
            logits = work.scores[token.id]
            assert logits is not None
            yield members[token.id], logits[0] - logits[1] if len(logits) == 2 else logits[0]


class _Prompts(Workload):
    """The workload of a language model: a prompt for each pair, and its logit."""

    def __init__(self, model: Any, pairs: Sequence[tuple[str, str]], options: RerankerPredictOptions,
                 finish: Callable[[np.ndarray], Any]):
        """finish: makes the result of the call from the logits of all pairs, float32 [n]."""
        queries = [query for query, _ in pairs]
        super().__init__(PromptLogits(model.queue, model.answers, queries, options.cache_key), pairs,
                         results=np.zeros(len(pairs), np.float32), cost=Cost(sequence=NUMBER_BYTES + DICTIONARY_BYTES))
        self._model, self._instruction, self._finish = model, options.instruction, finish

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield all pairs at once unless there are limits, so that the common beginning of prompts is read once."""
        if most is None and most_characters is None:
            return iter([range(len(self.inputs))] if self.inputs else [])
        return super().parts(most, most_characters)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the prompts of some pairs as tokens."""
        prompts = self._model.prompts(self.inputs[places.start : places.stop], self._instruction, stop)
        return Slice(places, Tokens(prompts, [_NO_TYPES] * len(prompts)))

    def result(self) -> Any:
        """Return the result of the call from the logits of all pairs."""
        return self._finish(self.results)


_NO_TYPES = np.zeros(0, np.int32)
"""The token types of a prompt: a language model has none."""


def _workload(model: Any, query: str | None, pairs: Sequence[tuple[str, str]],
              options: RerankerPredictOptions, finish: Callable[[np.ndarray], Any]) -> Workload:
    """Return the workload for the logits of pairs, float32 [n]. query: of all pairs; None if theirs differ."""
    if model.cross_encoder is None:
        return _Prompts(model, pairs, options, finish)
    if options.instruction is not None:
        raise InputError("a cross-encoder reads no instruction; leave it out")
    runner = model.cross_encoder.runner_of("classify")
    prompt = choose_prompt(runner.encoder.text, prompt=None, prompt_name=None)     # the default one, if any
    if query is None:
        return pair_logits(runner, add_prompt(prompt, pairs), lambda logits: finish(logits[:, 0]))
    return QueryLogits(runner, prompt + query, [text for _, text in pairs], lambda logits: finish(logits[:, 0]))


def _prepare_scores(model: Any, pairs: Sequence[tuple[str, str]], options: RerankerPredictOptions
                    ) -> Workload:
    """Return the workload of `predict`: the scores of pairs, or their logits."""
    return _workload(model, query=None, pairs=pairs, options=options,
                     finish=lambda logits: logits if options.logits else model.scores_of(logits))


def _prepare_ranks(model: Any, query_and_texts: tuple[str, list[str]], options: RerankerRankOptions) -> Workload:
    """Return the workload of `rank`. query_and_texts: the query and the documents."""
    query, texts = query_and_texts
    limit = limit_of_rank(model.calibrations, options.coverage, options.top_k)
    documents = texts if options.return_documents else None
    return _workload(model, query, [(query, text) for text in texts], options, lambda logits: model.ranks_of(
        logits, documents, options.top_k, limit, as_logits=options.logits))


RERANKER_PREDICT = Method("predict", RerankerPredictOptions, lambda model: model.queue, read_pairs, _prepare_scores,
                          listed_pairs)
RERANKER_RANK = Method("rank", RerankerRankOptions, lambda model: model.queue,
                       lambda given, options: (check_query(*given), False), _prepare_ranks, listed_documents)
