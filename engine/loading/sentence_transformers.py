"""Read from a sentence-transformers folder how the model tokenizes text and pools token vectors.

    modules.json                        the modules and the folder of each
    <Transformer>/                      config.json, weights, tokenizer, sentence_bert_config.json
    <Pooling>/config.json               pooling modes
    <Dense>/, <LayerNorm>/ ...          modules that change vectors before or after pooling (`modules.py`)
    <StaticEmbedding>/                  a tokenizer and a table, in place of Transformer and Pooling (`static.py`)
    <Router>/router_config.json         the modules of each task (`router.py`)
    config_sentence_transformers.json   prompts

The files of every version up to 6 are supported. A folder without modules.json is read as SentenceTransformer reads a
plain Hugging Face model: pooling is the mean of the token vectors, and the result is not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..files.folder import ModelFolder
from ..model.config import ModelConfig
from ..model.head import SPARSE_ACTIVATIONS, SPARSE_POOLINGS
from ..model.text_config import LATE_SIMILARITIES, POOLINGS, VECTOR_SIMILARITIES, TextConfig
from ..text.vocabularies.of_folder import read_tokenizers
from ..text.vocabularies.tokenizer_settings import with_stated_normalizer
from ..weights.modules import MOST_MODULES
from .colbert import Colbert, read_pylate, with_markers
from .late import read_late
from .modules import Entry, is_last_normalize

MODULES = "modules.json"
"""The file by which a folder of sentence-transformers is known."""

SETTINGS = tuple(f"sentence_{name}_config.json"
                  for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"))
"""The names that the file with the Transformer module's settings has had, in the order in which they are tried."""

TOKENIZER_SETTINGS = "tokenizer_config.json"

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The pooling mode of each flag of versions before 6, in the order in which the results are concatenated."""

STATIC, SPARSE_STATIC = "StaticEmbedding", "SparseStaticEmbedding"
"""The classes of modules that read texts with a table in place of a transformer."""
_CUSTOM = "custom_st.Transformer"
_CUSTOM_FAMILIES = ("jina_embeddings_v3",)
"""The families whose folders bring their own module in place of Transformer, which chooses the adapter of a task."""
_READERS = ("Transformer", _CUSTOM)
"""The classes of modules that make token vectors for Pooling."""
_MASK = "MultiVectorMask"
_DENSE_OF_PYLATE = "pylate.models.Dense.Dense"
PROMPTS = "config_sentence_transformers.json"
_NO_LIMIT = 2**31
"""A length limit above this number of tokens is none."""


SPARSE_SIMILARITY = "dot"
"""How sparse vectors are compared where a model states nothing."""
_SPARSE_ENCODER = "SparseEncoder"
"""The model_type of a model with sparse vectors."""
_LATE_ENCODER = "MultiVectorEncoder"
"""The model_type of a model with a vector for each token."""
_CROSS_ENCODER = "CrossEncoder"
"""The model_type of a model that reads pairs of texts, which is a Transformer with a classifier and no other module."""


@dataclass(frozen=True)
class Modules:
    """The folders of a model's parts."""

    folder: ModelFolder
    transformer: ModelFolder
    """The folder of the first module, which reads texts."""
    pooling: ModelFolder | None = None
    """None for a model folder without modules.json, for a cross-encoder, and for a model with another first module."""
    before: tuple[Entry, ...] = ()
    """The modules between the transformer and pooling."""
    after: tuple[Entry, ...] = ()
    """The modules after pooling, but for the last Normalize."""
    normalize: bool = False
    """Whether the last module scales vectors to length 1."""
    code: str | None = None
    """The type of the first module where it is code of the folder."""
    sparse: ModelFolder | None = None
    """The folder of SpladePooling, of a model with sparse vectors."""
    first: str = "Transformer"
    """The class of the first module."""
    late: bool = False
    """Whether the model has a vector for each token; `before` then are all modules that change vectors."""
    mask: ModelFolder | None = None
    """The folder of MultiVectorMask."""
    colbert: Colbert | None = None
    """The settings of a folder of PyLate or of Stanford's ColBERT, which stand in for those of modules."""


def read_entries(folder: ModelFolder) -> list[Entry]:
    """Return the class and the folder of each module in modules.json; raises `WeightsError`."""
    path, entries = folder.label(MODULES), folder.read_list(MODULES)
    if not all(isinstance(entry, dict) and isinstance(entry.get("type"), str) and isinstance(entry.get("path"), str)
               for entry in entries):
        raise WeightsError(f"{path}: expected a list of modules, each with a type and a path")
    return [(class_of(entry["type"]), folder.folder(entry["path"], MODULES)) for entry in entries]


