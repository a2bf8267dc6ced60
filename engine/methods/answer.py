"""`Engine.answer`: the parts of texts that answer questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.advice.calls import POSITIONAL
from ..base.errors import CallError, InputError, shown
from ..base.stop import NEVER, Stop
from ..heads.answers import Answering, answer_or_abstain, answer_windows, best_answers, candidates
from ..heads.coverage import calibration_of
from ..heads.runner import HeadRunner
from ..text.sentences import read_texts
from ..uncertainty.conformal import check_coverage, threshold
from .method import EncodingModel, Method
from .pairs import listed_pairs
from .tag import WindowedTexts
from .workload import Slice, Workload

TEXTS = 64
"""How many texts are cut into windows at a time."""


@dataclass(frozen=True)
class AnswerOptions(Answering):
    """The options of `Engine.answer` that say what is computed."""

    coverage: float | None = None


def _read(given: tuple[Any, Any], options: AnswerOptions) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs of a question and its text, and whether the caller gave one alone; raises `InputError`.

    given: the question and the context of `Engine.answer`.
    """
    question, context = given
    if context is None:
        question, context = _questions_and_contexts(question)
    questions, one_question = read_texts(question, "question")
    contexts, one_context = read_texts(context, "context")
    if one_question:
        questions *= len(contexts)
    elif one_context:
        contexts *= len(questions)
    if len(questions) != len(contexts):
        raise InputError(f"there are {len(questions)} questions and {len(contexts)} texts; give as many of both, or "
                         "one of them as a single string")
    return list(zip(questions, contexts, strict=True)), one_question and one_context


def _questions_and_contexts(given: Any) -> tuple[Any, Any]:
    """Return the question and the context of a dictionary, or the lists of both of a list of dictionaries.

    Raises `InputError` for anything else.
    """
    rows = [given] if isinstance(given, Mapping) else given if isinstance(given, (list, tuple)) else []
    if not rows or not all(isinstance(row, Mapping) and {"question", "context"} <= row.keys() for row in rows):
        raise CallError(f"answer needs question and context; {POSITIONAL['answer']}, or a dictionary with both, not "
                        f"{shown(given)} alone")
    if rows[0] is given:
        return given["question"], given["context"]
    return [row["question"] for row in rows], [row["context"] for row in rows]


class Answers(WindowedTexts):
    """The best answers to each pair (question, text), the best first: score, start, end and answer.

    start and end count characters of the text. A text without an answer has the empty one, with score 0.
    """

    def __init__(self, runner: HeadRunner, pairs: Sequence[tuple[str, str]], answering: Answering,
                 finish: Callable[[list[dict[str, Any]]], Any] = lambda answers: answers):
        """finish: gets the answers to one pair, and returns the result of it."""
        super().__init__(runner, pairs)
        self._answering, self._finish = answering, finish

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of pairs whose windows are made at one time."""
        return super().parts(TEXTS if most is None else most, most_characters)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the windows of some pairs."""
        return Slice.of_windows(places, answer_windows(
            self._runner, self.inputs[places.start : places.stop], self._answering, stop))

    def results_of(self, part: Slice, stop: Stop) -> Iterator[Any]:
        """Yield what `finish` makes of the answers to each pair of a slice."""
        for place, windows, logits in zip(part.places, part.windows or (), part.rows_of_inputs(), strict=True):
            yield self._finish(best_answers(self._runner.config.first_id, self.inputs[place][1], windows, logits,
                                            self._answering, stop))


def _prepare(model: EncodingModel, pairs: Sequence[tuple[str, str]], options: AnswerOptions) -> Workload:
    """Return the work for pairs: the best answers, or with a coverage each answer or an abstention."""
    runner = model.runner_of("answer")
    if options.coverage is None and options.top_k == 1:
        return Answers(runner, pairs, options, lambda answers: answers[0])
    if options.coverage is None:
        return Answers(runner, pairs, options)
    if replace(options, coverage=None) != AnswerOptions():
        raise InputError("the coverage of answers is that of the default settings, on which a model is "
                         "calibrated; leave top_k, handle_impossible_answer and the other settings out")
    arrays = calibration_of(model.calibrations, "answer").arrays
    limit = threshold(arrays["losses"], check_coverage(options.coverage), "questions")
    return Answers(runner, pairs, candidates(bool(arrays["impossible"][0])),
                   lambda answers: answer_or_abstain(answers, limit))


ANSWER = Method("answer", AnswerOptions, lambda model: model.runner_of("answer"),
                _read, _prepare, listed_pairs)
