"""Read the task head of a model from its files: which layers it has, their tensors, and its labels.

A `HeadNames` lists the layers of one form of head, with their names in files. The `Names` of a family list the forms
that its models may have; most are among the tables below. `read_heads` finds the form of a model and reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from ..base.arguments import warn_caller
from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..model.config import ModelConfig
from ..model.config_checks import LARGEST
from ..model.head import PAIR_FUNCTIONS, HeadConfig, HeadLinear, HeadNorm, Mean, Step
from ..weights.bfloat16 import widened
from ..weights.head import Head
from .fields import GATE_ACTIVATIONS, activation, choice, class_name

Values: TypeAlias = Mapping[str, Any]
"""The contents of config.json."""

HEAD_PREFIX = "head "
"""The prefix that `Names.rename` gives to the names of a head's tensors, until `read_heads` gets them."""

TASK_OF_CLASS = {"ElectraForPreTraining": "tag",
                 "ForSequenceClassification": "classify", "ForTokenClassification": "tag",
                 "ForQuestionAnswering": "answer", "ForMaskedLM": "fill_mask", "ForPreTraining": "fill_mask",
                 "ForImageClassification": "classify", "ForImageClassificationWithTeacher": "classify",
                 "ForCTC": "transcribe"}
"""The task of a model's head, by the end of the name of its class in transformers."""


@dataclass(frozen=True)
class Layer:
    """A layer of a head: its name here and in files."""

    name: str
    """The engine's name: dense, norm, classifier or decoder."""
    file: str
    """The name in files, before .weight and .bias."""
    activation: str | Callable[[Values], str] | None = "identity"
    """The activation, or how config.json states it; None for that of the encoder's feed-forward network."""
    norm: bool = False
    """Whether it is a norm, and no linear map."""
    tied: bool = False
    """Whether the weight may be the word table, which stands in for an absent tensor."""
    ties: bool = True
    """Whether a layer that may be the word table is it where config.json does not state `tie_word_embeddings`."""
    biases: tuple[str, ...] = ()
    """Further names in files of the bias."""
    averaged: str = ""
    """The name in files of a second linear map, which reads the second token; the layer is then the mean of both maps,
    the first of the first token. "" for a layer with one map."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of a tensor that the layer may have."""
        second = (f"{self.averaged}.weight", f"{self.averaged}.bias") if self.averaged else ()
        return f"{self.file}.weight", f"{self.file}.bias", *self.biases, *second


@dataclass(frozen=True)
class HeadNames:
    """One form of head: its task, its layers in order, and the vectors of tokens that it reads."""

    task: str
    layers: tuple[Layer, ...]
    rows: str = "first"
    """Which of the encoder's vectors the head reads, one of `engine.model.head.ROWS`."""
    pooling: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Where config.json chooses the pooling by `classifier_pooling`: for each value the rows, and the number of layers
    before the mean of the rows, -1 for no mean. The first value is the default."""
    passed_rows: Callable[[Values], int] = lambda values: 0
    """Reads from config.json how many rows after the first a head passes over, such as registers of an image."""
    labels: tuple[str, ...] = ()
    """The two labels of a head with one output x that are fixed by its task: their scores are softmax([0, x]). Empty
    for a head whose labels config.json names."""

    @property
    def needed(self) -> list[str]:
        """The names of the tensors without which there is no head: the weights of all layers that are not tied."""
        return [name for layer in self.layers if not layer.tied for name in layer.names
                if name in (f"{layer.file}.weight", f"{layer.averaged}.weight")]

    def count(self, tensors: Mapping[str, np.ndarray]) -> int:
        """Return how many of the head's tensors are there; 0 if one of the `needed` ones is not."""
        if not all(name in tensors for name in self.needed):
            return 0
        return sum(name in tensors for layer in self.layers for name in layer.names)


def named(task: str, *layers: Layer, rows: str | None = None) -> HeadNames:
    """Return a head of these layers that reads `rows`; None for the rows that heads of its task usually read."""
    usual = {"classify": "first", "tag": "all", "answer": "all", "fill_mask": "asked", "transcribe": "all"}
    return HeadNames(task, layers, rows or usual[task])


REPLACED = HeadNames(
    "tag", (Layer("dense", "discriminator_predictions.dense", activation=None),
            Layer("classifier", "discriminator_predictions.dense_prediction")), "all", labels=("O", "REPLACED"))
"""ELECTRA's discriminator: whether a token was replaced by another one, with sigmoid(x) = softmax([0, x])[1]."""