def find_modules(folder: ModelFolder, entries: list[Entry]) -> Modules:
    """Find the parts of a model in its modules, in their order; raises `UnsupportedError` for others.

    folder: that of the whole model.
    """
    kinds, homes = [kind for kind, _ in entries], [home for _, home in entries]
    if (colbert := read_pylate(folder, PROMPTS)) is not None:
        return replace(_late_modules(folder, entries), colbert=colbert)
    if _model_type(folder) == _LATE_ENCODER:
        return _late_modules(folder, entries)
    if kinds == ["CLIPModel"]:
        return Modules(folder, homes[0])
    if kinds == ["Transformer"] and _model_type(folder) == _CROSS_ENCODER:
        return Modules(folder, _cross_encoder(homes[0]))
    if kinds in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        if kinds[0] == "Transformer":
            _transformer_settings(homes[0], _PLAIN_TRANSFORMER | {"transformer_task": "fill-mask"})
        return Modules(folder, homes[0], sparse=homes[1])
    if kinds == [SPARSE_STATIC]:
        return Modules(folder, homes[0], first=kinds[0])
    kept = [entry for entry in entries if entry[0] != "Dropout"]
    first = kept[0][0] if kept else ""
    place = next((i for i, (kind, _) in enumerate(kept) if kind == "Pooling"), 0) if first in _READERS else 0
    before, after = tuple(kept[1:place]), tuple(kept[place + 1 :])
    if not (place or first == STATIC) or max(len(before), len(after)) > MOST_MODULES or not (
            all(kind in ("Dense", "Normalize") for kind, _ in before)
            and all(kind in ("Dense", "LayerNorm", "Normalize") for kind, _ in after)):
        raise UnsupportedError(
            f"{folder.label(MODULES)}: the modules are {listed(kinds) or 'none'}; supported are Transformer and "
            f"Pooling, with Dense, Normalize and Dropout between them, or {STATIC}; after them Dense, LayerNorm, "
            f"Normalize and Dropout; and up to {MOST_MODULES} of these in each place; or Transformer and "
            f"SpladePooling; {SPARSE_STATIC}; or a Router to such modules")
    normalize = bool(after) and is_last_normalize(after[-1])
    return Modules(folder, kept[0][1], kept[place][1] if place else None, before, after[: len(after) - normalize],
                   normalize, first if first == _CUSTOM else None, first=first)


def _late_modules(folder: ModelFolder, entries: list[Entry]) -> Modules:
    """Return the parts of a model with a vector for each token; raises `UnsupportedError` for other modules."""
    kinds = [kind for kind, _ in entries]
    before = tuple(entry for entry in entries[1:] if entry[0] not in (_MASK, "Dropout"))
    if kinds[:1] != ["Transformer"] or kinds.count(_MASK) > 1 or len(before) > MOST_MODULES or not all(
            kind in ("Dense", "Normalize") for kind, _ in before):
        raise UnsupportedError(f"{folder.label(MODULES)}: the modules are {listed(kinds) or 'none'}; supported in a "
                               f"{_LATE_ENCODER} are Transformer and after it Dense, Normalize, Dropout, up to "
                               f"{MOST_MODULES} in all, and one {_MASK}")
    mask = next((home for kind, home in entries if kind == _MASK), None)
    return Modules(folder, entries[0][1], before=before, late=True, mask=mask)


def stated_pair_function(folder: ModelFolder) -> dict[str, Any]:
    """Return the function of the scores of pairs that a cross-encoder's folder states, in the form of config.json."""
    stated = folder.read_object_or_empty(PROMPTS).get("activation_fn")
    if stated is None or _model_type(folder) != _CROSS_ENCODER:
        return {}
    return {"sentence_transformers": {"activation_fn": stated}}


def _cross_encoder(folder: ModelFolder) -> ModelFolder:
    """Return the folder of a cross-encoder's Transformer; raises `UnsupportedError` for another task."""
    _transformer_settings(folder, {"transformer_task": "sequence-classification", "module_output_name": "scores",
                                   "processing_kwargs": {}})
    return folder


def _model_type(folder: ModelFolder) -> Any:
    return folder.read_object_or_empty(PROMPTS).get("model_type", "SentenceTransformer")


def sparse_settings(modules: Modules) -> dict[str, Any]:
    """Return the fields of a head that a folder states for sparse vectors; raises `UnsupportedError`."""
    if modules.sparse is None and modules.first != SPARSE_STATIC:
        return {}
    found = {} if modules.sparse is None else _splade_pooling(modules.sparse)
    most = modules.folder.read_object_or_empty(PROMPTS).get("max_active_dims")
    return found | ({} if most is None else {"max_active_dims": most})


