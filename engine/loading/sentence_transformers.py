"""Read the text settings of a model from the modules of its folder: tokens, length limits, pooling and prompts.

A folder without modules.json is read as SentenceTransformer reads a plain Hugging Face model: pooling is the mean of
the token vectors, and the result is not normalised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..files.folder import ModelFolder
from ..model.config import ModelConfig
from ..model.head import SPARSE_ACTIVATIONS, SPARSE_POOLINGS
from ..model.text_config import LATE_SIMILARITIES, POOLINGS, VECTOR_SIMILARITIES, TextConfig
from ..text.vocabularies.of_folder import read_tokenizers
from ..text.vocabularies.tokenizer_settings import with_stated_normalizer
from .colbert import with_markers
from .late import read_late
from .module_list import (
    CROSS_ENCODER,
    MODEL_TYPES,
    MODULES,
    PROMPTS,
    Late,
    Modules,
    Pooled,
    SparseStatic,
    Splade,
    model_type_of,
    transformer_settings,
)

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

_CUSTOM_FAMILIES = ("jina_embeddings_v3",)
"""Families whose folders bring their own module in place of Transformer; it chooses the adapter of a task."""
_NO_LIMIT = 2**31
"""A length limit above this number of tokens means no limit."""
SPARSE_SIMILARITY = "dot"
"""The similarity of sparse vectors where a model states none."""


def stated_pair_function(folder: ModelFolder) -> dict[str, Any]:
    """Return the function from logits to scores that a cross-encoder's folder states, as a key of config.json.

    {} for another folder. `families.heads.pair_function` reads the key.
    """
    stated = folder.read_object_or_empty(PROMPTS).get("activation_fn")
    if stated is None or model_type_of(folder) != CROSS_ENCODER:
        return {}
    return {"sentence_transformers": {"activation_fn": stated}}


def sparse_settings(modules: Modules) -> dict[str, Any]:
    """Return the fields of `HeadConfig` that a folder states for sparse vectors; raises `UnsupportedError`."""
    if not isinstance(modules, Splade | SparseStatic):
        return {}
    settings = _splade_pooling(modules.pooling) if isinstance(modules, Splade) else {}
    most = modules.folder.read_object_or_empty(PROMPTS).get("max_active_dims")
    return settings | ({} if most is None else {"max_active_dims": most})


def _splade_pooling(folder: ModelFolder) -> dict[str, Any]:
    """Return the fields of `HeadConfig` that the folder of SpladePooling states; raises `UnsupportedError`."""
    config, values = folder.label("config.json"), folder.read_object("config.json")
    settings = {}
    for key, name, allowed in (("pooling_strategy", "sparse_pooling", SPARSE_POOLINGS),
                               ("activation_function", "sparse_activation", SPARSE_ACTIVATIONS)):
        settings[name] = values.get(key, allowed[0])
        if not isinstance(settings[name], str) or settings[name] not in allowed:
            raise UnsupportedError(f"{config}: {key} = {shown(settings[name])} is not supported; supported are "
                                   f"{', '.join(allowed)}")
    return settings


def check_code(modules: Modules, config: ModelConfig) -> None:
    """Raise `UnsupportedError` for a module that is code of the folder, unless a family here computes the same."""
    if isinstance(modules, Pooled) and modules.code is not None and config.family not in _CUSTOM_FAMILIES:
        raise UnsupportedError(f"{modules.folder.label(MODULES)}: the module {modules.code} is code in the folder, "
                               f"which the engine does not run; it is known for {', '.join(_CUSTOM_FAMILIES)} only")


def read_text(modules: Modules, config: ModelConfig, *, translates: bool = False) -> TextConfig | None:
    """Return the text settings of a transformer, or None when its folder has no vocabulary that the engine can read.

    translates: whether the folder may hold the vocabularies of a model of translation.
    """
    home = modules.home     # the folder of the first module; modules.folder is that of the whole model
    text, _ = read_tokenizers(home, translates=translates)
    if text is None:
        return None
    truncation_side, feeds_token_types = _stated_by_tokenizer(home)
    with home.within(TOKENIZER_SETTINGS):
        stated = with_stated_normalizer(text.tokenizer_json, tokenizer_settings(home))
        text = replace(text, truncation_side=truncation_side, tokenizer_json=stated,
                       feeds_token_types=text.feeds_token_types and feeds_token_types)
    if isinstance(modules, Pooled):
        return _text_of_pooled(modules, text, config)
    return _text_of_late(modules, text, config) if isinstance(modules, Late) else _text_of_others(modules, text, config)


def _text_of_pooled(modules: Pooled, text: TextConfig, config: ModelConfig) -> TextConfig:
    """Return the text settings of a model with one vector for each text."""
    settings = transformer_settings(modules.home)
    limit = max_seq_length(modules.home, settings, config)
    pooling, include_prompt = _pooling(modules.pooling)
    with modules.folder.within():
        text = replace(text, max_seq_length=limit, pooling=pooling, include_prompt=include_prompt,
                       lower_case=settings.get("do_lower_case") or False)
    return with_settings(text, modules)


def _text_of_late(modules: Late, text: TextConfig, config: ModelConfig) -> TextConfig:
    """Return the text settings of a model with a vector for each token."""
    # mask: the settings of MultiVectorMask and the name of their file.
    settings, colbert, mask = transformer_settings(modules.home), modules.colbert, None
    if modules.mask is not None:
        mask = modules.mask.read_object("config.json"), modules.mask.label("config.json")
    if colbert is not None:
        settings, mask = colbert.settings | settings, mask or (colbert.skiplist, colbert.source)
        with modules.folder.within():
            text = with_markers(text, colbert)
    limit = max_seq_length(modules.home, settings, config)
    with modules.folder.within():
        text = replace(text, max_seq_length=limit, lower_case=settings.get("do_lower_case") or False)
    late = read_late(modules.home, settings, mask, text, config)
    return with_settings(replace(text, late=late, similarity=LATE_SIMILARITIES[0]), modules)


def _text_of_others(modules: Modules, text: TextConfig, config: ModelConfig) -> TextConfig:
    """Return the text settings of SPLADE, of a cross-encoder, and of a folder without modules.json."""
    limit = max_seq_length(modules.home, {}, config)
    prompts, name = _prompts(modules.folder) if modules.folder.has(MODULES) else ({}, None)
    similarity = text.similarity
    if isinstance(modules, Splade):
        similarity = modules.folder.read_object_or_empty(PROMPTS).get("similarity_fn_name") or SPARSE_SIMILARITY
    with modules.folder.within():
        return replace(text, max_seq_length=limit, prompts=prompts, default_prompt_name=name, similarity=similarity)


def with_settings(text: TextConfig, modules: Modules) -> TextConfig:
    """Return the text settings with those of the whole model: prompts, similarity, truncate_dim and normalization."""
    prompts, default_prompt_name = _prompts(modules.folder)
    vectors = modules.folder.read_object_or_empty(PROMPTS)
    similarity = vectors.get("similarity_fn_name")
    if modules.colbert is not None:
        prompts = modules.colbert.prompts
        similarity = similarity.lower() if isinstance(similarity, str) else similarity      # PyLate wrote "MaxSim"
    if similarity is None or (isinstance(modules, Late) and similarity in VECTOR_SIMILARITIES):
        similarity = text.similarity        # PyLate stated "cosine"
    with modules.folder.within():
        return replace(text, normalize=modules.normalize, prompts=prompts, default_prompt_name=default_prompt_name,
                       similarity=similarity, truncate_dim=vectors.get("truncate_dim"))


def max_seq_length(folder: ModelFolder, settings: dict[str, Any], config: ModelConfig) -> int | None:
    """Return the most tokens of a text; None for no limit.

    It is the limit in the settings of the module, or else the tokenizer's, or the position table's if that is less.
    """
    tokenizer = tokenizer_settings(folder)
    overrides = settings.get("processor_kwargs") or settings.get("tokenizer_args")
    stated = [overrides.get("model_max_length") if isinstance(overrides, dict) else None,
              settings.get("max_seq_length"), tokenizer.get("model_max_length"), tokenizer.get("max_len")]
    limit: Any = next((value for value in stated if value is not None), None)
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
    """Return truncation_side as tokenizer_config.json states it, and whether the model reads token types.

    It reads them if the listed inputs have them; without a list, unless the tokenizer has the class of transformers 5
    that feeds none. The file may be large, so that nothing else of it is kept in memory.
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
    if model_type_of(folder) not in MODEL_TYPES:
        raise UnsupportedError(f"{path}: model_type {shown(values['model_type'])} is not supported; supported are "
                               f"{', '.join(MODEL_TYPES)}")
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise WeightsError(f"{path}: prompts must map names to texts, not {shown(prompts)}")
    return {name: text for name, text in prompts.items() if text is not None}, values.get("default_prompt_name")
