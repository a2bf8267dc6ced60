"""Read static models: a tokenizer, and a table with the vector of each token.

    StaticEmbedding of sentence-transformers    embedding.weight [V, D]
    model2vec                                   embeddings [K, D] and perhaps mapping [V], weights [V]

The vector of token t is row t of the table; with a mapping, row mapping[t]; with weights, that row times weights[t].
The vector of a text is the mean over its tokens, without special tokens. In a folder whose config.json names model2vec,
texts are read as model2vec reads them: tokens of unknown words are left out, and long texts are truncated. A model is
an encoder without layers.

SparseStaticEmbedding, for the queries of SPLADE models that run no transformer on queries, has a number for each token:
`weight` [V], or a file with the number of each token by its text. Its table is [V, 1], and a head puts a text's numbers
at the places of its tokens in a sparse vector.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from ..base.errors import WeightsError, listed, shown
from ..files.folder import FORMATS, ModelFolder
from ..files.safetensors import read_safetensors
from ..model.config import static_config
from ..model.head import HeadConfig, Scatter
from ..model.text_config import TextConfig
from ..text.safety import read_tokenizer
from ..text.special_tokens import ids_of_tokens
from ..text.vocabularies.of_folder import read_tokenizers
from ..weights.bfloat16 import widened
from ..weights.head import Head
from ..weights.model import Transformer
from .sentence_transformers import SPARSE_SIMILARITY, max_seq_length

_SPARSE = "sparse_static"
"""The family of a table with one number for each token."""
MODEL2VEC = "model2vec"
"""The model_type of model2vec's folders."""
_CONFIG = "config.json"
_OWN_KEYS = {"embedding_dtype", "vocabulary_quantization"}
"""Keys of config.json in folders of model2vec from version 0.10 on, of which some have no model_type."""
_NAMES = {"embedding.weight": "table", "embeddings": "table", "mapping": "mapping", "weights": "weights"}
"""The engine's names of the tensors of a static model, by their names in files."""
_TOKENS = 512
"""The most tokens of a text in model2vec, where the folder states no other number."""


def is_model2vec(folder: ModelFolder) -> bool:
    """Return whether the config.json of a folder names model2vec, or has keys that model2vec alone writes."""
    values = folder.read_object_or_empty(_CONFIG)
    if "model_type" in values:
        return bool(values["model_type"] == MODEL2VEC)
    return not values.keys().isdisjoint(_OWN_KEYS) or (bool(values) and "mapping" in _tensor_names(folder))


def is_static(folder: ModelFolder) -> bool:
    """Return whether a folder without a modules.json holds a static model.

    Folders of wordllama have no config.json, but StaticEmbedding's table beside the tokenizer.
    """
    if is_model2vec(folder):
        return True
    names = set() if folder.has(_CONFIG) or not folder.has("tokenizer.json") else _tensor_names(folder)
    return bool(names) and names <= _NAMES.keys()


def _tensor_names(folder: ModelFolder) -> set[str]:
    """Return the names of the tensors in a folder; none without weights."""
    names: set[str] = set()
    if folder.has_weights():
        folder.tensors(lambda name: names.add(name))    # `add` returns None, so that no tensor is read
    return names


def read_static(folder: ModelFolder, memory: str) -> Transformer:
    """Return the static model in a folder, with its text settings; its vectors are not scaled to unit length.

    Raises `WeightsError` and `UnsupportedError`.
    """
    text, _ = read_tokenizers(folder, translates=False)
    if text is None:
        raise WeightsError(f"{folder}: a static model needs a tokenizer.json, and there is none")
    of_model2vec = is_model2vec(folder)
    with folder.within("tokenizer.json"):
        text = _text_of_model2vec(folder, text) if of_model2vec else _truncated(text)
    vocabulary = ids_of_tokens(read_tokenizer(text.tokenizer_json))
    weights = _table(folder, _arrays(folder, memory), max(vocabulary.values()) + 1)
    with folder.within():
        rows, width = weights["embeddings.word"].shape
        config = static_config(MODEL2VEC if of_model2vec else "static", width, rows)
    return Transformer(config, weights, text)


