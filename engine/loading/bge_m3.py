"""Read the two linear maps that BGE-M3 has beside its encoder: Chen et al. 2024 (arXiv 2402.03216), section 3.2.

    colbert_linear.pt   weight [D', D], bias [D']: x to the vector of a token, for late interaction
    sparse_linear.pt    weight [1, D], bias [1]: x to the number of a token, for sparse vectors

The rest of the folder is one of sentence-transformers, which does not know these files; FlagEmbedding reads them.
"""

from __future__ import annotations

import numpy as np

from ..base.errors import WeightsError
from ..files.folder import ModelFolder
from ..files.torch_checkpoint import read_checkpoint
from ..model.head import HeadConfig, HeadLinear, HeadNormalize, Scatter
from ..model.text_config import TextConfig
from ..weights.bfloat16 import widened
from ..weights.head import Head
from .head_tokens import token_ids_of

_VECTORS, _NUMBERS = "colbert_linear", "sparse_linear"
FILES = (f"{_VECTORS}.pt", f"{_NUMBERS}.pt")
"""The files with the linear map to the vectors of tokens, and with the one to the numbers of sparse vectors."""
_UNCOUNTED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""The special tokens that sparse vectors leave out, by their keys in the files of a tokenizer."""


def read_bge_m3(folder: ModelFolder, text: TextConfig, words: int, memory: str) -> tuple[Head, ...]:
    """Return the heads in the files of a folder: sparse vectors, vectors of tokens, both, or none.

    text: the text settings of the encoder. words: the number of ids of the vocabulary. Raises `WeightsError`.
    """
    heads = []
    if (arrays := _arrays(folder, _NUMBERS, memory)) is not None:
        with folder.within():       # an error names the folder
            scatter = Scatter(words, token_ids_of(text, folder, _UNCOUNTED))
            steps = HeadLinear(_NUMBERS, 1, activation="relu"), scatter
            config = HeadConfig("encode_sparse", rows="all", steps=steps)
        heads.append(_head(config, _NUMBERS, arrays))
    if (arrays := _arrays(folder, _VECTORS, memory)) is not None:
        with folder.within():
            config = HeadConfig("encode_tokens", rows="rest",      # all tokens but the first
                                steps=(HeadLinear(_VECTORS, len(arrays["weight"])), HeadNormalize()))
        heads.append(_head(config, _VECTORS, arrays))
    return tuple(heads)


def _arrays(folder: ModelFolder, name: str, memory: str) -> dict[str, np.ndarray] | None:
    """Return the weight and the bias of a file in float32; None if it is not there."""
    file = f"{name}.pt"
    if not folder.has(file):
        return None
    arrays = read_checkpoint(folder.path / file, memory=memory)
    if arrays.keys() != {"weight", "bias"} or arrays["weight"].ndim != 2:
        tensors = ", ".join(f"{key} {list(array.shape)}" for key, array in list(arrays.items())[:10])
        raise WeightsError(f"{folder.label(file)}: expected the state dict of a torch.nn.Linear, weight [out, in] and "
                           f"bias [out], not {tensors}")
    return {key: widened(array) for key, array in arrays.items()}


def _head(config: HeadConfig, name: str, arrays: dict[str, np.ndarray]) -> Head:
    """Return a head of one linear map with this name."""
    return Head(config, {f"{name}.{key}": array for key, array in arrays.items()})
