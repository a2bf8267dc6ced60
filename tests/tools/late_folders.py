"""Write folders of sentence-transformers' MultiVectorEncoder, as version 6.2 saves them, with random Dense modules.

The transformers are those of the golden heads. Nothing here needs the engine: tests/golden/make/late.py reads the
folders with sentence-transformers.
"""

from __future__ import annotations

import json
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import head_texts as texts
from .head_models import write_folder
from .module_folders import TYPES, write_dense
from .tiny_models import write_json

MASK = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
WIDTH = 24
QUERIES = ("Who lives in Berlin?", "a", "", "Anna 😀 lives 🏠", "[MASK] and [SEP], <mask>", "[Q] was it very good!?",
           texts.sentence(1, 12), texts.sentence(2, 60))
DOCUMENTS = (*texts.TEXTS[:4], "", ".", "e-mail: anna@berlin.example", "[D] [MASK], 陈 lives in 东京 today",
             texts.sentence(3, 90))
ROLES = {"query": QUERIES, "document": DOCUMENTS, "none": QUERIES[:5]}
"""The texts of each task; "none" for no task."""


@dataclass(frozen=True)
class Late:
    """How one folder differs from the others."""

    model: str
    """The golden model with the transformer."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the Transformer module."""
    mask: dict[str, Any] | None = field(default_factory=dict)
    """Of MultiVectorMask; None for a folder without it."""
    dense: tuple[tuple[int, dict[str, Any]], ...] = ((16, {}),)
    """The numbers of the vectors after each Dense, and its settings."""
    normalize: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    similarity: str | None = None
    markers: tuple[str, ...] = ()
    """Prompts that are one token each: special, and not normalized."""


def _fixed(length: int, **more: Any) -> dict[str, Any]:
    return {"query_expansion": {"strategy": "fixed", "attend": False, "token": None, "length": length} | more}


PUNCTUATION = {"skiplist_words": list(string.punctuation), "skiplist_tasks": ["document"], "keep_only_token_ids": None}
CASES = {
    "bert": Late("bert_tag", _fixed(16), PUNCTUATION, prompts={"query": "[Q] ", "document": "[D] "},
                 markers=("[Q] ", "[D] ")),
    "bert attending": Late("bert_tag", {"query_length": 20, "document_length": 12, "query_expansion": {
        "strategy": "min", "attend": True, "token": "[UNK]", "length": 12}},
        {"skiplist_words": [",", "?", "[SEP]"], "skiplist_tasks": ["query", "document"], "keep_only_token_ids": None},
        ((20, {"activation": "Tanh"}), (9, {"use_residual": True})), False, {"query": "who: ", "passage": "text: "},
        "meanmaxsim"),
    "roberta": Late("roberta_tag", _fixed(24), prompts={"query": "Anna? "}),
    "deberta": Late("deberta_tag", _fixed(20, attend=True), PUNCTUATION),
    "modernbert": Late("modernbert_tag", _fixed(18), normalize=False),
    "mpnet": Late("mpnet_tag", _fixed(14)),
    "albert": Late("albert_tag", _fixed(32), dense=()),
    "distilbert": Late("distilbert_tag", {"query_length": 8, "document_length": 30},
                       {"skiplist_words": [], "skiplist_tasks": ["document"],
                        "keep_only_token_ids": [2, 3, 40, 41, 45]}),
    "no mask": Late("electra_tag", mask=None, similarity="maxsim"),
}


def write_late(folder: Path, name: str) -> Path:
    """Write one of `CASES`."""
    case, rng = CASES[name], np.random.default_rng(len(name))
    write_folder(folder, case.model, tokenizer_class="PreTrainedTokenizerFast")     # the file as it is
    if case.markers:
        _add_markers(folder / "tokenizer.json", case.markers)
    kinds = [("Transformer", "")]
    width = WIDTH
    for i, (out, settings) in enumerate(case.dense):
        kinds.append(("Dense", f"{i + 1}_Dense"))
        own = dict(settings)
        write_dense(folder / kinds[-1][1], rng, out, width, own.pop("activation", "Identity"),
                    module_input_name="token_embeddings", module_output_name="token_embeddings", **own)
        width = out
    if case.mask is not None:
        kinds.append(("MultiVectorMask", f"{len(kinds)}_MultiVectorMask"))
        write_json(folder / kinds[-1][1] / "config.json", case.mask)
    if case.normalize:
        kinds.append(("Normalize", f"{len(kinds)}_Normalize"))
        write_json(folder / kinds[-1][1] / "config.json", {"module_input_name": "token_embeddings"})
    types = TYPES | {"MultiVectorMask": MASK}
    write_json(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": types[kind]}
                                         for i, (kind, path) in enumerate(kinds)])
    write_json(folder / "sentence_bert_config.json", {
        "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "query_length": None,
        "document_length": None, "query_expansion": None} | case.settings)
    write_json(folder / "config_sentence_transformers.json", {
        "model_type": "MultiVectorEncoder", "prompts": {"query": "", "document": ""} | case.prompts,
        "default_prompt_name": None, "similarity_fn_name": case.similarity})
    return folder


def _add_markers(path: Path, markers: tuple[str, ...]) -> None:
    """Turn the last tokens of a vocabulary into special tokens that are not normalized."""
    document = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    for marker, word in zip(markers, sorted(vocabulary, key=vocabulary.__getitem__)[-len(markers) :], strict=True):
        vocabulary[marker] = vocabulary.pop(word)
        document["added_tokens"].append({"id": vocabulary[marker], "content": marker, "single_word": False,
                                         "lstrip": False, "rstrip": False, "normalized": False, "special": True})
    write_json(path, document)
