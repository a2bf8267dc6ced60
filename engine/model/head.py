"""`HeadConfig`: a task head as a value: the token vectors that it reads, and the steps that turn them into outputs.

    BERT, classes:   rows "first":  Linear dense, tanh -> Linear classifier
    RoBERTa, words:  rows "asked":  Linear dense, GELU -> Norm -> Linear decoder, tied to the word table
    BGE-M3, tokens:  rows "rest":   Linear colbert_linear -> Normalize

Rows are gathered before the first step, so that a head that reads one row of each text computes B rows, not N tokens.
heads/runner.py runs the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ..base.errors import WeightsError, listed, shown
from .config_checks import LARGEST, are_ids, is_bool, is_int, is_unicode, optional, wrong
from .json_values import plain_fields, with_tuples
from .late_config import LateConfig
from .spelling import Spelling

ROWS_OF_TASKS: dict[str, tuple[str, ...]] = {
    "classify": ("first", "last", "all", "first_two", "first_mean"), "tag": ("all",), "answer": ("all",),
    "fill_mask": ("asked",), "encode_sparse": ("all",), "encode_tokens": ("all", "rest"), "transcribe": ("all",)}
"""{task of a head: the `ROWS` that it may read}. A task has the name of the method that runs it, which is a method of
`Engine`, and for "transcribe" of `Transcriber`."""
ROWS = ("first", "last", "asked", "all", "rest", "first_two", "first_mean")
"""The token vectors of a sequence that a head reads: the first or the last one, those at the positions that the caller
asks for, all, or all but the first; or one row that is twice as wide: the first two, one behind the other, or the first
and the mean of the others."""
WIDE_ROWS = ("first_two", "first_mean")
"""The rows of heads of images, whose width is twice that of a token vector."""
ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "gelu_tanh", "silu")
"""The activations of linear steps."""
FUNCTIONS = ("softmax", "sigmoid", "none")
"""The functions from the logits of a text to its scores."""
PAIR_FUNCTIONS = {"Identity": "identity", "Sigmoid": "sigmoid", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu",
                  "SiLU": "silu"}
"""{class of torch.nn: our name of the function from the logits of a pair to the scores of `predict`}."""
SPARSE_POOLINGS = ("max", "sum")
SPARSE_ACTIVATIONS = ("relu", "log1p_relu")
"""log(1 + relu(x)), and log(1 + log(1 + relu(x)))."""
MOST_STEPS = 16
"""Limit on the steps of a head."""


@dataclass(frozen=True)
class HeadLinear:
    """The step activation(weight x + bias): float32 [M, in] to [M, size]."""

    name: str
    """Its arrays are NAME.weight [size, in] and NAME.bias [size]."""
    size: int
    bias: bool = True
    activation: str = "identity"
    tied: bool = False
    """Whether the weight is the model's word table."""


@dataclass(frozen=True)
class HeadNorm:
    """The step LayerNorm over the last axis: float32 [M, D] to [M, D]."""

    name: str
    """Its arrays are NAME.weight [D] and NAME.bias [D]."""
    eps: float
    bias: bool = True


@dataclass(frozen=True)
class Mean:
    """The step that computes the mean of the rows of each sequence: float32 [N, D] to [B, D]."""


@dataclass(frozen=True)
class HeadNormalize:
    """The step that scales each row to length 1, except a row of zeros: float32 [M, D] to [M, D]."""


@dataclass(frozen=True)
class Scatter:
    """The step that puts the number of each token at the place of its id, the largest one if tokens have one id:
    float32 [N, 1] to [B, size]."""

    size: int
    """V, the number of ids."""
    skip_ids: tuple[int, ...] = ()
    """The tokens whose numbers are left out, such as special tokens."""


Step: TypeAlias = HeadLinear | HeadNorm | Mean | HeadNormalize | Scatter
_STEPS: dict[str, type[Step]] = {"linear": HeadLinear, "norm": HeadNorm, "mean": Mean, "normalize": HeadNormalize,
                                 "scatter": Scatter}