def read_sparse_static(folder: ModelFolder, memory: str) -> Transformer:
    """Return the model of SparseStaticEmbedding in a folder; raises `WeightsError` and `UnsupportedError`."""
    text, _ = read_tokenizers(folder, translates=False)
    if text is None:
        raise WeightsError(f"{folder}: SparseStaticEmbedding needs a tokenizer.json, and there is none")
    stated = stated_numbers(folder)
    if stated is not None:
        weight = _numbers_by_token(folder, stated, text)
    else:
        arrays = folder.tensors(memory=memory)
        weight = widened(arrays.get("weight", np.zeros(0, np.float32)))
        if list(arrays) != ["weight"] or weight.ndim != 1:
            raise WeightsError(f"{folder}: SparseStaticEmbedding has one vector called weight, not "
                               f"{listed(f'{name} {list(array.shape)}' for name, array in arrays.items())}")
    with folder.within():
        config = static_config(_SPARSE, hidden_size=1, vocab_size=len(weight))
        head = HeadConfig("encode_sparse", rows="all", steps=(Scatter(len(weight)),))
        text = replace(text, special_tokens=False, feeds_token_types=False, similarity=SPARSE_SIMILARITY,
                       max_seq_length=max_seq_length(folder, {}, config))
    return Transformer(config, {"embeddings.word": weight.reshape(-1, 1)}, text, heads=(Head(head),))


def stated_numbers(folder: ModelFolder) -> Any:
    """Return the file of numbers by token that a SparseStaticEmbedding names, unchecked; None if weights hold them."""
    return folder.read_object_or_empty(_CONFIG).get("path")


def _numbers_by_token(folder: ModelFolder, name: Any, text: TextConfig) -> np.ndarray:
    """Return the number of each token, float32 [V], from a JSON file `name` that maps the texts of tokens to numbers.

    A token that the file lacks has 0. Raises `WeightsError`.
    """
    if not isinstance(name, str) or not name.endswith(".json") or not name.replace(".", "").replace("_", "").isalnum():
        raise WeightsError(f"{folder.label(_CONFIG)}: path must be the name of a .json file in this folder, not "
                           f"{shown(name)}")
    numbers = folder.read_object(name)
    with folder.within("tokenizer.json"):
        vocabulary = ids_of_tokens(read_tokenizer(text.tokenizer_json))
    weight = np.zeros(len(vocabulary), np.float32)
    for token, number in numbers.items():
        place = vocabulary.get(token, len(weight))
        if place >= len(weight) or type(number) not in (int, float):
            raise WeightsError(f"{folder.label(name)}: expected a number for each token of the tokenizer, not "
                               f"{shown(number)} for {shown(token)}")
        try:
            weight[place] = number
        except OverflowError:
            raise WeightsError(f"{folder.label(name)}: the number of {shown(token)} is too large") from None
    return weight


def _arrays(folder: ModelFolder, memory: str) -> dict[str, np.ndarray]:
    """Return the arrays of a static model by their names in `_NAMES`; raises `WeightsError` for other tensors."""
    path = folder.path / next(iter(FORMATS))
    if folder.has(path.name):       # the only format here that may hold integers: a table in int8, or a mapping
        tensors = read_safetensors(path, keep_float16=True, keep_integers=True, memory=memory)
    else:
        tensors = folder.tensors(keep_float16=True, memory=memory)
    arrays = {_NAMES[name]: array for name, array in tensors.items() if name in _NAMES}
    if "table" not in arrays or len(arrays) != len(tensors):
        raise WeightsError(f"{folder}: the tensors are {listed(sorted(tensors))}; a static model has embedding.weight, "
                           "or embeddings and perhaps mapping and weights")
    return arrays


