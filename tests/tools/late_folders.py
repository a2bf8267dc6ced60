"""Write folders of sentence-transformers' MultiVectorEncoder, as version 6.2 saves them, with random Dense modules; and
folders of PyLate and of Stanford's ColBERT, which that version reads, too.

The transformers are those of the golden heads. Nothing here needs the engine: tests/golden/make/late.py reads the
folders with sentence-transformers.
"""

import json
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import head_texts as texts
from .head_models import write_folder
from .module_folders import TYPES, write_dense
from .tiny_models import write_json, write_modules_json

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


@dataclass(frozen=True)
class Older:
    """A folder of PyLate or of Stanford's ColBERT."""

    model: str
    """The golden model with the transformer."""
    settings: dict[str, Any]
    """Of config_sentence_transformers.json, or of artifact.metadata."""
    dense: tuple[dict[str, Any], ...] = ({},)
    """The settings of each Dense of PyLate."""
    markers: tuple[str, ...] = ("[Q] ", "[D] ")


OLDER = {
    "pylate": Older("bert_tag", {
        "model_type": "ColBERT", "prompts": {}, "similarity_fn_name": "MaxSim", "query_prefix": "[Q] ",
        "document_prefix": "[D] ", "query_length": 16, "document_length": 30, "attend_to_expansion_tokens": False,
        "skiplist_words": list(string.punctuation), "do_query_expansion": True}),
    "pylate attending": Older("electra_tag", {
        "model_type": "ColBERT", "prompts": {"query": "", "document": "[D] text: "}, "query_prefix": "[Q] ",
        "document_prefix": "[D] ", "query_length": 18, "document_length": 40, "attend_to_expansion_tokens": True},
        ({"use_residual": True}, {})),
    "pylate bare": Older("mpnet_tag", {
        "model_type": "ColBERT", "query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 12,
        "document_length": 24, "skiplist_words": [], "do_query_expansion": False}, markers=("[unused0]", "[unused1]")),
    "stanford": Older("bert_tag", {
        "query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_token": "[Q]", "doc_token": "[D]",
        "query_maxlen": 20, "doc_maxlen": 30, "dim": 16, "similarity": "cosine", "mask_punctuation": True,
        "attend_to_mask_tokens": False, "interaction": "colbert"}, (), ("[unused0]", "[unused1]")),
    "stanford bare": Older("distilbert_tag", {"mask_punctuation": False}, (), ("[unused0]", "[unused1]")),
}


def write_older(folder: Path, name: str) -> Path:
    """Write one of `OLDER`."""
    case, rng = OLDER[name], np.random.default_rng(len(name))
    write_folder(folder, case.model, tokenizer_class="PreTrainedTokenizerFast")
    is_added = case.markers[0].startswith("[Q")
    _add_markers(folder / "tokenizer.json", case.markers, added={"special": False, "normalized": True} if is_added
                 else None)
    if not case.dense:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        write_json(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
        write_json(folder / "artifact.metadata", case.settings)
        _replace_head(folder / "model.safetensors", rng.standard_normal((16, WIDTH)).astype(np.float32))
        return folder
    modules, width = [("", TYPES["Transformer"])], WIDTH
    for i, settings in enumerate(case.dense):
        modules.append((f"{i + 1}_Dense", "pylate.models.Dense.Dense"))
        write_dense(folder / modules[-1][0], rng, 16, width, "Identity", **settings)
        width = 16
    write_modules_json(folder, *modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 31, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", case.settings)
    return folder


def _replace_head(path: Path, linear: np.ndarray) -> None:
    """Put the map of ColBERT in place of the classifier in a file of weights, whose other bytes stay the same."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, found, body = json.loads(data[8 : 8 + size]), {}, b""
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith("classifier."):
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = entry | {"data_offsets": [len(body), len(body) + end - start]}
            body += data[start:end]
    found["linear.weight"] = {"dtype": "F32", "shape": list(linear.shape),
                              "data_offsets": [len(body), len(body) + linear.nbytes]}
    text = json.dumps({"__metadata__": {"format": "pt"}} | found).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body + linear.tobytes())


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
    write_modules_json(folder, *((path, TYPES[kind]) for kind, path in kinds))
    write_json(folder / "sentence_bert_config.json", {
        "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "query_length": None,
        "document_length": None, "query_expansion": None} | case.settings)
    write_json(folder / "config_sentence_transformers.json", {
        "model_type": "MultiVectorEncoder", "prompts": {"query": "", "document": ""} | case.prompts,
        "default_prompt_name": None, "similarity_fn_name": case.similarity})
    return folder


_SPECIAL = {"special": True, "normalized": False}


def _add_markers(path: Path, markers: tuple[str, ...], added: dict[str, bool] | None = _SPECIAL) -> None:
    """Turn the last tokens of a vocabulary into markers; added: how they are added tokens, None for plain tokens."""
    document = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = document["model"]["vocab"]
    for marker, word in zip(markers, sorted(vocabulary, key=vocabulary.__getitem__)[-len(markers) :], strict=True):
        vocabulary[marker] = vocabulary.pop(word)
        if added is not None:
            document["added_tokens"].append({"id": vocabulary[marker], "content": marker, "single_word": False,
                                             "lstrip": False, "rstrip": False, **added})
    write_json(path, document)
