"""Calibrate a model on labelled texts: `engine.calibrate`, and the report that it returns."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import flag, is_one_of, positive_int_or_none, renamed_arguments, warn_caller
from ..base.errors import InputError, UnsupportedError, shown
from ..base.progress import progress
from ..base.stop import Stop
from ..encoding.call import Call
from ..heads.answers import candidates, loss_of
from ..heads.pairs import check_pairs, gaps_below
from ..heads.runner import HeadRunner
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.reranker import Reranker
from ..methods.answer import Answers
from ..methods.inputs import place_of
from ..methods.pairs import pair_logits
from ..methods.run import compute
from ..methods.score import own_tokens, show_logits
from ..methods.tag import WordLogits
from ..methods.workload import Logits
from ..text.sentences import check_sentences, listed_in_order
from ..uncertainty.conformal import aps_scores, lac_scores
from ..uncertainty.measures import Measures, measure, measure_summary, summarise
from ..uncertainty.probabilities import probabilities
from ..uncertainty.temperature import fit_scale, fit_scale_and_bias, fit_temperature, log_loss
from ..weights.calibration import Calibration
from .labelled import RELEVANCES, check_several, label_numbers

LEAST = 20
"""The fewest labelled texts: one half fits the temperature, and the other half measures it."""
ENOUGH_FOR_BIAS = 30
"""How many texts of each class the first half must have, so that biases are fitted by default."""
KEPT_LOGITS = 2**25
"""The most logits of next tokens that are kept in memory to fit a temperature to them: 128 MiB of float32."""


@dataclass(frozen=True)
class CalibrationReport:
    """The result of `calibrate`: the calibration, and measures of the probabilities without it and with it.

    The measures are taken on the labelled texts to which no temperature was fitted, and are None for answers.
    """

    calibration: Calibration
    """For `Model.with_calibration` or `Engine.with_calibration`."""
    fitted: int
    """The number of texts, words, pairs or tokens to which the temperature was fitted; 0 for answers."""
    before: Measures | None
    """Measures of the probabilities without the calibration."""
    after: Measures | None
    """Measures of the probabilities with it."""

    @property
    def temperature(self) -> float:
        """The number by which logits are divided: above 1 for a model that is too sure."""
        return self.calibration.temperature

    @property
    def bias(self) -> np.ndarray | None:
        """The numbers that are then added to the logits: float32 [classes], or [1] for pairs; None for none."""
        return self.calibration.bias


@renamed_arguments
def calibrate(model: Engine | Reranker | Generator, texts: Any, labels: Any = None, *, task: str | None = None,
              bias: bool | None = None, seed: int = 0, batch_size: int | None = None,
              show_progress_bar: bool | None = None, timeout: float | None = None) -> CalibrationReport:
    """Fit a temperature to labelled texts, and keep the scores of right answers for calls with a coverage.

    texts, labels: by task
        classify    texts or pairs of texts; the label of each, by name or number
        rank        pairs (query, document); 1 or True if the document is relevant, otherwise 0 or False. If some
                    queries have several documents, `rank(..., coverage=)` works afterwards
        tag         lists of words; for each a list of labels
        answer      pairs (question, text); the right answer, "" where the text has none. It fits no temperature
        score       texts, whose own next tokens are the labels, for a `Generator` without an encoder; no labels
    task: None for the one that fits the model: rank for one label, else classify, tag or answer; score for a Generator.
    bias: whether to fit a bias for each class, too; None where each class has enough texts (30 in the half that is
        fitted to). Not for score.
    seed: of the permutation that halves the texts. One half fits the temperature; the other half, which the report
        measures, gives the scores for a coverage.
    batch_size: for an Engine, the most texts that are computed at a time. show_progress_bar: None shows one on a
        terminal at log level INFO. timeout: seconds after which it stops with `TimedOut`; None for no limit.

    The model does not change, and a calibration that it has is not used: `model.with_calibration(report.calibration)`
    returns a calibrated object, and `engine.save(model.with_calibration(...), path)` writes a calibrated file.
    Warns where the calibration makes the expected calibration error worse. Raises `InputError` for labels that the head
    has not, too few texts, or one class alone, and `UnsupportedError` for a model without heads.
    """
    if not isinstance(model, (Engine, Reranker, Generator)):
        raise InputError(f"calibrate takes an Engine, a Reranker or a Generator, not {shown(model)}; engine.load "
                         "returns one")
    task = task_of(model, task)
    bias = None if bias is None else flag("bias", bias)
    if bias and task in ("score", "answer"):
        raise InputError(f"{task} has no biases of classes; leave bias=True out")
    if show_progress_bar is not None:
        show_progress_bar = flag("show_progress_bar", show_progress_bar)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InputError(f"seed must be an int of at least 0, not {shown(seed)}")
    batch_size = positive_int_or_none("batch_size", batch_size)
    if batch_size is not None and not isinstance(model, Engine):
        raise InputError("batch_size is for an Engine; max_rows and max_batch_tokens of load bound other batches")
    if isinstance(model, Generator):
        if labels is not None:
            raise InputError("the labels of next tokens are the tokens of the texts; leave labels out")
        report = _of_tokens(model, _list("texts", texts), int(seed), show_progress_bar, Stop.after(timeout))
        return _warned_if_worse(report)
    rows, wanted = _list("texts", texts), _list("labels", labels)
    if len(rows) != len(wanted):
        raise InputError(f"there are {len(rows)} texts and {len(wanted)} labels; each text needs one")
    if len(rows) < LEAST:
        raise InputError(f"there are {len(rows)} labelled texts; give {LEAST} at least, better several hundred")
    run = _Run(model, bias, int(seed), Call(batch_size, Stop.after(timeout)), show_progress_bar, timeout)
    kinds = {"classify": run.classes, "rank": run.pairs, "tag": run.tags, "answer": run.answers}
    return _warned_if_worse(kinds[task](rows, wanted))


def _warned_if_worse(report: CalibrationReport) -> CalibrationReport:
    """Return the report unchanged, after a warning if the calibration makes the calibration error (ECE) worse."""
    before, after = report.before, report.after
    if before is not None and after is not None and after.ece > before.ece:
        warn_caller(f"the calibration makes ECE worse: {before.ece:.4f} before, {after.ece:.4f} after, on "
                    f"{after.count:,} labels to which nothing was fitted; use the model as it is, or calibrate it on "
                    "more texts", UserWarning)
    return report


def task_of(model: Engine | Reranker | Generator, task: Any) -> str:
    """Return the task to calibrate: `task`, or for None the model's first one that can be calibrated.

    Raises `InputError` for a task that the model lacks, and `UnsupportedError` for a model that has none.
    """
    known = model.calibrated_tasks
    if not known:
        raise UnsupportedError("this model has nothing to calibrate: an encoder needs classes of which a text has one, "
                               "not several labels at once or numbers, or tags or answers, and a language model "
                               "without an encoder has next tokens")
    if task is not None and not is_one_of(task, known):
        raise InputError(f"task must be None or one of {', '.join(map(repr, known))} for this model, not {shown(task)}")
    return known[0] if task is None else str(task)


def halves(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the texts to fit to, and of the texts to measure, both in a random order."""
    order = np.random.default_rng(seed).permutation(count)
    return order[: count // 2], order[count // 2 :]


@dataclass(frozen=True)
class _Run:
    """One call of `calibrate` for a model with heads: its options, and a method for each task.

    A method gets lists of texts and of labels of one length, fits to one half of them, and measures with the other;
    `pairs` halves the queries, and `answers` fits nothing.
    """

    model: Any
    bias: bool | None
    seed: int
    call: Call
    show_progress_bar: Any
    timeout: Any

    def classes(self, texts: list[Any], labels: list[Any]) -> CalibrationReport:
        """Calibrate the classes of texts, and keep the conformal scores of the right labels, for sets of labels."""
        runner: HeadRunner = self.model.runner_of("classify")
        names = runner.config.labels
        checked, numbers = check_sentences(texts), label_numbers(labels, names)
        check_several(numbers, names)
        with self._showing(checked) as call:
            logits = _finite(compute(Logits(runner, checked), call))
        to_fit, to_measure = halves(len(checked), self.seed)
        fitted = self._fit(logits[to_fit], numbers[to_fit], names)
        before, after = probabilities(logits[to_measure]), probabilities(logits[to_measure], *fitted)
        right = np.arange(len(to_measure)), numbers[to_measure]
        arrays = _fitted_arrays(fitted) | {
            "lac": lac_scores(after)[right], "aps": aps_scores(after)[right],
            "classes": numbers[to_measure].astype(np.uint16), "confidences": after.max(axis=1).astype(np.float32)}
        return CalibrationReport(Calibration("classify", arrays), len(to_fit), measure(before, numbers[to_measure]),
                                 measure(after, numbers[to_measure]))

    def pairs(self, texts: list[Any], labels: list[Any]) -> CalibrationReport:
        """Calibrate the probability that a document is relevant, and the lists of queries with several documents."""
        checked, numbers = check_pairs(texts), label_numbers(labels, RELEVANCES)
        check_several(numbers, RELEVANCES)
        # the distinct queries in the order of the pairs, and for each pair the number of its query
        queries = [*dict.fromkeys(query for query, _ in checked)]
        numbered = {query: i for i, query in enumerate(queries)}
        of_query = np.array([numbered[query] for query, _ in checked])
        if isinstance(self.model, Reranker):
            logits = self.model.predict(checked, logits=True, show_progress_bar=self.show_progress_bar,
                                        timeout=self.timeout)[:, None]
        else:
            runner = self.model.runner_of("classify")
            with self._showing(checked) as call:
                logits = compute(pair_logits(runner, checked), call)
        logits = _finite(logits)
        # Queries are halved, and not pairs, so that all documents of a query are on one side.
        to_fit, to_measure = (np.isin(of_query, some) for some in halves(len(queries), self.seed))
        fitted = self._fit(logits[to_fit], numbers[to_fit], RELEVANCES)
        before, after = probabilities(logits[to_measure]), probabilities(logits[to_measure], *fitted)
        arrays = _fitted_arrays(fitted)
        gaps = _gaps(logits[to_measure, 0], of_query[to_measure], numbers[to_measure])
        if len(gaps):       # none if no query has several documents, of which one is relevant
            arrays["gaps"] = gaps
        return CalibrationReport(Calibration("rank", arrays), int(to_fit.sum()), measure(before, numbers[to_measure]),
                                 measure(after, numbers[to_measure]))

    def tags(self, texts: list[Any], labels: list[Any]) -> CalibrationReport:
        """Calibrate the tags of words, by the logits of the first token of each word."""
        runner: HeadRunner = self.model.runner_of("tag")
        names = runner.config.labels
        numbers = []
        for i, (words, of_text) in enumerate(zip(texts, labels, strict=True)):
            if isinstance(words, str) or not isinstance(words, Sequence) or not words:
                raise InputError(f"text {i} must be a list of words, not {shown(words)}")
            check_sentences(words)
            if isinstance(of_text, str) or not isinstance(of_text, Sequence) or len(of_text) != len(words):
                raise InputError(f"text {i} has {len(words)} words, and its labels must be a list of as many, not "
                                 f"{shown(of_text)}")
            numbers.append(label_numbers(of_text, names, f"text {i}, word"))
        check_several(np.concatenate(numbers), names)
        rows, right = [], []
        with self._showing(texts) as call:
            for of_text, (places, logits) in zip(numbers, compute(WordLogits(runner, texts), call), strict=True):
                rows.append(_finite(logits))
                right.append(of_text[places])
        to_fit, to_measure = halves(len(texts), self.seed)
        logits_to_fit, logits_to_measure = (np.concatenate([rows[i] for i in some]) for some in (to_fit, to_measure))
        right_to_fit, right_to_measure = (np.concatenate([right[i] for i in some]) for some in (to_fit, to_measure))
        fitted = self._fit(logits_to_fit, right_to_fit, names)
        before = measure(probabilities(logits_to_measure), right_to_measure)
        after = measure(probabilities(logits_to_measure, *fitted), right_to_measure)
        return CalibrationReport(Calibration("tag", _fitted_arrays(fitted)), len(right_to_fit), before, after)

    def answers(self, texts: list[Any], labels: list[Any]) -> CalibrationReport:
        """Keep the loss, 1 - score, of the right answer to each question; a quantile of them bounds sets of answers."""
        runner: HeadRunner = self.model.runner_of("answer")
        checked = check_pairs(texts)
        for i, (label, (_, text)) in enumerate(zip(labels, checked, strict=True)):
            if not isinstance(label, str) or label.strip().lower() not in text.lower():
                raise InputError(f'the right answer of question {i} must be a part of its text, or "" for no answer, '
                                 f"not {shown(label)}")
        impossible = any(not label.strip() for label in labels)
        with self._showing(checked) as call:
            answers = compute(Answers(runner, checked, candidates(impossible)), call)
            losses = [loss_of(answers_of, label) for answers_of, label in zip(answers, labels, strict=True)]
        arrays: dict[str, np.ndarray] = {"losses": np.array(losses, np.float32),
                                         "impossible": np.array([impossible], np.uint8)}
        return CalibrationReport(Calibration("answer", arrays), fitted=0, before=None, after=None)

    def _showing(self, texts: Sized) -> AbstractContextManager[Call]:
        """Return the call with a progress bar over the texts, which a `with` block shows."""
        return self.call.showing(len(texts), self.show_progress_bar, "Calibration")

    def _fit(self, logits: np.ndarray, labels: NDArray[np.int64], names: Sequence[str]
             ) -> tuple[float, NDArray[np.float32] | None]:
        """Return the temperature, and the bias of each class or None, fitted to logits [n, classes] and labels [n].

        Both are rounded to float32, as a file holds them. logits: [n, 1] for pairs. names: of the classes.
        """
        check_several(labels, names)
        counts = np.bincount(labels, minlength=len(names))
        fits_bias = int(counts.min()) >= ENOUGH_FOR_BIAS if self.bias is None else self.bias
        if fits_bias:
            temperature, bias = fit_scale_and_bias(logits, labels)
            return float(np.float32(temperature)), bias.astype(np.float32)
        return float(np.float32(fit_temperature(logits, labels))), None


def _list(name: str, values: Any) -> list[Any]:
    """Return the argument `name`, an ordered collection, as a list; raises `InputError` for anything else."""
    return listed_in_order(values, f"{name} must be a list, with one entry for each labelled text")


def _finite(logits: np.ndarray) -> np.ndarray:
    """Return the logits unchanged; raises `InputError` if one is NaN or infinite."""
    if not np.isfinite(logits).all():
        raise InputError("the model computed logits that are NaN or infinite for some texts, so it cannot be "
                         "calibrated: its weights are damaged, or its precision is too low")
    return logits


def _fitted_arrays(fitted: tuple[float, NDArray[np.float32] | None]) -> dict[str, np.ndarray]:
    """Return a fitted temperature and bias as arrays of a `Calibration`, by their names there."""
    temperature, bias = fitted
    return {"temperature": np.array([temperature], np.float32)} | ({} if bias is None else {"bias": bias})


def _gaps(logits: np.ndarray, of_query: np.ndarray, relevant: np.ndarray) -> NDArray[np.float32]:
    """Return how far the best relevant document of each query is below the top: float32 [queries].

    logits, of_query, relevant: [pairs], the logit of a document, the number of its query, and 1 if it is relevant.
    Queries with one document, or without a relevant one, are left out.
    """
    gaps = []
    for query in dict.fromkeys(of_query.tolist()):
        here = of_query == query
        if here.sum() > 1 and relevant[here].any():
            gaps.append(gaps_below(logits[here])[relevant[here] == 1].min())
    return np.array(gaps, np.float32)


def _temperature_of(parts: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the temperature that fits logits [n, V] and right ids [n], given in parts; empties the list of parts."""
    logits, ids = (np.concatenate([pair[i] for pair in parts]) for i in range(2))
    parts.clear()       # frees the parts, so that the logits are in memory once
    return float(np.float32(fit_scale(lambda temperature: log_loss(logits, ids, 1 / temperature))))


def _of_tokens(model: Generator, texts: list[Any], seed: int, show_progress_bar: Any, stop: Stop) -> CalibrationReport:
    """Calibrate the probabilities of next tokens, on the texts' own tokens.

    Half of the texts fit the temperature, with `KEPT_LOGITS` logits of them at most; the other half measures it.
    """
    prepared = model.prepared
    requests, tokens = own_tokens(prepared, texts, stop)
    usable = [i for i, of_text in enumerate(tokens) if of_text]
    to_fit, to_measure = ([usable[i] for i in some] for some in halves(len(usable), seed))
    pairs: list[tuple[np.ndarray, np.ndarray]] = []     # logits [n, V] and right ids [n], to fit to
    most = max(1, KEPT_LOGITS // model.config.vocab_size)

    def keep(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
        """Keep copies of logits [n, V], and the right ids [n], while there is room."""
        room = most - sum(len(ids) for _, ids in pairs)
        if room > 0:
            pairs.append((logits[:room].copy(), ids[:room]))

    fitted_tokens = 0
    for i in to_fit:
        show_logits(prepared, requests[i], tokens[i], keep, place_of(i), stop)
        fitted_tokens = sum(len(ids) for _, ids in pairs)
        if fitted_tokens >= most:
            break
    if fitted_tokens < LEAST or not to_measure:
        raise InputError(f"the texts have {sum(map(len, tokens))} next tokens; give {2 * LEAST} at least, in several "
                         "texts, better a thousand")
    temperature = _temperature_of(pairs)
    summaries: list[list[np.ndarray]] = [[], []]

    def summarise_both(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
        """Keep a summary of the probabilities without and with the temperature, in place of the logits."""
        for summary, t in zip(summaries, (1.0, temperature), strict=True):
            summary.append(summarise(probabilities(logits, t), ids))

    with progress(len(to_measure), show_progress_bar, "Calibration") as advance:
        for i in to_measure:
            show_logits(prepared, requests[i], tokens[i], summarise_both, place_of(i), stop)
            advance(1)
    before, after = (measure_summary(np.concatenate(summary)) for summary in summaries)
    calibration = Calibration("score", {"temperature": np.array([temperature], np.float32)})
    return CalibrationReport(calibration, fitted_tokens, before, after)