def _splade_pooling(folder: ModelFolder) -> dict[str, Any]:
    config, values = folder.label("config.json"), folder.read_object("config.json")
    found = {}
    for key, name, allowed in (("pooling_strategy", "sparse_pooling", SPARSE_POOLINGS),
                               ("activation_function", "sparse_activation", SPARSE_ACTIVATIONS)):
        found[name] = values.get(key, allowed[0])
        if not isinstance(found[name], str) or found[name] not in allowed:
            raise UnsupportedError(f"{config}: {key} = {shown(found[name])} is not supported; supported are "
                                   f"{', '.join(allowed)}")
    return found


def check_code(modules: Modules, config: ModelConfig) -> None:
    """Raise `UnsupportedError` for a module that is code of the folder, unless a family here computes the same."""
    if modules.code is not None and config.family not in _CUSTOM_FAMILIES:
        raise UnsupportedError(f"{modules.folder.label(MODULES)}: the module {modules.code} is code in the folder, "
                               f"which the engine does not run; it is known for {', '.join(_CUSTOM_FAMILIES)} only")


def read_text(modules: Modules, config: ModelConfig, *, translates: bool = False) -> TextConfig | None:
    """Return the text settings of the model, or None when its folder has no vocabulary that the engine can read.

    translates: as in `read_tokenizers`.
    """
    tokenizer, _ = read_tokenizers(modules.transformer, translates=translates)
    if tokenizer is None:
        return None
    truncation_side, feeds_token_types = _stated_by_tokenizer(modules.transformer)
    with modules.transformer.within(TOKENIZER_SETTINGS):
        stated = with_stated_normalizer(tokenizer.tokenizer_json, tokenizer_settings(modules.transformer))
        tokenizer = replace(tokenizer, truncation_side=truncation_side, tokenizer_json=stated)
    token_types = tokenizer.feeds_token_types and feeds_token_types
    if modules.pooling is None and not modules.late:
        limit = max_seq_length(modules.transformer, {}, config)
        prompts, name = _prompts(modules.folder) if modules.folder.has(MODULES) else ({}, None)
        similarity = tokenizer.similarity
        if modules.sparse is not None:
            similarity = modules.folder.read_object_or_empty(PROMPTS).get("similarity_fn_name") or SPARSE_SIMILARITY
        with modules.folder.within():
            return replace(tokenizer, max_seq_length=limit, feeds_token_types=token_types, prompts=prompts,
                           default_prompt_name=name, similarity=similarity)
    settings = _transformer_settings(modules.transformer)
    if modules.colbert is not None:
        settings = modules.colbert.settings | settings
        with modules.folder.within():
            tokenizer = with_markers(tokenizer, modules.colbert)
    limit = max_seq_length(modules.transformer, settings, config)
    pooling, include_prompt = (("mean",), True) if modules.pooling is None else _pooling(modules.pooling)
    with modules.folder.within():
        text = replace(tokenizer, max_seq_length=limit, pooling=pooling, include_prompt=include_prompt,
                       lower_case=settings.get("do_lower_case") or False, feeds_token_types=token_types)
    if modules.late:
        late = read_late(modules.transformer, settings, _stated_mask(modules), text, config)
        text = replace(text, late=late, similarity=LATE_SIMILARITIES[0])
    return with_settings(text, modules)


def with_settings(text: TextConfig, modules: Modules) -> TextConfig:
    """Return text settings with those of the whole model: prompts, similarity, truncate_dim, and the last Normalize."""
    prompts, default_prompt_name = _prompts(modules.folder)
    vectors = modules.folder.read_object_or_empty(PROMPTS)
    similarity = vectors.get("similarity_fn_name")
    if modules.colbert is not None:
        prompts = modules.colbert.prompts
        similarity = similarity.lower() if isinstance(similarity, str) else similarity      # PyLate wrote "MaxSim"
    if similarity is None or (modules.late and similarity in VECTOR_SIMILARITIES):    # PyLate stated "cosine"
        similarity = text.similarity
    with modules.folder.within():
        return replace(text, normalize=modules.normalize, prompts=prompts, default_prompt_name=default_prompt_name,
                       similarity=similarity, truncate_dim=vectors.get("truncate_dim"))


def _stated_mask(modules: Modules) -> tuple[dict[str, Any], str] | None:
    """Return the settings of MultiVectorMask and the file that states them; None without that module."""
    if modules.mask is not None:
        return modules.mask.read_object("config.json"), modules.mask.label("config.json")
    return None if modules.colbert is None else (modules.colbert.skiplist, modules.colbert.source)