def read_activation(key: str, default: str = "gelu") -> Callable[[Values], str]:
    """Return a function that reads the activation under a key of config.json, or the default without the key."""
    return lambda values: activation(dict(values), key, default, GATE_ACTIVATIONS | {"tanh": "tanh"})


CLASSIFIER = Layer("classifier", "classifier")
TAGS = named("tag", CLASSIFIER)
ANSWERS = named("answer", Layer("classifier", "qa_outputs"))
CTC = named("transcribe", Layer("classifier", "lm_head"))
"""Scores of letters for each token of a recording, for connectionist temporal classification (CTC)."""


def pooled(file: str = "pooler.dense", act: str | Callable[[Values], str] = "tanh") -> HeadNames:
    """Return a classifier, such as BERT's, whose first layer is the pooler of the encoder; file: the pooler's name."""
    return named("classify", Layer("dense", file, activation=act), CLASSIFIER)


def two_layers(act: str) -> HeadNames:
    """Return a classifier of two layers, such as RoBERTa's; act: the activation between them."""
    dense = Layer("dense", "classifier.dense", activation=act)
    return named("classify", dense, Layer("classifier", "classifier.out_proj"))


def words(dense: str, norm: str, decoder: str, *biases: str, act: str | Callable[[Values], str] | None = None
          ) -> HeadNames:
    """Return a head of masked words from the names of its layers and of its bias.

    act: the first layer's activation, or a function that reads it from config.json; None for the encoder's.
    """
    return named("fill_mask", Layer("dense", dense, activation=act), Layer("norm", norm, norm=True),
                 Layer("decoder", decoder, tied=True, biases=biases))


