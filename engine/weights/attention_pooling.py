"""One vector for an image by attention from a learned query: the head of SigLIP's image encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from ..base.errors import WeightsError, shown
from ..model.config import ACTIVATIONS
from .modules import ModuleOps, softmax


@dataclass(frozen=True, eq=False)
class AttentionPooling:
    """Attention of H heads from one learned query to all tokens, and a feed-forward network beside its result.

    Zhai et al. 2023 (arXiv 2303.15343) and Lee et al. 2018 (1810.00825). The query and the map of the keys are one map
    of the tokens to their scores, because the query is the same for all images.
    """

    scores: np.ndarray
    """float32 [H, D]: the product with a token x gives its score in each head."""
    value: np.ndarray
    """float32 [D, D]."""
    value_bias: np.ndarray
    output: np.ndarray
    """float32 [D, D]."""
    output_bias: np.ndarray
    norm: np.ndarray
    """float32 [D], of the LayerNorm before the feed-forward network."""
    norm_bias: np.ndarray
    up: np.ndarray
    """float32 [F, D]."""
    up_bias: np.ndarray
    down: np.ndarray
    """float32 [D, F]."""
    down_bias: np.ndarray
    eps: float = 1e-6
    """Of the LayerNorm."""
    activation: str = "gelu_tanh"
    """The activation of the feed-forward network, one of `ACTIVATIONS`."""

    def __call__(self, tokens: np.ndarray, cu_seqlens: Sequence[int], ops: ModuleOps) -> np.ndarray:
        """Return a vector for each of B images, float32 [B, D], from the token vectors [N, D] of all, in order.

        cu_seqlens: the index of the first token of each image, and N.
        """
        (heads, width), images = self.scores.shape, len(cu_seqlens) - 1
        scores = ops.linear(tokens, self.scores, None, activation=None, residual=None)
        mixed = np.empty((images, heads, width), np.float32)    # the mean of the tokens by the weights of each head
        for i, (first, last) in enumerate(pairwise(cu_seqlens)):
            weights = np.ascontiguousarray(softmax(scores[first:last].T))
            mixed[i] = ops.linear(weights, np.ascontiguousarray(tokens[first:last].T), None, activation=None,
                                  residual=None)
        values = ops.linear(mixed.reshape(-1, width), self.value, self.value_bias, activation=None, residual=None)
        # `values` has all D values of the mean of each head, [B, H, H, D / H]; head h keeps its own part h of them.
        own_values = values.reshape(images, heads, heads, width // heads)[:, np.arange(heads), np.arange(heads)]
        x = ops.linear(own_values.reshape(images, width), self.output, self.output_bias, activation=None, residual=None)
        hidden = ops.linear(ops.layer_norm(x, self.norm, self.norm_bias, self.eps), self.up, self.up_bias,
                            activation=self.activation, residual=None)
        return ops.linear(hidden, self.down, self.down_bias, activation=None, residual=x)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of their fields."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def document(self) -> dict[str, Any]:
        """Return the settings, without the arrays, as a plain dictionary for a file; `make_pooling` reads it."""
        return {"eps": self.eps, "activation": self.activation}

    def check(self, width: int, source: str) -> None:
        """Raise `WeightsError` unless the arrays fit token vectors of this width. source: begins the message."""
        heads, inner = (np.shape(array)[0] if np.ndim(array) == 2 else 0 for array in (self.scores, self.up))
        shapes = {"scores": (heads, width), "value": (width, width), "output": (width, width), "up": (inner, width),
                  "up_bias": (inner,), "down": (width, inner)}
        for name, array in self.arrays.items():
            shape = shapes.get(name, (width,))
            if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape or (
                    not array.size or not np.isfinite(array).all()):
                described = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
                raise WeightsError(f"{source}: the pooling's {name} must be finite numbers, float32 {list(shape)}, not "
                                   f"{described}")
        if width % heads or self.activation not in ACTIVATIONS or type(self.eps) is not float or not 0 <= self.eps < 1:
            raise WeightsError(f"{source}: the pooling must have heads that divide the width {width}, an eps from 0 to "
                               f"1 and one of the activations {', '.join(ACTIVATIONS)}, not {heads}, "
                               f"{shown(self.eps)} and {shown(self.activation)}")


_ARRAYS = tuple(one.name for one in fields(AttentionPooling) if one.name not in ("eps", "activation"))
"""The fields that hold arrays."""


def make_pooling(document: Any, arrays: Mapping[str, np.ndarray]) -> AttentionPooling:
    """Return the pooling of a document, made by `AttentionPooling.document`, and its arrays by name.

    Raises `WeightsError` for other settings or arrays; `AttentionPooling.check` looks at the shapes.
    """
    if not isinstance(document, dict) or document.keys() != {"eps", "activation"} or arrays.keys() != {*_ARRAYS}:
        raise WeightsError(f"the pooling of a model of images must have eps and activation, and the arrays "
                           f"{', '.join(_ARRAYS)}, not {shown(document)} with {', '.join(sorted(arrays)[:20])}")
    made: Any = AttentionPooling
    return made(**arrays, **document)