def class_of(module_type: str) -> str:
    """Return the class name of a library module, whose package differs between versions, or another's full name."""
    own = module_type.startswith("sentence_transformers.") or module_type == _DENSE_OF_PYLATE
    return module_type.rpartition(".")[2] if own else module_type


_PLAIN_TRANSFORMER: dict[str, Any] = {"transformer_task": "feature-extraction",
                                      "module_output_name": "token_embeddings", "processing_kwargs": {}}
"""The only supported value of these keys of a Transformer module before Pooling."""


def _transformer_settings(folder: ModelFolder, plain: dict[str, Any] = _PLAIN_TRANSFORMER) -> dict[str, Any]:
    """Return the settings of a Transformer module; plain: the only supported value of each key."""
    name = next((name for name in SETTINGS if folder.has(name)), None)
    settings = folder.read_object(name) if name else {}
    for key, expected in plain.items():
        if settings.get(key) not in (None, expected):
            raise UnsupportedError(f"{folder.label(str(name))}: {key} = {shown(settings[key])} is not supported; "
                                   f"only {expected!r} is")
    return settings


def max_seq_length(folder: ModelFolder, settings: dict[str, Any], config: ModelConfig) -> int | None:
    """Return the settings' limit on tokens, or else the tokenizer's, but at most what the position table allows."""
    tokenizer = tokenizer_settings(folder)
    overrides = settings.get("processor_kwargs") or settings.get("tokenizer_args") or {}
    stated: list[Any] = [overrides.get("model_max_length") if isinstance(overrides, dict) else None,
              settings.get("max_seq_length"), tokenizer.get("model_max_length"), tokenizer.get("max_len")]
    limit = next((value for value in stated if value is not None), None)
    if limit is None:
        return config.longest_sequence
    # A tokenizer without a limit of its own states 1e30, as an integer or as a float.
    if type(limit) not in (int, float) or not limit >= 1:
        raise WeightsError(f"{folder}: the longest sequence must be a positive number of tokens, not {shown(limit)}")
    if limit > _NO_LIMIT:
        return config.longest_sequence
    return int(min(limit, config.longest_sequence or limit))


def tokenizer_settings(folder: ModelFolder) -> dict[str, Any]:
    """Return the contents of tokenizer_config.json; empty for a folder without one."""
    return folder.read_object_or_empty(TOKENIZER_SETTINGS)


def _stated_by_tokenizer(folder: ModelFolder) -> tuple[Any, bool]:
    """Return the stated truncation_side, and False if token types are not among the listed inputs of the model.

    Without a list, the class of a tokenizer knows; transformers 5 has one that feeds no token types. The rest of a
    large file is given back before the next file is read.
    """
    settings = tokenizer_settings(folder)
    names = settings.get("model_input_names")
    if names is None:
        feeds = settings.get("tokenizer_class") != "TokenizersBackend"
    elif isinstance(names, list) and all(isinstance(name, str) for name in names):
        feeds = "token_type_ids" in names
    else:
        raise WeightsError(f"{folder.label(TOKENIZER_SETTINGS)}: model_input_names must be a list of names, not "
                           f"{shown(names)}")
    return settings.get("truncation_side"), feeds


def _pooling(folder: ModelFolder) -> tuple[tuple[str, ...], bool]:
    """Return the pooling modes, and whether the tokens of the prompt are pooled too."""
    values = folder.read_object("config.json")
    modes = values.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _FLAGS.items() if values.get(flag)] or ["mean"]
    if isinstance(modes, str):
        modes = [modes]
    if not isinstance(modes, list) or not 1 <= len(modes) <= len(POOLINGS) or not all(
            mode in POOLINGS for mode in modes):
        raise UnsupportedError(f"{folder.label('config.json')}: pooling_mode {shown(modes)} is not supported; "
                               f"supported are up to {len(POOLINGS)} of {', '.join(POOLINGS)}")
    return tuple(modes), values.get("include_prompt", True)


def _prompts(folder: ModelFolder) -> tuple[dict[str, str], str | None]:
    """Return the prompts by name, and the name of the default prompt or None."""
    path, values = folder.label(PROMPTS), folder.read_object_or_empty(PROMPTS)
    supported = ("SentenceTransformer", _CROSS_ENCODER, _SPARSE_ENCODER, _LATE_ENCODER, "ColBERT")
    if _model_type(folder) not in supported:
        raise UnsupportedError(f"{path}: model_type {shown(values['model_type'])} is not supported; supported are "
                               f"{', '.join(supported)}")
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise WeightsError(f"{path}: prompts must map names to texts, not {shown(prompts)}")
    return {name: text for name, text in prompts.items() if text is not None}, values.get("default_prompt_name")
