"""`Engine.predict` and `Engine.rank`: scores of pairs of texts, and documents ranked by their scores for a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, positive_int_or_none
from ..base.errors import InputError, shown
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..heads.coverage import limit_of_rank, ranks_of
from ..heads.pairs import check_pair, check_pairs, check_query, check_ranks, is_pair, pair_scores
from ..heads.runner import HeadRunner
from ..text.cuts import Cuts, reporting
from ..text.excerpts import START_CHARACTERS
from ..text.sentences import add_prompt, check_sentence, check_text, choose_prompt, slices
from .method import EncodingModel, Listed, Method, listed
from .workload import Logits, Workload


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


def read_pairs(inputs: Any, options: Options) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs of texts, and whether the caller gave one pair, not a list; raises `InputError`."""
    single = is_pair(inputs)
    return check_pairs([inputs] if single else inputs), single


def _prepare_scores(model: EncodingModel, pairs: Sequence[tuple[str, str]], options: PredictOptions) -> Workload:
    """Return the workload of `predict`: the scores of pairs, with the prompt in front of each first text."""
    runner = model.runner_of("classify")
    prompt = choose_prompt(runner.encoder.text, options.prompt, options.prompt_name)
    return pair_logits(runner, add_prompt(prompt, pairs), lambda logits: pair_scores(
        runner, logits, options.activation_fn, as_logits=options.logits, apply_softmax=options.apply_softmax))


def pair_logits(runner: HeadRunner, pairs: Sequence[Any],
                finish: Callable[[np.ndarray], Any] = lambda logits: logits) -> Logits:
    """Return the workload for the logits of pairs, in which a query that many pairs share is tokenized once.

    finish: makes the result of the call from the logits, float32 [pairs, outputs].
    """
    return Logits(runner, pairs, tokenize=runner.encoder.tokenizer.pairs, finish=finish)


class QueryLogits(Logits):
    """The workload for the logits of one query with each of some documents: float32 [documents, outputs]."""

    def __init__(self, runner: HeadRunner, query: str, texts: Sequence[str], finish: Callable[[np.ndarray], Any]):
        super().__init__(runner, [(query, text) for text in texts], tokenize=runner.encoder.tokenizer.pairs,
                         finish=finish)
        self._tokenizer, self._query, self._documents = runner.encoder.tokenizer, query, texts

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of pairs to tokenize at one time."""
        # Count only the start of a long query that truncation reads for each pair.
        query = self._query[: START_CHARACTERS * self._tokenizer.limit]
        return slices(add_prompt(query, self._documents), most, most_characters)

    def least(self, stop: Stop = NEVER) -> int:
        """Return the least number of tokens of each pair: those of the query alone, less one."""
        if not self._documents:
            return 1
        with reporting(Cuts(truncation=True)):      # the pairs report the cut of the query when they are made
            [ids] = self._tokenizer([self._query], stop).input_ids
        return max(1, min(len(ids), self._tokenizer.limit) - 1)     # a query alone may have one special token more


def _prepare_ranks(model: EncodingModel, query_and_texts: tuple[str, list[str]], options: RankOptions) -> Workload:
    """Return the workload of `rank`. query_and_texts: the query and the documents."""
    runner, (query, texts) = model.runner_of("classify"), query_and_texts
    limit = limit_of_rank(model.calibrations, options.coverage, options.top_k)
    documents = texts if options.return_documents else None
    prompt = choose_prompt(runner.encoder.text, options.prompt, options.prompt_name)
    return QueryLogits(runner, prompt + query, texts, lambda logits: ranks_of(
        runner, logits, documents, options.top_k, limit, options.activation_fn))


def listed_pairs(inputs: Any, options: Any = None) -> Listed:
    """Return inputs that are pairs of texts one by one; raises `InputError` for no list."""
    return Listed(listed(inputs), check_pair)


def listed_documents(inputs: Any, options: Any) -> Listed:
    """Return the documents of (query, documents) one by one; raises `InputError`."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise InputError(f"the inputs of rank are a query and a list of documents, not {shown(inputs)}")
    query, documents = check_text("query", inputs[0]), inputs[1]
    if not isinstance(documents, (list, tuple)):
        raise InputError(f"documents must be a list of texts, not {shown(documents)}")
    return Listed(documents, lambda i, text: check_sentence(i, text, "documents", pairs=False),
                  lambda texts: (query, texts))


PREDICT = Method("predict", PredictOptions, lambda model: model.runner_of("classify", "score pairs"), read_pairs,
                 _prepare_scores, listed_pairs)
RANK = Method("rank", RankOptions, lambda model: check_ranks(model.runner_of("classify", "rank")),
              lambda given, options: (check_query(*given), False), _prepare_ranks, listed_documents)
