"""`Engine.predict` and `Engine.rank`: scores of pairs of texts, and documents by their scores for a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, positive_int_or_none
from ..base.errors import InputError, shown
from ..base.stop import NEVER, Stop
from ..encoding.call import Call
from ..heads.coverage import limit_of_rank, ranks_of
from ..heads.pairs import check_pair, check_pairs, check_query, check_ranks, is_pair, scores_of
from ..heads.runner import HeadRunner
from ..queues.work import Pieces, Work
from ..text.cuts import Cuts, reported, reporting
from ..text.excerpts import START_CHARACTERS
from ..text.sentences import add_prompt, check_sentence, check_text, choose_prompt, slices
from ..text.tokenizer import Tokens
from .method import EncodingModel, Listed, Method, Options, listed, option
from .workload import DICTIONARY, NUMBER, Computation, Cost, Logits, Slice, Workload


@dataclass(frozen=True)
class PredictOptions(Options):
    """The options of `Engine.predict` that say what is computed."""

    prompt_name: str | None = None
    prompt: str | None = None
    logits: bool = option(False, flag)
    activation_fn: Any = None
    apply_softmax: bool = option(False, flag)


@dataclass(frozen=True)
class RankOptions(Options):
    """The options of `Engine.rank` that say what is computed."""

    top_k: int | None = option(None, positive_int_or_none)
    return_documents: bool = option(False, flag)
    coverage: float | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    activation_fn: Any = None


def _read_pairs(given: Any, options: PredictOptions) -> tuple[list[tuple[str, str]], bool]:
    single = is_pair(given)
    return check_pairs([given] if single else given), single


def _prepare_scores(model: EncodingModel, pairs: Sequence[tuple[str, str]], options: PredictOptions) -> Workload:
    runner = model.runner_of("classify")
    prompt = choose_prompt(runner.encoder.text, options.prompt, options.prompt_name)
    return pair_logits(runner, add_prompt(prompt, pairs), lambda logits: scores_of(
        runner, logits, options.activation_fn, as_logits=options.logits, apply_softmax=options.apply_softmax))


def pair_logits(runner: HeadRunner, pairs: Sequence[Any],
                finish: Callable[[np.ndarray], Any] = lambda logits: logits) -> Logits:
    """Return the work for the logits of pairs; a query that many pairs share is tokenized once."""
    return Logits(runner, pairs, runner.encoder.tokenizer.pairs, finish)


class _QueryLogits(Logits):
    """The logits of one query with each of some documents."""

    def __init__(self, runner: HeadRunner, query: str, texts: Sequence[str], finish: Callable[[np.ndarray], Any]):
        super().__init__(runner, [(query, text) for text in texts], runner.encoder.tokenizer.pairs, finish)
        self._tokenizer, self._query, self._documents = runner.encoder.tokenizer, query, texts

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of pairs to tokenize at one time."""
        # Of a long query as much is read for each pair as truncation looks at.
        query = self._query[: START_CHARACTERS * self._tokenizer.limit]
        return slices(add_prompt(query, self._documents), most, most_characters)

    def least(self, stop: Stop = NEVER) -> int:
        """Return how many tokens each pair has at least: about those of the query."""
        if not self._documents:
            return 1
        with reporting(Cuts(truncation=True)):
            [ids] = self._tokenizer([self._query], stop).input_ids
        return max(1, min(len(ids), self._tokenizer.limit) - 1)     # a pair may have fewer special tokens


def _prepare_ranks(model: EncodingModel, given: tuple[str, list[str]], options: RankOptions) -> Workload:
    runner, (query, texts) = model.runner_of("classify"), given
    limit = limit_of_rank(model.calibrations, options.coverage, options.top_k)
    documents = texts if options.return_documents else None
    prompt = choose_prompt(runner.encoder.text, options.prompt, options.prompt_name)
    return _QueryLogits(runner, prompt + query, texts, lambda logits: ranks_of(
        runner, logits, documents, options.top_k, limit, options.activation_fn))


def listed_pairs(inputs: Any, options: Any = None) -> Listed:
    """Return a list of pairs of texts."""
    return Listed(listed(inputs), check_pair)


