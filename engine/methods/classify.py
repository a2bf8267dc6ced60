"""`Engine.classify`: labels for texts or images: the model's, the caller's, or with a coverage sets of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, positive_int_or_none
from ..base.errors import InputError, UnsupportedError
from ..base.options import Options, option
from ..heads.classify import Sets, check_function, label_sets, labels_of, limits_of
from ..heads.coverage import FALSE_ALARM_RATE, calibration_of, check_rate, warn_of_shift
from ..heads.runner import check_choice
from ..heads.zero_shot import check_labels, check_template
from ..images import Images
from ..text.sentences import read_sentences, read_texts
from ..uncertainty.conformal import SCORES, check_coverage
from .columns import column
from .method import EncodingModel, Method, listed_sentences, listed_texts
from .workload import Logits, Workload
from .zero_shot import ImageLabels, ZeroShotLabels


@dataclass(frozen=True)
class ClassifyOptions(Options):
    """The options of `Engine.classify` that say what is computed."""

    top_k: int | None = option(1, positive_int_or_none)
    function_to_apply: str | None = option(None, check_function)
    candidate_labels: Sequence[str] | str | None = option(None, check_labels)
    hypothesis_template: str | None = option(None, check_template)
    multi_label: bool = option(False, flag)
    # `_prepare` checks the next four: what they may be depends on the calibration of the model.
    coverage: float | None = None
    conformal_score: str = Sets.score
    by_class: bool = Sets.by_class
    false_alarm_rate: float | None = FALSE_ALARM_RATE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidate_labels is None and (self.hypothesis_template is not None or self.multi_label):
            raise InputError("hypothesis_template and multi_label are about labels of your own; give candidate_labels, "
                             "such as ['sports', 'politics']")
        if self.candidate_labels is not None and (self.coverage is not None or self.function_to_apply is not None):
            raise InputError("with candidate_labels, scores are those of labels of your own; leave coverage and "
                             "function_to_apply out, which are about the labels of the model")
        if self.coverage is None and (self.by_class is not False or self.conformal_score != Sets.score
                                      or self.false_alarm_rate != FALSE_ALARM_RATE):
            raise InputError("conformal_score, by_class and false_alarm_rate are about sets of labels; give a "
                             "coverage, such as 0.9")
        if self.coverage is not None and (self.top_k != 1 or self.function_to_apply is not None):
            raise InputError("with a coverage each text has a set of labels with calibrated probabilities; leave "
                             "top_k and function_to_apply out")


def _prepare(model: EncodingModel, inputs: Sequence[Any], options: ClassifyOptions) -> Workload:
    """Return the workload of a call for texts or images.

    With candidate_labels it compares the inputs with labels of the caller, with a coverage it makes sets of the model's
    labels, and otherwise it scores the model's labels. Raises `UnsupportedError` for what the model lacks.
    """
    if isinstance(inputs, Images) and options.candidate_labels is not None:
        return ImageLabels(model, inputs, options.candidate_labels, options.hypothesis_template, options.multi_label,
                           options.top_k)
    if isinstance(inputs, Images) and "classify" not in model.heads and model.text is not None:
        raise UnsupportedError("this model has no labels of its own for images; give candidate_labels, such as "
                               "['a cat', 'a dog'] (on the command line, --candidate-label 'a cat, a dog')")
    if model.reads_images and model.text is not None and "classify" not in model.heads:
        raise UnsupportedError("this model chooses labels for images alone, and a str is a text: the path of an image "
                               "is a pathlib.Path")
    runner = model.runner_of("classify")
    tokenize = None
    if isinstance(inputs, Images):
        encoder = model.image_encoder
        tokenize = lambda images, stop: encoder.tokens(images, stop)  # noqa: E731, images are encoded as tokens
    if options.candidate_labels is not None:
        return ZeroShotLabels(runner, [*map(str, inputs)], options.candidate_labels, options.hypothesis_template,
                              options.multi_label, options.top_k)
    if options.coverage is None:
        labels = min(options.top_k or runner.config.outputs, runner.config.outputs)
        return Logits(runner, inputs, tokenize, dictionaries=labels,
                      finish=lambda logits: labels_of(runner, logits, options.top_k, options.function_to_apply))
    sets = Sets(check_coverage(options.coverage), check_choice("conformal_score", options.conformal_score, [*SCORES]),
                flag("by_class", options.by_class))
    if runner.config.outputs == 1:
        raise UnsupportedError("a set of labels needs a head with several labels, and this one has one; rank takes "
                               "a coverage")
    calibration, rate = calibration_of(model.calibrations, "classify"), check_rate(options.false_alarm_rate)
    limits = limits_of(runner, sets)

    def finish(logits: np.ndarray) -> list[dict[str, Any]]:
        """Return the set of labels of each input, and warn if many inputs are unlike those of the calibration."""
        results, confidences = label_sets(runner, logits, sets, limits)
        warn_of_shift(confidences, calibration, rate)
        return results

    return Logits(runner, inputs, tokenize, finish=finish, dictionaries=runner.config.outputs)


def _columns(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns "label" and "score" of results as arrays of Arrow."""
    return {name: column([row[name] for row in results], kind) for name, kind in (
        ("label", "string"), ("score", "float64"))}


def _needs(model: EncodingModel) -> None:
    """Raise `UnsupportedError` for a model with neither labels of its own nor an encoder of images beside its texts."""
    if model.text is None or not model.reads_images:
        model.runner_of("classify")


CLASSIFY = Method("classify", ClassifyOptions, _needs,
                  lambda given, options: (read_sentences if options.candidate_labels is None else read_texts)(
                      given, "texts"), _prepare,
                  lambda inputs, options: (listed_sentences if options.candidate_labels is None else listed_texts)(
                      inputs), prepare_images=_prepare, streamed="classes", columns=_columns)