def _table(folder: ModelFolder, arrays: dict[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
    """Return the word table [V, D], and for a table in int8 the scale of each row [V], by their canonical names.

    tokens: how many ids the tokenizer has. A mapping is applied here, so that the table has one row for each token.
    Weights become the scales of an int8 table; any other table is multiplied by them and becomes float32.
    """
    table, mapping, weights = (arrays.get(name) for name in ("table", "mapping", "weights"))
    assert table is not None
    if table.ndim != 2 or table.dtype not in (np.int8, np.uint16, np.float16, np.float32):
        raise WeightsError(f"{folder}: the table must be a matrix [V, D] in float32, float16, bfloat16 or int8, not "
                           f"{table.dtype} {list(table.shape)}")
    if mapping is not None:
        if mapping.ndim != 1 or mapping.dtype.kind not in "iu" or mapping.min() < 0 or mapping.max() >= len(table):
            raise WeightsError(f"{folder}: mapping must be a vector of places in the table, which has {len(table):,} "
                               f"rows, not {mapping.dtype} {list(mapping.shape)} from {mapping.min()} to "
                               f"{mapping.max()}")
        if len(mapping) > tokens:
            raise WeightsError(f"{folder}: mapping has {len(mapping):,} places, and the tokenizer has {tokens:,} "
                               "tokens")
        table = table[mapping]
    if weights is not None and (weights.shape != table.shape[:1] or weights.dtype.kind != "f"):
        raise WeightsError(f"{folder}: weights must be {len(table):,} numbers, one for each token, not {weights.dtype} "
                           f"{list(weights.shape)}")
    if table.dtype == np.int8 and _is_scale(table, weights):
        scale = np.ones(len(table)) if weights is None else weights
        return {"embeddings.word": table, "embeddings.word_scale": scale.astype(np.float32)}
    if weights is not None or table.dtype == np.int8:
        table = (table if table.dtype == np.int8 else widened(table)).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # a later check reports infinity and NaN
            table = table if weights is None else table * weights.astype(np.float32)[:, None]
    return {"embeddings.word": table}


def _is_scale(table: np.ndarray, weights: np.ndarray | None) -> bool:
    """Return whether weights can be the scales of an int8 table: all above 0, for a table without the code -128."""
    return bool(table.min() > -128) and (weights is None or bool((weights > 0).all()))


def _truncated(text: TextConfig) -> TextConfig:
    """Return the text settings of StaticEmbedding, which truncates texts if the tokenizer.json says so."""
    truncation = read_tokenizer(text.tokenizer_json).get("truncation")
    limit = truncation.get("max_length") if isinstance(truncation, dict) else None
    return replace(text, special_tokens=False, feeds_token_types=False, max_seq_length=limit)


def _text_of_model2vec(folder: ModelFolder, text: TextConfig) -> TextConfig:
    """Return the text settings of model2vec: cut by characters, truncated, then without the tokens of unknown words."""
    values, tokenizer = folder.read_object(_CONFIG), read_tokenizer(text.tokenizer_json)
    limit, scaled = values.get("max_length", _TOKENS), values.get("normalize", False)
    if (limit is not None and (type(limit) is not int or limit < 1)) or type(scaled) is not bool:
        raise WeightsError(f"config.json: max_length must be a number of tokens or null, and normalize true or false, "
                           f"not {shown(limit)} and {shown(scaled)}")
    vocabulary = ids_of_tokens(tokenizer)
    # model2vec cuts a text to limit * median length of a token before it tokenizes it, for speed, so that a text of
    # long words may keep fewer tokens than are allowed.
    most = None if limit is None else max(1, limit * int(median(map(len, vocabulary))))
    return replace(text, special_tokens=False, feeds_token_types=False, max_seq_length=limit, max_characters=most,
                   normalize=scaled, left_out_id=_unknown_id(tokenizer, vocabulary))


def _unknown_id(tokenizer: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    """Return the id of the token for unknown words; None for a tokenizer without one."""
    model = tokenizer["model"]
    if isinstance(model["vocab"], list):
        return model.get("unk_id")
    unknown = model.get("unk_token")
    return vocabulary.get(unknown) if isinstance(unknown, str) else None
