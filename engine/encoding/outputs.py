"""Check the `output_...` arguments of `Engine.forward`, and return the arrays they ask for in the caller's form."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import InputError, shown
from ..model.config import ModelConfig
from ..programs.observe import AttentionHead, Observed
from .input_shape import InputShape

Form: TypeAlias = "np.ndarray | list[np.ndarray]"
"""An array for an input of arrays, with zeros at padding, or a list with one array for each sequence."""


@dataclass(frozen=True, eq=False)
class ForwardOutput:
    """The result of `Engine.forward` when the caller asks for more than token vectors; every number is float32.

    The names are those of transformers. The keys of the dictionaries are the numbers that the caller asked for.
    """

    last_hidden_state: Form
    """The token vectors: [B,T,D], or a list of [T_i,D]."""
    hidden_states: dict[int, Form]
    """By layer, in the form of the token vectors: 0 for the embeddings, l for the result of layer l, L for the last."""
    attentions: dict[AttentionHead, Form]
    """By (layer, head), attention weights: [B,T,T], or a list of [T_i,T_i]. Row t has the weights of token t's keys."""
    entropies: dict[AttentionHead, Form]
    """By (layer, head), -sum w ln w of each token's attention weights: [B,T], or a list of [T_i].

    It is 0 for a token that reads one token, and ln n for a token that reads n tokens evenly.
    """


@dataclass(frozen=True)
class WantedOutputs:
    """The arrays that a caller asked for, as {the caller's number of a layer or head: its number counted from 0}.

    The two differ for negative numbers, which count from the end.
    """

    layers: dict[int, int]
    weights: dict[AttentionHead, AttentionHead]
    entropy: dict[AttentionHead, AttentionHead]
    depth: int
    """L, the number of layers."""

    @property
    def observed(self) -> Observed:
        """The arrays to ask the plan for, each once, as -1 and L - 1 may name the same layer: all but the result of the
        last layer, which the plan always returns."""
        return Observed(tuple(dict.fromkeys(layer for layer in self.layers.values() if layer < self.depth)),
                        tuple(dict.fromkeys(self.weights.values())), tuple(dict.fromkeys(self.entropy.values())))

    def output(self, form: InputShape, arrays: list[np.ndarray]) -> ForwardOutput:
        """Return the arrays of a plan in the caller's form. arrays: the token vectors, then those of `observed`."""
        observed, following = self.observed, iter(arrays)
        hidden = {self.depth: form.unpack(next(following))}
        hidden |= {layer: form.unpack(next(following)) for layer in observed.hidden}
        weights = {head: form.unpack_weights(next(following)) for head in observed.weights}
        entropy = {head: form.unpack(next(following)) for head in observed.entropy}
        return ForwardOutput(hidden[self.depth], {given: hidden[layer] for given, layer in self.layers.items()},
                             {given: weights[head] for given, head in self.weights.items()},
                             {given: entropy[head] for given, head in self.entropy.items()})


def read_asked(config: ModelConfig, hidden_states: Any, attentions: Any, entropies: Any) -> WantedOutputs | None:
    """Check the arguments `output_...` of `Engine.forward`, and return the outputs that they ask for; None for none."""
    if all(value is None or value is False for value in (hidden_states, attentions, entropies)):
        return None
    L, H = config.num_layers, config.num_heads
    if isinstance(hidden_states, (int, np.integer)) and not isinstance(hidden_states, bool):
        hidden_states = [hidden_states]
    layers = [_read_number(entry, L + 1, "output_hidden_states", f"layers from 0 to {L}")
              for entry in _read_entries("output_hidden_states", hidden_states, list(range(L + 1)))]
    return WantedOutputs({layer: layer % (L + 1) for layer in layers},      # -1 % n is n - 1, the last one
                         weights=read_attention_heads("output_attentions", attentions, L, H),
                         entropy=read_attention_heads("output_entropies", entropies, L, H), depth=L)


def read_attention_heads(name: str, value: Any, L: int, H: int) -> dict[AttentionHead, AttentionHead]:
    """Return {the caller's (layer, head): (layer, head) counted from 0} of the heads that an argument asks for.

    value: the argument: True for all, None or False for none, or pairs (layer, head) of L layers with H heads. Raises
    `InputError` for anything else.
    """
    everything = [(layer, head) for layer in range(L) for head in range(H)]
    expected = f"pairs (layer, head) with layers from 0 to {L - 1} and heads from 0 to {H - 1}"
    heads: dict[AttentionHead, AttentionHead] = {}
    for entry in _read_entries(name, value, everything):
        pair = tuple(entry) if isinstance(entry, (tuple, list, np.ndarray)) else ()
        if len(pair) != 2:
            raise InputError(f"{name} must be True or {expected}, such as [(0, 0)]; {shown(entry)} is no pair")
        given = _read_number(pair[0], L, name, expected), _read_number(pair[1], H, name, expected)
        heads[given] = given[0] % L, given[1] % H       # numbers below 0 count from the end
    return heads


def _read_entries(name: str, value: Any, everything: list[Any]) -> list[Any]:
    """Return the entries of an argument as a list; True stands for `everything`, and None and False for no entry."""
    if value is None or value is False:
        return []
    if value is True:
        return everything
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be True, None or a list, not {shown(value)}")
    return list(value)


def _read_number(value: Any, count: int, name: str, expected: str) -> int:
    """Return a number of the caller as an int from -count to count - 1; raises `InputError` for any other value."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not -count <= number < count:
        raise InputError(f"{name} must be True or {expected} (or negative, from the end); got {shown(value)}")
    return number
