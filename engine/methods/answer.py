"""`Engine.answer`: finds the parts of texts that answer questions."""

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
"""How many texts are cut into windows at a time, which bounds the memory of the windows."""


@dataclass(frozen=True)
class AnswerOptions(Answering):
    """The options of `Engine.answer` that say what is computed."""

    coverage: float | None = None


def _read(arguments: tuple[Any, Any], options: AnswerOptions) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs (question, text), and whether the caller gave one pair, not lists; raises `InputError`.

    arguments: `question` and `context` of `Engine.answer`. One question may stand for all texts, and the reverse.
    """
    question, context = arguments
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


def _questions_and_contexts(value: Any) -> tuple[Any, Any]:
    """Return (question, context) of a dictionary with both, or (questions, contexts) of a list of such dictionaries.

    Raises `CallError` for anything else.
    """
    rows = [value] if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else []
    if not rows or not all(isinstance(row, Mapping) and {"question", "context"} <= row.keys() for row in rows):
        raise CallError(f"answer needs question and context; {POSITIONAL['answer']}, or a dictionary with both, not "
                        f"{shown(value)} alone")
    if rows[0] is value:
        return value["question"], value["context"]
    return [row["question"] for row in rows], [row["context"] for row in rows]


class Answers(WindowedTexts):
    """Finds the best answers for pairs (question, text): dictionaries of score, start, end and answer, the best first.

    start and end count characters of the text. A text without an answer gets an empty one with score 0.
    """

    def __init__(self, runner: HeadRunner, pairs: Sequence[tuple[str, str]], answering: Answering,
                 result_of: Callable[[list[dict[str, Any]]], Any] = lambda answers: answers):
        """result_of: makes the result of a pair from its list of answers."""
        super().__init__(runner, pairs)
        self._answering, self._result_of = answering, result_of

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of pairs whose windows are made at one time; by default of `TEXTS` pairs."""
        return super().parts(TEXTS if most is None else most, most_characters)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the windows of some pairs."""
        return Slice.of_windows(places, answer_windows(
            self._runner, self.inputs[places.start : places.stop], self._answering, stop))

    def results_of(self, part: Slice, stop: Stop) -> Iterator[Any]:
        """Yield the result of each pair of a slice, from the logits of its windows."""
        assert part.windows is not None     # `slice` made them
        for place, windows, logits in zip(part.places, part.windows, part.rows_of_inputs(), strict=True):
            yield self._result_of(best_answers(self._runner.config.first_id, self.inputs[place][1], windows, logits,
                                            self._answering, stop))


def _prepare(model: EncodingModel, pairs: Sequence[tuple[str, str]], options: AnswerOptions) -> Workload:
    """Return the workload of a call: its results are the best answers; with a coverage, one answer or an abstention."""
    runner = model.runner_of("answer")
    if options.coverage is None and options.top_k == 1:     # the answer itself, not a list of one
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
