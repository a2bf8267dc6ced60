"""`Look`: the attention of an encoder for one text: entropies of heads, rollout, and pictures; of `Engine.look`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.ops_interface import Ops
from ..encoding.outputs import ForwardOutput
from ..uncertainty.attention import entropy_limits, rollout, shares


@dataclass(frozen=True, eq=False)
class Look:
    """The attention of all layers and heads for one text; docs/uncertainty.md says what one may conclude from it."""

    tokens: list[str]
    """The T tokens as text, special ones included."""
    entropies: NDArray[np.float32]
    """[L, H, T]: the entropy in nats of each token's attention weights, by layer and head."""
    limits: NDArray[np.float32]
    """[L, T]: the largest entropy that each token can have there: log of the keys that it may read."""
    shares: NDArray[np.float32]
    """[L, H, T]: entropies as shares of their limits: 0 for a token that reads one token, 1 for even weights."""
    rollout: NDArray[np.float32]
    """[T, T]: how much of each input token is in the vector of each token after the last layer (Abnar and Zuidema
    2020): rows are vectors, and their sums are 1."""

    @property
    def head_shares(self) -> NDArray[np.float32]:
        """`shares`, the entropies as shares of their limits, averaged over all tokens: [L, H]."""
        return self.shares.mean(axis=2)

    def heads_picture(self, *, title: str = "", as_figure: bool = False) -> Any:
        """Draw `head_shares` as `engine.plot.heads` does: an SVG picture, or a matplotlib figure."""
        from ..uncertainty import plot

        return plot.heads(self.head_shares, title=title, as_figure=as_figure)

    def rollout_picture(self, *, title: str = "", as_figure: bool = False) -> Any:
        """Draw `rollout` as `engine.plot.attention` does: an SVG picture, or a matplotlib figure."""
        from ..uncertainty import plot

        return plot.attention(np.minimum(self.rollout, 1), self.tokens, title=title, as_figure=as_figure)


def make_look(tokens: Sequence[str], output: ForwardOutput, layers: int, heads: int, ops: Ops) -> Look:
    """Return the `Look` of one sequence.

    tokens: as texts. output: has the weights [1][T, T] and entropies [1][T] of each (layer, head). ops: multiplies.
    """
    weights = [np.stack([output.attentions[layer, head][0] for head in range(heads)]) for layer in range(layers)]
    entropies = np.stack([[output.entropies[layer, head][0] for head in range(heads)] for layer in range(layers)])
    limits = np.stack([entropy_limits(of_layer) for of_layer in weights])       # [L, T]; weights: L of [H, T, T]
    shares_of_layers = np.stack([shares(of_layer, limit) for of_layer, limit in zip(entropies, limits, strict=True)])
    # The product of the kernels, whose bits do not depend on the number of threads; NumPy's may.
    rolled = rollout(weights, lambda x, y: ops.linear(x, y, bias=None, activation=None, residual=None))
    return Look(list(tokens), entropies, limits, shares_of_layers, rolled)
