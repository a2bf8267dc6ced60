"""Merge one of the LoRA adapters that a checkpoint holds beside its weights (Hu et al. 2021, arXiv 2106.09685).

An adapter of a linear map adds alpha / r * B A to its weight [out, in], with A [r, in] and B [out, r]. An adapter of a
table adds alpha / r * A B, with A [rows, r] and B [r, D]. The files hold A and B of all tasks in one tensor each, with
the task as the first axis.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..weights.bfloat16 import widened
from .fields import integer, number

LOG = logging.getLogger("engine")

_ROWS = 2**14
"""How many rows of a weight are merged at one time, to bound the memory: jina-embeddings-v3 has a table of 250,002."""


def task_names(values: dict[str, Any]) -> list[str]:
    """Return the tasks with an adapter that a config.json lists, in the order of the tensors' first axis."""
    names = values.get("lora_adaptations") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WeightsError(f"lora_adaptations must be a list of names, not {shown(names)}")
    return names


def merge_adapters(values: dict[str, Any], weights: dict[str, np.ndarray], task: str | None) -> dict[str, np.ndarray]:
    """Return the weights with the adapter of a task merged into them, and without the tensors of adapters.

    values: the contents of config.json. weights: by the names of `Names.rename`; the merged ones become float32. For
    task=None no adapter is merged, as in the model's own code. Raises `InputError` for an unknown task and
    `WeightsError` for adapters that do not fit.
    """
    tasks, parts = task_names(values), ("lora_A", "lora_B")
    adapters = {name.rpartition(" ")[0] for name in weights if name.endswith(parts)}
    merged = {name: array for name, array in weights.items() if not name.endswith(parts)}
    if task is None:
        if tasks:
            LOG.warning("the model is loaded without an adapter. For one of its tasks, %s, pass it to "
                        "Engine.load(path, task=...)", listed(tasks))
        return merged
    if not tasks or not adapters:
        raise UnsupportedError(f"the model has no adapters, so that task={shown(task)} has no effect; leave it out")
    if task not in tasks:
        raise InputError(f"the model has no adapter for the task {shown(task)}; its tasks are {listed(tasks)}")
    rank = integer(values, "lora_rank", 4)
    scale = number(values, "lora_alpha", 1.0) / max(1, rank)
    if not math.isfinite(scale):
        raise WeightsError(f"lora_alpha must be a finite number, not {shown(values.get('lora_alpha'))}")
    for name in sorted(adapters):
        a, b = (weights.get(f"{name} {part}") for part in parts)
        weight = merged.get(name)
        left, right = (a, b) if name.startswith("embeddings.") else (b, a)      # a table adds A B, a linear map B A
        rows, columns = (0, 0) if weight is None or weight.ndim != 2 else weight.shape
        shapes = (len(tasks), rows, rank), (len(tasks), rank, columns)
        if weight is None or left is None or right is None or (left.shape, right.shape) != shapes:
            stated = [None if array is None else array.shape for array in (weight, left, right)]
            raise WeightsError(f"the adapters of {name} must be [{len(tasks)}, {rows}, {rank}] and [{len(tasks)}, "
                               f"{rank}, {columns}] beside a weight [{rows}, {columns}], not {shown(stated)}")
        index = tasks.index(task)
        merged[name] = _merge(weight, widened(left[index]), widened(right[index]) * np.float32(scale))
    return merged


def _merge(weight: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return weight [R, C] + left [R, r] right [r, C] in float32.

    Rank by rank, and not by a matrix product, whose order of additions would depend on the CPU.
    """
    merged = np.empty(weight.shape, np.float32)
    for start in range(0, len(weight), _ROWS):
        rows = slice(start, start + _ROWS)
        change = np.zeros((len(left[rows]), right.shape[1]), np.float32)
        for column, row in zip(left[rows].T, right, strict=True):
            change += column[:, None] * row
        merged[rows] = widened(weight[rows]) + change
    return merged
