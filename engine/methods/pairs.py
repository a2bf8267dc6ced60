"""`Engine.predict` and `Engine.rank`: scores of pairs of texts, and documents by their scores for a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.arguments import flag, positive_int_or_none
from ..base.other_names import same
from ..heads.coverage import limit_of_rank, ranks_of
from ..heads.pairs import check_pairs, check_query, check_ranks, is_pair, scores_of
from ..heads.runner import HeadRunner
from ..text.sentences import add_prompt, choose_prompt
from .method import EncodingModel, Method, Options, option
from .workload import Workload, pair_logits


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

    top_k: int | None = option(None, positive_int_or_none, top_n=same("top_k"))
    return_documents: bool = option(False, flag)
    coverage: float | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    activation_fn: Any = None


def _prompted(runner: HeadRunner, pairs: Sequence[tuple[str, str]], options: PredictOptions | RankOptions
              ) -> Sequence[Any]:
    """Return pairs with the prompt in front of each first text."""
    return add_prompt(choose_prompt(runner.encoder.text, options.prompt, options.prompt_name), pairs)


def _read_pairs(given: Any, options: PredictOptions) -> tuple[list[tuple[str, str]], bool]:
    single = is_pair(given)
    return check_pairs([given] if single else given), single


def _prepare_scores(model: EncodingModel, pairs: Sequence[tuple[str, str]], options: PredictOptions) -> Workload:
    runner = model.runner_of("classify")
    return pair_logits(runner, _prompted(runner, pairs, options), lambda logits: scores_of(
        runner, logits, options.activation_fn, as_logits=options.logits, apply_softmax=options.apply_softmax))


def _prepare_ranks(model: EncodingModel, given: tuple[str, list[str]], options: RankOptions) -> Workload:
    runner, (query, texts) = model.runner_of("classify"), given
    limit = limit_of_rank(model.calibrations, options.coverage, options.top_k)
    documents = texts if options.return_documents else None
    return pair_logits(runner, _prompted(runner, [(query, text) for text in texts], options), lambda logits: ranks_of(
        runner, logits, documents, options.top_k, limit, options.activation_fn))


PREDICT = Method("predict", PredictOptions, lambda model: model.runner_of("classify", "score pairs"), _read_pairs,
                 _prepare_scores)
RANK = Method("rank", RankOptions, lambda model: check_ranks(model.runner_of("classify", "rank")),
              lambda given, options: (check_query(*given), False), _prepare_ranks)
