"""The workloads of `Engine.classify` for labels of the caller, which are compared with texts or with images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError
from ..base.stop import NEVER, Stop
from ..encoding.call import Call
from ..heads.classify import best_labels
from ..heads.runner import HeadRunner
from ..heads.zero_shot import entailment_of, hypotheses_of, sentences_about, zero_shot_labels
from ..images import Images
from ..text.sentences import slices
from ..text.tokens import counting_tokens
from ..weights.modules import normalize, sigmoid, softmax
from .method import EncodingModel
from .workload import DICTIONARY_BYTES, NUMBER_BYTES, Cost, Slice, Workload, head_logits, sentence_vectors

IMAGE_TEMPLATE = "This is a photo of {}."
"""The default sentence about a label of an image, as in the pipeline of transformers."""


class ZeroShotLabels(Workload):
    """The workload whose results are labels of texts, by the logits of pairs (text, hypothesis of a label)."""

    def __init__(self, runner: HeadRunner, texts: Sequence[str], labels: Sequence[str], template: str | None,
                 multi_label: bool, top_k: int | None):
        """template: of the hypotheses, with {} for a label. multi_label, top_k: as for `Engine.classify`.

        Raises `InputError` for a hypothesis that is too long, and `UnsupportedError` for another classifier.
        """
        entailment_of(runner)
        super().__init__(head_logits(runner), texts,
                         cost=Cost(sequence=NUMBER_BYTES * runner.config.outputs + DICTIONARY_BYTES))
        self._runner, self._labels, self._multi_label, self._top_k = runner, labels, multi_label, top_k
        self._hypotheses = hypotheses_of(runner, labels, template)
        self.sequences = len(labels)

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of texts to tokenize at one time, each of which has a sequence for each label."""
        return slices(self.inputs, most, most_characters, self.sequences)

    def least(self, stop: Stop = NEVER) -> int:
        """Return the least number of tokens of all pairs of a text: those of the hypotheses."""
        return sum(map(len, self._hypotheses.encodings))

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of the pairs of some texts, all labels of the first text first."""
        tokens = self._runner.encoder.tokenizer.with_each(
            self.inputs[places.start : places.stop], self._hypotheses, stop)
        no_logits = np.zeros(self._runner.config.outputs, np.float32)       # of a pair without tokens
        return Slice(places, tokens, rows=[no_logits] * len(tokens.input_ids), sequences=[self.sequences] * len(places))

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the logits of each pair until the slice ends."""
        for number, row in zip(numbers, rows, strict=True):
            part.rows[number] = row[0]

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the labels of each text of a slice from the logits of its pairs."""
        for place, rows in zip(part.places, part.rows_of_inputs(), strict=True):
            stop.check()
            self.results[place] = zero_shot_labels(self._runner, np.stack(rows), self._labels, self._multi_label,
                                                   self._top_k)
        part.rows.clear()


class ImageLabels(Workload):
    """The workload whose results are labels of images, by cosines of their vectors and those of sentences on labels."""

    def __init__(self, model: EncodingModel, images: Images, labels: Sequence[str], template: str | None,
                 multi_label: bool, top_k: int | None):
        """template: of the sentences about labels, with {} for a label; None for `IMAGE_TEMPLATE`.

        Raises `UnsupportedError` for a model that does not compare images with texts, and for multi_label with a model
        such as CLIP, whose training compared labels with each other, so that no label has a probability alone.
        """
        encoder = model.image_encoder
        settings = encoder.settings
        if settings is None or settings.scale is None or model.text is None:
            raise UnsupportedError("candidate_labels of images need a model that compares images with texts, such as "
                                   "CLIP; without them, classify chooses among the labels of the model")
        if multi_label and settings.bias is None:
            raise UnsupportedError("multi_label=True asks for a probability of each label alone, and this model was "
                                   "trained, as CLIP, to compare labels with each other; leave it out, or give each "
                                   "label beside its opposite in a call of its own, such as candidate_labels=['a cat', "
                                   "'no cat'], or load a SigLIP, which gives each label its own probability")
        super().__init__(sentence_vectors(encoder), images, tokenize=encoder.tokens,
                         cost=Cost(sequence=NUMBER_BYTES * encoder.whole_width + DICTIONARY_BYTES * len(labels)))
        self._texts, self._scale, self._bias = model.text_encoder, settings.scale, settings.bias
        self._labels, self._top_k = labels, top_k
        self._sentences = sentences_about(labels, template or IMAGE_TEMPLATE)
        self._directions: np.ndarray | None = None      # of `_directions_of_labels`, from the first slice on

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the labels of each image of a slice from its vector, which `take` has put into the results.

        The terms of each cosine are added in one order, so that no bit depends on the other images.
        """
        if self._directions is None:
            self._directions = self._directions_of_labels(stop)
        for place in part.places:
            stop.check()
            direction = normalize(self.results[place].astype(np.float64))
            logits = (self._directions * direction).sum(axis=1) * self._scale
            scores = softmax(logits.astype(np.float32)) if self._bias is None else sigmoid(
                (logits + self._bias).astype(np.float32))
            self.results[place] = best_labels(self._labels, scores.tolist(), self._top_k)

    def _directions_of_labels(self, stop: Stop) -> np.ndarray:
        """Return the vectors of the sentences about labels, scaled to length 1: float64 [labels, D]."""
        vectors = np.zeros((len(self._sentences), self._texts.whole_width), np.float32)
        with counting_tokens():     # a count of its own, so that the caller's count has the tokens of images alone
            tokens = self._texts.tokens(self._sentences, stop=stop)
        for numbers, rows in sentence_vectors(self._texts).rows(tokens, Call(stop=stop)):
            vectors[numbers] = np.asarray(rows)
        return normalize(vectors.astype(np.float64))
