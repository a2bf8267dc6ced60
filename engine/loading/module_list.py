"""Find the kind of model in a folder of sentence-transformers, and the folders of its parts, from its modules.

    modules.json                        the modules and the folder of each
    <Transformer>/                      config.json, weights, tokenizer, sentence_bert_config.json
    <Pooling>/config.json               pooling modes
    <Dense>/, <LayerNorm>/ ...          modules that change vectors before or after pooling (`modules.py`)
    <StaticEmbedding>/                  a tokenizer and a table, in place of Transformer and Pooling (`static.py`)
    <Router>/router_config.json         the modules of each task (`router.py`)
    config_sentence_transformers.json   prompts

The files of every version up to 6 are supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, listed
from ..families.fields import refuse_others
from ..files.folder import ModelFolder
from ..weights.modules import MOST_MODULES
from .colbert import Colbert, read_pylate
from .modules import Entry, is_last_normalize

MODULES = "modules.json"
"""The file by which a folder of sentence-transformers is known."""
PROMPTS = "config_sentence_transformers.json"
"""The file of the whole model, with its prompts and its similarity."""
SETTINGS = tuple(f"sentence_{name}_config.json"
                  for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"))
"""The names, by version, of the file with the Transformer module's settings, in the order in which they are tried."""

STATIC, SPARSE_STATIC = "StaticEmbedding", "SparseStaticEmbedding"
"""The classes of modules that read texts with a table in place of a transformer."""
_CUSTOM = "custom_st.Transformer"      # a module that is code in the folder
_READERS = ("Transformer", _CUSTOM)
"""The classes of modules that make token vectors for Pooling."""
_MASK = "MultiVectorMask"
_DENSE_OF_PYLATE = "pylate.models.Dense.Dense"

_LATE_ENCODER = "MultiVectorEncoder"
"""The model_type of a model with a vector for each token."""
CROSS_ENCODER = "CrossEncoder"
"""The model_type of a model that reads pairs of texts, which is a Transformer with a classifier and no other module."""
MODEL_TYPES = ("SentenceTransformer", CROSS_ENCODER, "SparseEncoder", _LATE_ENCODER, "ColBERT")
"""The values of `model_type` in the file `PROMPTS`."""


@dataclass(frozen=True, kw_only=True)
class Modules:
    """The modules of one model. This class itself is a transformer alone; subclasses are the other kinds of models."""

    folder: ModelFolder
    """The folder of the whole model."""
    home: ModelFolder
    """The folder of the first module, which reads texts."""
    before: tuple[Entry, ...] = ()
    """The modules that change the vectors of tokens, before pooling where the model pools."""
    after: tuple[Entry, ...] = ()
    """The modules that change the vectors of texts, without the last Normalize."""
    normalize: bool = False
    """Whether the last module scales the vectors of texts to length 1."""
    colbert: Colbert | None = None
    """The settings of a folder of PyLate or of Stanford's ColBERT, which stand in for those of modules."""


@dataclass(frozen=True, kw_only=True)
class Pooled(Modules):
    """A transformer whose token vectors are pooled to one vector for each text."""

    pooling: ModelFolder
    """The folder of the module Pooling."""
    code: str | None
    """The class of the first module if it is code in the folder, otherwise None."""


class Static(Modules):
    """A table of vectors in place of a transformer."""


class SparseStatic(Modules):
    """A table with one number for each token."""


@dataclass(frozen=True, kw_only=True)
class Splade(Modules):
    """A transformer whose logits of words are pooled to a sparse vector for each text."""

    pooling: ModelFolder
    """The folder of the module SpladePooling."""


@dataclass(frozen=True, kw_only=True)
class Late(Modules):
    """A transformer with a vector for each token."""

    mask: ModelFolder | None = None
    """The folder of the module MultiVectorMask; None without it."""


def read_entries(folder: ModelFolder) -> list[Entry]:
    """Return the class and the folder of each module in modules.json; raises `WeightsError`."""
    path, entries = folder.label(MODULES), folder.read_list(MODULES)
    if not all(isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("path"), str)
               for entry in entries):
        raise WeightsError(f"{path}: expected a list of modules, each with a type and a path")
    return [(class_of(entry["type"]), folder.folder(entry["path"], MODULES)) for entry in entries]


def class_of(module_type: str) -> str:
    """Return the name of a module's class: without its package, which differs by version, if it is a library's own."""
    known = module_type.startswith("sentence_transformers.") or module_type == _DENSE_OF_PYLATE
    return module_type.rpartition(".")[2] if known else module_type