BERT = (pooled(), TAGS, ANSWERS, words("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                                       "cls.predictions.decoder", "cls.predictions.bias"))
"""The heads of BERT."""
LM_HEAD = words("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias", act="gelu")
"""RoBERTa's head of masked words."""
ROBERTA = (two_layers("tanh"), TAGS, ANSWERS, LM_HEAD)
"""The heads of RoBERTa."""


def read_heads(forms: Sequence[HeadNames], values: Values, encoder: ModelConfig,
               tensors: Mapping[str, np.ndarray]) -> tuple[Head, ...]:
    """Return the head in the files of an encoder, or () if there is none that the engine runs.

    forms: the heads that models of the family may have. values: the contents of config.json, whose `architectures`
    names the class. tensors: of heads, by their names in the files, without prefixes. Raises `WeightsError` for a head
    that lacks tensors or does not fit its labels, and `UnsupportedError` for a function that the engine lacks.
    """
    form = _choose(forms, values, tensors)
    if form is None or _lacks_words(form, values, tensors):
        return ()
    tensors = dict(tensors) | {name: array for layer in form.layers if layer.averaged
                               for name, array in _mean_of_maps(layer, tensors).items()}
    steps, weights = _steps_and_arrays(form, values, encoder, tensors)
    rows = form.rows
    if form.pooling:
        rows, before_mean = choice(values, "classifier_pooling", next(iter(form.pooling)), form.pooling)
        steps = steps if before_mean < 0 else [*steps[:before_mean], Mean(), *steps[before_mean:]]
    outputs = len(weights["classifier.weight"]) if "classifier.weight" in weights else 0
    labels = _labels(values, outputs) if form.task in ("classify", "tag") and not form.labels else form.labels
    config = HeadConfig(form.task, rows, steps=tuple(steps), labels=labels)
    if rows == "last":      # of the last token that is no padding, which transformers finds by the padding's id
        pad = values.get("pad_token_id")
        config = replace(config, passed_id=pad if type(pad) is int and pad >= 0 else None)
    if rows == "first_mean":
        config = replace(config, passed_rows=form.passed_rows(values))
    if form.task == "classify":
        config = replace(config, function=_function(values, outputs), pair_function=pair_function(values, outputs))
    return (Head(config, weights),)


def _choose(forms: Sequence[HeadNames], values: Values, tensors: Mapping[str, np.ndarray]) -> HeadNames | None:
    """Return the form of the model's head; None if it has none that the engine runs.

    It is the form for the task of the class in `architectures` that uses most tensors. For a class without a head,
    such as BertModel, it is the form of any task that uses most tensors, if there is only one.
    """
    name = class_name(values)
    task = next((task for end, task in TASK_OF_CLASS.items() if name.endswith(end)), None)
    if task is not None:
        of_task = [form for form in forms if form.task == task]
        complete = [form for form in of_task if form.count(tensors)]
        if complete or not of_task:
            return max(complete, key=lambda form: form.count(tensors), default=None)
        _refuse_part(of_task, name, tensors)
        return _only_tied(of_task[0], values)
    if "For" in name:       # a class with another head, such as BertForMultipleChoice
        return None
    counts = [form.count(tensors) for form in forms]
    best = [form for form, count in zip(forms, counts, strict=True) if count and count == max(counts)]
    return best[0] if len(best) == 1 else None


def _only_tied(form: HeadNames, values: Values) -> HeadNames | None:
    """Return the form if its head is nothing but the word table, so that files have no tensor of it; otherwise None."""
    is_table = all(layer.tied for layer in form.layers) and values.get("tie_word_embeddings") is True
    return form if is_table else None


def _lacks_words(form: HeadNames, values: Values, tensors: Mapping[str, np.ndarray]) -> bool:
    """Return whether config.json says that the map to words is not the word table, and the map's weight is missing."""
    return values.get("tie_word_embeddings") is False and any(
        layer.tied and f"{layer.file}.weight" not in tensors for layer in form.layers)


def _refuse_part(forms: Sequence[HeadNames], name: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Raise `WeightsError` if some tensors of a head are there and others are not. name: the class in config.json.

    The class is no proof of a head: many encoders keep the name of the model with a head that they were trained as. A
    head was saved if the weight of its last layer is there, or of its first if the last is the word table; a pooler
    alone does not count, as it belongs to the encoder.
    """
    for form in forms:
        last = form.layers[-1] if not form.layers[-1].tied else form.layers[0]
        if f"{last.file}.weight" in tensors:
            missing = [tensor for tensor in form.needed if tensor not in tensors]
            raise WeightsError(f"architectures names {shown(name)}, whose head also has {listed(missing)}, which the "
                               "weights lack")


def _steps_and_arrays(form: HeadNames, values: Values, config: ModelConfig,
           tensors: Mapping[str, np.ndarray]) -> tuple[list[Step], dict[str, np.ndarray]]:
    """Return the steps of a head, and its arrays in float32 by the engine's names. config: of the encoder."""
    steps: list[Step] = []
    weights: dict[str, np.ndarray] = {}
    for layer in form.layers:
        weight = tensors.get(f"{layer.file}.weight")
        bias = next((tensors[name] for name in layer.names[1:] if name in tensors), None)
        # A tied layer reads the word table even where the file holds a weight for it, as in transformers.
        tied = layer.tied and (weight is None or values.get("tie_word_embeddings", layer.ties) is not False)
        dimensions = 1 if layer.norm else 2
        if weight is not None and not tied:
            if weight.ndim != dimensions:
                raise WeightsError(f"{layer.file}.weight must have {dimensions} dimensions, not shape "
                                   f"{list(weight.shape)}")
            weights[f"{layer.name}.weight"] = widened(weight)
        if bias is not None:
            weights[f"{layer.name}.bias"] = widened(bias)
        if layer.norm:
            steps.append(HeadNorm(layer.name, config.norm_eps, bias=bias is not None))
            continue
        if form.labels and layer is form.layers[-1]:
            _add_output_of_zeros(weights, layer)
        size = config.vocab_size if tied or weight is None else len(weights[f"{layer.name}.weight"])
        steps.append(HeadLinear(layer.name, size, bias=bias is not None, activation=_activation(layer, values, config),
                            tied=tied))
    return steps, weights


def _add_output_of_zeros(weights: dict[str, np.ndarray], layer: Layer) -> None:
    """Give a linear map with one output x a first output that is always 0, so that a softmax of both is sigmoid(x).

    weights: changed in place. Raises `WeightsError` for a map without a bias or with another number of outputs.
    """
    for part in ("weight", "bias"):
        array = weights.get(f"{layer.name}.{part}")
        if array is None or len(array) != 1:
            raise WeightsError(f"{layer.file}.{part} must be there, of one output")
        weights[f"{layer.name}.{part}"] = np.concatenate([np.zeros_like(array), array])


def _mean_of_maps(layer: Layer, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return one linear map of two tokens' vectors side by side that computes the mean of a layer's two maps.

    The weight [out, 2 * D] and the bias [out] have the names of the layer's first map.
    """
    joined = {}
    for part in ("weight", "bias"):
        first, second = (tensors.get(f"{name}.{part}") for name in (layer.file, layer.averaged))
        if first is None and second is None:
            continue
        axes = 2 if part == "weight" else 1
        if first is None or second is None or first.shape != second.shape or first.ndim != axes:
            raise WeightsError(f"{layer.file}.{part} and {layer.averaged}.{part} must both be there, with one shape "
                               f"of {axes} axes")
        halves = [widened(array) * np.float32(0.5) for array in (first, second)]
        joined[f"{layer.file}.{part}"] = np.concatenate(halves, axis=1) if part == "weight" else halves[0] + halves[1]
    return joined


def _activation(layer: Layer, values: Values, config: ModelConfig) -> str:
    """Return the activation of a layer: a fixed one, the one in config.json, or that of the encoder (`config`)."""
    stated = layer.activation
    if stated is None:
        return config.activation
    return stated if isinstance(stated, str) else stated(values)


def _labels(values: Values, outputs: int) -> tuple[str, ...]:
    """Return the names of the outputs, from `id2label`; an output i that it leaves out is called LABEL_i."""
    stated = {} if values.get("id2label") is None else values["id2label"]
    most_digits = len(str(LARGEST))     # int() of endless digits is slow
    if not isinstance(stated, Mapping) or not all(isinstance(label, str) for label in stated.values()) or not all(
            isinstance(number, str) and number.isdecimal() and len(number) <= most_digits for number in stated):
        raise WeightsError(f"id2label must map numbers to names, not {shown(stated)}")
    names = {int(number): label for number, label in stated.items()}
    if names and max(names) >= outputs:
        raise WeightsError(f"id2label names {len(names)} labels up to number {max(names)}, and the head has {outputs} "
                           "outputs")
    if names and len(names) < outputs:
        warn_caller(f"id2label names {len(names)} of {outputs} labels; the others are called LABEL_0 to "
                    f"LABEL_{outputs - 1} by their number", UserWarning)
    _warn_of_other_numbers(names, values.get("label2id"))
    return tuple(names.get(i, f"LABEL_{i}") for i in range(outputs))


def _warn_of_other_numbers(names: Mapping[int, str], label2id: Any) -> None:
    """Warn if `label2id` numbers a label differently: transformers' zero-shot pipeline would read that number.

    names: the labels by number, from `id2label`, which counts here.
    """
    stated = label2id if isinstance(label2id, Mapping) else {}
    for number, label in names.items():
        if str(stated.get(label, number)) != str(number):
            warn_caller(f"label2id says that {shown(label)} is number {shown(stated[label])}, and id2label that it is "
                        f"{number}, which is taken; correct config.json if the labels are wrong", UserWarning)
            return


def _function(values: Values, outputs: int) -> str:
    """Return the function from the logits of classes to scores, which transformers' pipeline would choose.

    outputs: the number of logits.
    """
    functions = {"regression": "none", "multi_label_classification": "sigmoid",
                 "single_label_classification": "softmax" if outputs > 1 else "sigmoid"}
    stated = {} if values.get("problem_type") is None else values
    return choice(stated, "problem_type", "single_label_classification", functions)


def pair_function(values: Values, outputs: int) -> str:
    """Return the function from the logits of pairs to scores, which sentence-transformers' CrossEncoder would choose.

    outputs: the number of logits. Raises `UnsupportedError` for a class in config.json that is not in `PAIR_FUNCTIONS`.
    """
    package = values.get("sentence_transformers")
    if (stated := next(_stated_functions(values, package), None)) is not None:
        return function_of_class(*stated)
    return "sigmoid" if outputs == 1 else "identity"


def _stated_functions(values: Values, package: Any) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of each function for pairs in config.json; the first one counts.

    package: the object under "sentence_transformers", if there is one.
    """
    if isinstance(package, Mapping) and package.get("activation_fn") is not None:
        yield "sentence_transformers.activation_fn", package["activation_fn"]
    if values.get("sbert_ce_default_activation_function") is not None:
        yield "sbert_ce_default_activation_function", values["sbert_ce_default_activation_function"]


def function_of_class(key: str, stated: Any) -> str:
    """Return the function for a class of torch.nn, such as "torch.nn.Sigmoid", that a file states under a key.

    Raises `UnsupportedError` for anything else.
    """
    path, _, name = stated.rpartition(".") if isinstance(stated, str) else ("", "", "")
    if name not in PAIR_FUNCTIONS or not f"{path}.".startswith("torch.nn."):
        raise UnsupportedError(f"{key} {shown(stated)} is not supported; supported are the classes of torch.nn "
                               f"{', '.join(PAIR_FUNCTIONS)}, and no code of a folder is run")
    return PAIR_FUNCTIONS[name]