def _listed_documents(inputs: Any, options: Any) -> Listed:
    """Return the documents of a query, one by one; raises `InputError`."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise InputError(f"the inputs of rank are a query and a list of documents, not {shown(inputs)}")
    query, documents = check_text("query", inputs[0]), inputs[1]
    if not isinstance(documents, (list, tuple)):
        raise InputError(f"documents must be a list of texts, not {shown(documents)}")
    return Listed(documents, lambda i, text: check_sentence(i, text, "documents", pairs=False),
                  lambda texts: (query, texts))


PREDICT = Method("predict", PredictOptions, lambda model: model.runner_of("classify", "score pairs"), _read_pairs,
                 _prepare_scores, listed_pairs)
RANK = Method("rank", RankOptions, lambda model: check_ranks(model.runner_of("classify", "rank")),
              lambda given, options: (check_query(*given), False), _prepare_ranks, _listed_documents)


# The methods of a `Reranker`, which has its own calibration: a cross-encoder, or a language model that reads prompts.


@dataclass(frozen=True)
class ScoreOptions(Options):
    """The options of `Reranker.predict` that say what is computed."""

    instruction: str | None = None
    logits: bool = option(False, flag)


@dataclass(frozen=True)
class RerankOptions(ScoreOptions):
    """The options of `Reranker.rank` that say what is computed, without a coverage."""

    top_k: int | None = option(None, positive_int_or_none)
    return_documents: bool = option(False, flag)


class _Prompts(Workload):
    """The logits of the prompts of pairs, which a language model computes for one call alone."""

    def __init__(self, model: Any, pairs: Sequence[tuple[str, str]], instruction: str | None,
                 finish: Callable[[np.ndarray], Any]):
        super().__init__(Computation(model.queue, self._work), pairs, results=np.zeros(len(pairs), np.float32),
                         cost=Cost(sequence=NUMBER + DICTIONARY))
        self.model, self._instruction, self._finish = model, instruction, finish
        self.queries: dict[int, str] = {}
        """The query of each prompt, by the id of the array of the prompt, which its slice keeps."""

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the prompts of some pairs as tokens."""
        pairs, outer = self.inputs[places.start : places.stop], reported()
        marks: list[bool] = []
        with reporting(Cuts(None if outer is None else outer.truncation, marks=marks)):
            prompts = self.model.prompts(pairs, self._instruction, stop)
        self.queries |= {id(prompt): query for prompt, (query, _) in zip(prompts, pairs, strict=True)}
        if outer is not None and outer.marks is not None:
            # Prompts are made one query after the other, and cuts are reported in that order.
            queries = [query for query, _ in pairs]
            order = sorted(range(len(pairs)), key=lambda i: queries.index(queries[i]))
            outer.marks += [mark for _, mark in sorted(zip(order, marks, strict=True))]
        return Slice(places, Tokens(prompts, [_NO_TYPES] * len(prompts)))

    def result(self) -> Any:
        """Return what `finish` makes of the logits, float32 [n]."""
        return self._finish(self.results)


    def _work(self, tokens: Tokens, call: Call) -> Work:
        """Return a work of one batch or several, with no prompts of other calls."""
        return Work(self._compute, [len(ids) for ids in tokens.input_ids], tokens.input_ids)

    def _compute(self, pieces: Pieces, stop: Stop) -> np.ndarray:
        prompts = [work.data[i] for work, numbers in pieces for i in numbers]
        return self.model.prompt_logits(prompts, [self.queries[id(one)] for one in prompts], stop)


_NO_TYPES = np.zeros(0, np.int32)


def _no_instruction(options: ScoreOptions) -> None:
    if options.instruction is not None:
        raise InputError("a cross-encoder reads no instruction; leave it out")


def _prepare_reranked_scores(model: Any, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Workload:
    def finish(logits: np.ndarray) -> Any:
        return logits if options.logits else model.scores_of(logits)

    if model.cross_encoder is None:
        return _Prompts(model, pairs, options.instruction, finish)
    _no_instruction(options)
    runner = model.cross_encoder.runner_of("classify")
    return pair_logits(runner, add_prompt(choose_prompt(runner.encoder.text, None, None), pairs),
                       lambda logits: finish(logits[:, 0]))


def _prepare_reranked(model: Any, given: tuple[str, list[str]], options: RerankOptions) -> Workload:
    query, texts = given
    documents = texts if options.return_documents else None

    def finish(logits: np.ndarray) -> Any:
        return model.ranks_of(logits, documents, options.top_k, as_logits=options.logits)

    if model.cross_encoder is None:
        return _Prompts(model, [(query, text) for text in texts], options.instruction, finish)
    _no_instruction(options)
    runner = model.cross_encoder.runner_of("classify")
    return _QueryLogits(runner, choose_prompt(runner.encoder.text, None, None) + query, texts,
                        lambda logits: finish(logits[:, 0]))


RERANKED: dict[str, Method[Any]] = {
    "predict": Method("predict", ScoreOptions, lambda model: None, _read_pairs, _prepare_reranked_scores,
                      listed_pairs),
    "rank": Method("rank", RerankOptions, lambda model: None, lambda given, options: (check_query(*given), False),
                   _prepare_reranked, _listed_documents)}
"""The methods of a `Reranker`."""
