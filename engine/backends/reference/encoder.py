"""A whole forward pass in NumPy, one sequence after the other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ...batch import Batch
from ...config import ModelConfig
from ...parameters import expected_shapes
from ...quantize import widen
from .ops import ACTIVATIONS, attention, layer_norm, linear


class ReferencePlan:
    """See `engine.backends.Plan`. All arithmetic is done in the given dtype, float32 or float64."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: type[np.floating]):
        self.config = config
        self.dtype = dtype
        self.weights = {name: np.asarray(widen(weights, name), dtype) for name in expected_shapes(config)}

    def forward(self, batch: Batch) -> np.ndarray:
        """Token vectors, float32 [N, D]."""
        return self.forward_unrounded(batch).astype(np.float32)

    def forward_unrounded(self, batch: Batch) -> np.ndarray:
        """Token vectors [N, D] in the plan's own dtype."""
        out = np.empty((batch.tokens, self.config.hidden_size), self.dtype)
        for start, end in pairwise(batch.cu_seqlens.tolist()):
            if start < end:
                out[start:end] = self.encode(self.embed(batch, slice(start, end)))
        return out

    def embed(self, batch: Batch, tokens: slice) -> np.ndarray:
        """Word, position and token type rows added up, then normed, as far as the model has them: [T, D]."""
        w, config = self.weights, self.config
        if batch.inputs_embeds is not None:
            x = batch.inputs_embeds[tokens].astype(self.dtype)
        else:
            assert batch.input_ids is not None
            x = w["embeddings.word"][batch.input_ids[tokens]]
        if config.max_positions:
            x = x + w["embeddings.position"][batch.position_ids[tokens]]
        if config.token_types:
            x = x + w["embeddings.token_type"][batch.token_type_ids[tokens]]
        return self.norm(x, "embeddings.norm") if config.embedding_norm else x

    def encode(self, x: np.ndarray) -> np.ndarray:
        """All layers over the embeddings of one sequence: [T, D] -> [T, D]."""
        for i in range(self.config.num_layers):
            x = self.layer(x, f"layers.{i}.")
        return x

    def layer(self, x: np.ndarray, prefix: str) -> np.ndarray:
        """A post-norm layer: norm(x + attention(x)), then norm(x + ffn(x)); [T, D] -> [T, D].

        Vaswani et al. (2017), section 3.1; with the biases and the activation of Devlin et al., "BERT" (2018).
        """
        x = self.norm(x + self.self_attention(x, prefix + "attention."), prefix + "attention.norm")
        up = ACTIVATIONS[self.config.activation](self.linear(x, prefix + "ffn.up"))
        return self.norm(x + self.linear(up, prefix + "ffn.down"), prefix + "ffn.norm")

    def self_attention(self, x: np.ndarray, prefix: str) -> np.ndarray:
        """Every token looks at every token of its sequence, in H heads of width d; [T, D] -> [T, D]."""
        H, d = self.config.num_heads, self.config.head_width
        q, k, v = (
            self.linear(x, prefix + name).reshape(-1, H, d).transpose(1, 0, 2) for name in ("query", "key", "value")
        )
        heads = attention(q, k, v)
        return self.linear(heads.transpose(1, 0, 2).reshape(-1, H * d), prefix + "output")

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """The linear map of that name."""
        return linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """The LayerNorm of that name."""
        return layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"], self.config.norm_eps)