"""The classes of steps, by their names in a file."""
_LEFT_OUT = ("passed_id", "spelling", "passed_rows")
"""The fields of a head that a file leaves out if they have their defaults, because older engines do not know them."""
_OPTIONAL = ("skip_ids",)
"""The fields of steps that a file leaves out if they are empty, because older engines do not know them."""


@dataclass(frozen=True)
class HeadConfig:
    """The configuration of one head of an encoder."""

    task: str
    """One of `ROWS_OF_TASKS`."""
    rows: str
    """One of `ROWS`."""
    steps: tuple[Step, ...]
    labels: tuple[str, ...] = ()
    """The name of each output of a head of classes or tags."""
    function: str = "softmax"
    """How `classify` turns logits into scores, one of `FUNCTIONS`."""
    pair_function: str = "identity"
    """How `predict` turns the logits of pairs into scores, a value of `PAIR_FUNCTIONS`."""
    sparse_pooling: str = "max"
    """How `encode_sparse` pools the tokens of a text, one of `SPARSE_POOLINGS`."""
    sparse_activation: str = "relu"
    """The function from logits to the numbers of `encode_sparse`, one of `SPARSE_ACTIVATIONS`."""
    max_active_dims: int | None = None
    """How many words `encode_sparse` keeps for each text, those with the largest numbers; None for all."""
    mask_id: int | None = None
    """The id of the token that stands for a word to fill in; None if the tokenizer has none."""
    pad_id: int | None = None
    """The id of the padding token, which is part of no text."""
    unknown_id: int | None = None
    """The id of the token that stands for all text that the vocabulary lacks."""
    first_id: int | None = None
    """The id of the token at the start of a text, such as [CLS], which stands for "no answer"."""
    passed_id: int | None = None
    """For rows "last": the id of tokens at the end of a sequence that do not count as its last one; None for none."""
    spelling: Spelling | None = None
    """The letters that the outputs of a head of "transcribe" stand for, which `Transcriber` needs."""
    passed_rows: int = 0
    """For rows "first_mean": how many rows behind the first, those of registers, are no part of the mean."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for an impossible head."""
        problems = [f"{name} must be one of {', '.join(allowed)}, not {shown(getattr(self, name))}"
                    for name, allowed in (("task", [*ROWS_OF_TASKS]), ("rows", ROWS), ("function", FUNCTIONS),
                                          ("pair_function", PAIR_FUNCTIONS.values()),
                                          ("sparse_pooling", SPARSE_POOLINGS),
                                          ("sparse_activation", SPARSE_ACTIVATIONS))
                    if not (isinstance(getattr(self, name), str) and getattr(self, name) in allowed)]
        if not isinstance(self.steps, tuple) or not 1 <= len(self.steps) <= MOST_STEPS or not all(
                isinstance(step, Step) for step in self.steps):
            problems.append(f"steps must be a tuple of 1 to {MOST_STEPS} steps, not {shown(self.steps)}")
        else:
            problems += [problem for step in self.steps for problem in _problems_of(step)]
            names = [str(step.name) for step in self.steps if isinstance(step, (HeadLinear, HeadNorm))]
            if len(set(names)) < len(names):
                problems.append(f"two steps have one name: {listed(names)}")
        if not isinstance(self.labels, tuple) or not all(isinstance(label, str) for label in self.labels):
            problems.append(f"labels must be a tuple of texts, not {shown(self.labels)}")
        elif odd := [label for label in self.labels if not is_unicode(label)]:
            problems.append(f"labels must be valid Unicode, not {shown(odd[0])}")
        elif twice := [label for label, count in Counter(self.labels).items() if count > 1]:
            problems.append(f"labels must differ, and {listed(twice)} is there twice")
        problems += wrong(self, (*_IDS, "passed_id"), optional(is_int), "a token id or nothing")
        if self.passed_id is not None and self.rows != "last":
            problems.append(f"passed_id is for rows last, not {shown(self.rows)}")
        if not is_int(self.passed_rows) or (self.passed_rows and self.rows != "first_mean"):
            problems.append(f"passed_rows must be a number, 0 but for rows first_mean, not {shown(self.passed_rows)}")
        problems += wrong(self, ("max_active_dims",), optional(lambda most: type(most) is int and most >= 1),
                          "a positive number")
        if not problems and (problem := self._steps_problem() or self._outputs_problem()):
            problems.append(problem)
        if problems:
            raise WeightsError("impossible head: " + "; ".join(problems))

    def _outputs_problem(self) -> str | None:
        """Return a message about a wrong number of outputs; None if it fits the task."""
        outputs = self.outputs
        if self.task in ("classify", "tag") and len(self.labels) != outputs:
            return f"there are {len(self.labels)} labels for {outputs} outputs"
        if self.spelling is not None and (self.task, outputs) != ("transcribe", len(self.spelling.tokens)):
            return f"a head of {self.task} with {outputs} outputs has a spelling of {len(self.spelling.tokens)} tokens"
        if self.task == "answer" and outputs != 2:
            return f"a head of answers has 2 outputs, start and end, not {outputs}"
        return None if outputs else f"a head of {self.task} needs a step linear"

    def _steps_problem(self) -> str | None:
        """Return a message about wrong rows or a wrong order of the steps; None if they fit the task."""
        if self.rows not in ROWS_OF_TASKS[self.task]:
            return f"a head of {self.task} has rows {' or '.join(ROWS_OF_TASKS[self.task])}, not {self.rows}"
        *earlier, last = (isinstance(step, Scatter) for step in self.steps)
        if last != (self.task == "encode_sparse") or any(earlier):
            return "a head of encode_sparse ends in the step scatter, and no other head has it"
        if self.task != "classify" and any(isinstance(step, Mean) for step in self.steps):
            return f"a head of {self.task} reads each token by itself, so it cannot have the step mean"
        return None

    @property
    def reads_numbers(self) -> bool:
        """Whether the encoder computes a number for each token, and no vectors, so that `Scatter` is the only step."""
        return isinstance(self.steps[0], Scatter)

    @property
    def ends_with_normalize(self) -> bool:
        """Whether the last step scales each row to length 1."""
        return isinstance(self.steps[-1], HeadNormalize)

    @property
    def outputs(self) -> int:
        """The number of outputs of a row."""
        return next((step.size for step in reversed(self.steps) if isinstance(step, (HeadLinear, Scatter))), 0)

    def shapes(self, width: int, words: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the name and the shape of each array of the head, which reads token vectors of this width.

        words: the shape of the word table. Raises `WeightsError` if a tied map does not have that shape.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        if self.rows in WIDE_ROWS:
            width *= 2
        for step in self.steps:
            if isinstance(step, Scatter) and (step.size, 1) != (words[0], width):
                raise WeightsError(f"the head {self.task} reads 1 number for each of {step.size:,} tokens, and there "
                                   f"are {words[0]:,} tokens with {width:,} numbers each")
            if isinstance(step, HeadLinear):
                if step.tied and (step.size, width) != words:
                    raise WeightsError(f"the map {step.name} of head {self.task} is tied to the word table, which has "
                                       f"shape {list(words)}, and not {[step.size, width]}")
                if not step.tied:
                    shapes[f"{step.name}.weight"] = (step.size, width)
                width = step.size
            if isinstance(step, HeadNorm):
                shapes[f"{step.name}.weight"] = (width,)
            if isinstance(step, (HeadLinear, HeadNorm)) and step.bias:
                shapes[f"{step.name}.bias"] = (width,)
        return shapes

    def describe(self) -> str:
        """Return the task and the number of labels for a message, such as "classify (50 labels)"."""
        n = len(self.labels)
        return f"{self.task} ({n} label{'s' * (n != 1)})" if self.labels else self.task

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal head."""
        kinds = {kind: name for name, kind in _STEPS.items()}
        steps = [{"step": kinds[type(step)], **_fields_of(step)} for step in self.steps]
        values = {one.name: getattr(self, one.name) for one in fields(self)
                  if one.name not in _LEFT_OUT or getattr(self, one.name) != one.default}
        spelling = {} if self.spelling is None else {"spelling": self.spelling.to_json()}
        return values | {"steps": steps, "labels": list(self.labels), **spelling}

    @classmethod
    def from_json(cls, values: Any) -> HeadConfig:
        """Return the head of a dictionary of `to_json`; raises `WeightsError` for anything else."""
        names = [name for name in cls.__dataclass_fields__ if name not in _LEFT_OUT]
        if not isinstance(values, dict) or values.keys() - set(_LEFT_OUT) != set(names):
            raise WeightsError(f"a head must have {', '.join(names)}, not "
                               f"{listed(values) if isinstance(values, dict) else shown(values)}")
        if not isinstance(values["steps"], list) or len(values["steps"]) > MOST_STEPS:
            raise WeightsError(f"the steps of a head must be a list of at most {MOST_STEPS}, not "
                               f"{shown(values['steps'])}")
        labels, spelling = values["labels"], values.get("spelling")
        return cls(**values | {"spelling": None if spelling is None else Spelling.from_json(spelling),
                               "steps": tuple(map(_step_of, values["steps"])),
                               "labels": tuple(labels) if isinstance(labels, list) else labels})


def heads_in_words(heads: Iterable[HeadConfig | LateConfig]) -> str:
    """Return the part of a message that says which heads a model has, such as "has heads: tag (6 labels)".

    It follows "the model" or "it" in the error about a head that the model lacks.
    """
    described = ", ".join(head.describe() for head in heads)
    return f"has heads: {described}" if described else "has no heads, and encode gives its vectors"


_IDS = ("mask_id", "pad_id", "unknown_id", "first_id")      # the fields of special tokens that every file has


def _problems_of(step: Any) -> list[str]:
    """Return a message for each field of a step that is wrong."""
    if isinstance(step, (Mean, HeadNormalize)):
        return []
    problems = []
    if isinstance(step, (HeadLinear, Scatter)) and not is_int(step.size, 1):
        problems.append(f"the size of a map must be from 1 to {LARGEST:,}, not {shown(step.size)}")
    if isinstance(step, Scatter):
        return problems + wrong(step, ("skip_ids",), are_ids, "a tuple of token ids")
    if not isinstance(step.name, str) or not step.name.replace("_", "").isalnum():
        problems.append(f"the name of a step must be a word, not {shown(step.name)}")
    problems += wrong(step, ("bias",), is_bool, "true or false")
    if isinstance(step, HeadNorm):
        return problems + wrong(step, ("eps",), lambda eps: type(eps) is float and 0.0 <= eps < 1.0,
                                "a number from 0 to 1")
    problems += wrong(step, ("activation",), lambda name: isinstance(name, str) and name in ACTIVATIONS,
                      f"one of {', '.join(ACTIVATIONS)}")
    return problems + wrong(step, ("tied",), is_bool, "true or false")


def _fields_of(step: Step) -> dict[str, Any]:
    """Return the fields of a step for JSON, without empty optional ones."""
    return {name: value for name, value in plain_fields(step).items() if value or name not in _OPTIONAL}


def _step_of(values: Any) -> Step:
    """Return the step of a JSON object of `HeadConfig.to_json`; raises `WeightsError` for anything else."""
    kind = _STEPS.get(str(values.get("step"))) if isinstance(values, Mapping) else None
    names = kind.__dataclass_fields__.keys() if kind is not None else set()
    if kind is None or not names - set(_OPTIONAL) <= values.keys() - {"step"} <= names:
        raise WeightsError(f"a step of a head must be one of {', '.join(_STEPS)} with its fields, not {shown(values)}")
    return kind(**with_tuples({name: value for name, value in values.items() if name != "step"}))