def find_modules(folder: ModelFolder, entries: list[Entry]) -> Modules:
    """Return the kind of model that these modules make in their order; raises `UnsupportedError` for others.

    folder: of the whole model. entries: the class and the folder of each module.
    """
    kinds, homes = [kind for kind, _ in entries], [home for _, home in entries]
    colbert = read_pylate(folder, PROMPTS)      # None for a folder that PyLate did not write
    if colbert is not None or model_type_of(folder) == _LATE_ENCODER:
        return _late(folder, entries, colbert)
    if kinds == ["CLIPModel"]:
        return Modules(folder=folder, home=homes[0])
    if kinds == ["Transformer"] and model_type_of(folder) == CROSS_ENCODER:
        transformer_settings(homes[0], {"transformer_task": "sequence-classification", "module_output_name": "scores",
                                        "processing_kwargs": {}})
        return Modules(folder=folder, home=homes[0])
    if kinds in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        if kinds[0] == "Transformer":
            transformer_settings(homes[0], _OF_VECTORS | {"transformer_task": "fill-mask"})
        return Splade(folder=folder, home=homes[0], pooling=homes[1])
    if kinds == [SPARSE_STATIC]:
        return SparseStatic(folder=folder, home=homes[0])
    return _of_vectors(folder, entries)


def _of_vectors(folder: ModelFolder, entries: list[Entry]) -> Pooled | Static:
    """Return the parts of a model with a vector for each text; raises `UnsupportedError` for other modules."""
    running = [entry for entry in entries if entry[0] != "Dropout"]        # Dropout acts in training alone
    first = running[0][0] if running else ""
    # The index of Pooling; 0 if there is none, as behind a table.
    pooling = next((i for i, (kind, _) in enumerate(running) if kind == "Pooling"), 0) if first in _READERS else 0
    before, after = tuple(running[1:pooling]), tuple(running[pooling + 1 :])
    if not (pooling or first == STATIC) or max(len(before), len(after)) > MOST_MODULES or not (
            all(kind in ("Dense", "Normalize") for kind, _ in before)
            and all(kind in ("Dense", "LayerNorm", "Normalize") for kind, _ in after)):
        raise UnsupportedError(
            f"{folder.label(MODULES)}: the modules are {listed(kind for kind, _ in entries) or 'none'}; supported are "
            f"Transformer and Pooling, with Dense, Normalize and Dropout between them, or {STATIC}; after them Dense, "
            f"LayerNorm, Normalize and Dropout; and up to {MOST_MODULES} of these in each place; or Transformer and "
            f"SpladePooling; {SPARSE_STATIC}; or a Router to such modules")
    normalize = bool(after) and is_last_normalize(after[-1])
    after = after[:-1] if normalize else after
    if not pooling:
        return Static(folder=folder, home=running[0][1], after=after, normalize=normalize)
    return Pooled(folder=folder, home=running[0][1], before=before, after=after, normalize=normalize,
                  pooling=running[pooling][1], code=first if first == _CUSTOM else None)


def _late(folder: ModelFolder, entries: list[Entry], colbert: Colbert | None) -> Late:
    """Return the parts of a model with a vector for each token; raises `UnsupportedError` for other modules."""
    kinds = [kind for kind, _ in entries]
    before = tuple(entry for entry in entries[1:] if entry[0] not in (_MASK, "Dropout"))
    if kinds[:1] != ["Transformer"] or kinds.count(_MASK) > 1 or len(before) > MOST_MODULES or not all(
            kind in ("Dense", "Normalize") for kind, _ in before):
        raise UnsupportedError(f"{folder.label(MODULES)}: the modules are {listed(kinds) or 'none'}; supported in a "
                               f"{_LATE_ENCODER} are Transformer and after it Dense, Normalize, Dropout, up to "
                               f"{MOST_MODULES} in all, and one {_MASK}")
    mask = next((home for kind, home in entries if kind == _MASK), None)
    return Late(folder=folder, home=entries[0][1], before=before, mask=mask, colbert=colbert)


def model_type_of(folder: ModelFolder) -> Any:
    """Return the model type that a folder states, one of `MODEL_TYPES` unless the file is wrong."""
    return folder.read_object_or_empty(PROMPTS).get("model_type", "SentenceTransformer")


_OF_VECTORS: dict[str, Any] = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
                               "processing_kwargs": {}}
"""The only supported value of these keys of a Transformer module before Pooling."""


def transformer_settings(folder: ModelFolder, only: dict[str, Any] = _OF_VECTORS) -> dict[str, Any]:
    """Return the settings of a Transformer module, {} if its folder has no file of them.

    only: keys with the only value that is not refused; others raise `UnsupportedError`.
    """
    name = next((name for name in SETTINGS if folder.has(name)), None)
    settings = folder.read_object(name) if name else {}
    refuse_others(settings, only, f"{folder.label(str(name))}: ")
    return settings
