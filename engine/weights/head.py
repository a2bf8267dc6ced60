"""Task heads in memory: the description of a head, and its arrays, float32 in every precision of the encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import WeightsError, listed, shown
from ..model.config import ModelConfig
from ..model.head import HeadConfig


@dataclass(frozen=True, eq=False)
class Head:
    """One head of an encoder."""

    config: HeadConfig
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    """float32 arrays by name; `HeadConfig.shapes` states their names and shapes. A tied map reads the word table."""

    def checked(self, config: ModelConfig, source: str) -> Head:
        """Return the head with contiguous, aligned arrays; raises `WeightsError` unless it fits the encoder.

        config: of the encoder. source: the beginning of the message.
        """
        try:
            shapes = self.config.shapes(config.hidden_size, (config.vocab_size, config.table_width))
        except WeightsError as error:
            raise WeightsError(f"{source}: {error}") from None
        problems = [f"missing {name}, shape {list(shapes[name])}" for name in shapes if name not in self.weights]
        problems += [f"unexpected {listed([name])}" for name in self.weights if name not in shapes]
        for name, shape in shapes.items():
            array = self.weights.get(name)
            if array is None:
                continue
            if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
                described = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
                problems.append(f"{name} is {described}, expected float32 {list(shape)}")
            elif not np.isfinite(array).all():
                problems.append(f"{name} holds NaN or infinity")
        if problems:
            raise WeightsError(f"{source}: the head {self.config.task} does not fit the encoder:\n  "
                               + "\n  ".join(problems))
        weights = {name: np.require(array, requirements=["C", "A"]) for name, array in self.weights.items()}
        # `np.require` returns an array itself where it need not copy it.
        same = all(weights[name] is array for name, array in self.weights.items())
        return self if same else replace(self, weights=weights)


def check_heads(heads: Any, config: ModelConfig, source: str) -> tuple[Head, ...]:
    """Return the heads of an encoder, checked; raises `WeightsError` for anything else."""
    if not isinstance(heads, tuple) or not all(isinstance(head, Head) and isinstance(head.config, HeadConfig)
                                               and isinstance(head.weights, Mapping) for head in heads):
        raise WeightsError(f"{source}: heads must be a tuple of Head, not {shown(heads)}")
    tasks = tasks_of(heads)
    if len(set(tasks)) < len(tasks):
        raise WeightsError(f"{source}: two heads have one task: {listed(tasks)}")
    return tuple(head.checked(config, source) for head in heads)


def tasks_of(heads: Sequence[Head]) -> list[str]:
    """Return the task of each head."""
    return [head.config.task for head in heads]
