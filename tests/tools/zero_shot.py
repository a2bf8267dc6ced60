"""The texts, labels and models on which zero-shot classification is compared with transformers. Nothing here needs the
engine."""

from __future__ import annotations

import json
from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from . import head_texts as texts
from .head_models import expected_of, names_of, write_folder
from .paths import HEADS
from .tiny_models import write_json

FILE = HEADS / "zero_shot.json"
TEXTS = (*texts.TEXTS[:3], texts.TEXTS[5], " ", texts.TEXTS[19], "Anna " * 90, texts.sentence(2, 200),
         texts.PAIRS[0][1])
"""Texts that the pipeline takes; it refuses an empty one. Two are cut, and keep the whole hypothesis."""
TEMPLATE = "we saw {} today"
CALLS: dict[str, dict[str, Any]] = {
    "three": {"candidate_labels": ["good", "awful rain", "Berlin 😀"]},
    "one": {"candidate_labels": ["lovely"]},
    "each": {"candidate_labels": ["good", "awful rain", "Berlin 😀"], "multi_label": True,
             "hypothesis_template": TEMPLATE},
    "commas": {"candidate_labels": " bright river,, the cat ", "hypothesis_template": TEMPLATE},
}
"""The arguments of the pipeline, which are those of `Engine.classify`."""
NLI = (("contradiction", "neutral", "entailment"), ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"),
       ("contradiction", "Entail", "neutral"))
"""The labels of models: an entailment may stand anywhere, in any case."""


def models() -> dict[str, tuple[str, ...]]:
    """Return the golden models of heads with three classes, and the labels that each has here."""
    names = [*names_of("classify"), *names_of("classify", pairs=True)]
    three = [name for name in names if len(config_of(name).get("id2label") or ()) == 3 and _reads_pairs(name)]
    return dict(zip(three, cycle(NLI), strict=False))


def _reads_pairs(name: str) -> bool:
    """Return whether transformers runs a model with pairs as it was trained.

    It looks for a type that a model with one type lacks, and the frequencies of the positions of ESM are in the golden
    file, in bfloat16.
    """
    has_types = expected_of(name)["tokenizer"] != "wordpiece" or config_of(name).get("type_vocab_size") != 1
    return has_types and not name.startswith("esm")


def config_of(name: str) -> dict[str, Any]:
    """Return the config.json of a golden model."""
    return dict(json.loads((HEADS / name / "config.json").read_text(encoding="utf-8")))


def labels_in(labels: tuple[str, ...]) -> dict[str, Any]:
    """Return the entries of config.json for labels."""
    return {"id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)}}


@cache
def golden() -> dict[str, dict[str, list[list[Any]]]]:
    """Return what the pipeline gives: by the model and the call, for each text its labels with their scores."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))




@cache
def nli_folder(name: str, labels: tuple[str, ...] | None = None) -> Path:
    """Return the folder of a golden model with other labels, which tests read and do not change.

    labels: None for those that the model has in the golden file.
    """
    folder = write_folder(Path(mkdtemp(prefix="nli-")) / name, name)
    write_json(folder / "config.json", config_of(name) | labels_in(models()[name] if labels is None else labels))
    return folder
