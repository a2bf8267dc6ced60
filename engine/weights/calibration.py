"""The calibrations of a model, fitted to labelled texts: temperatures, biases, and the scores of right answers.

A `.npz` holds the arrays as calibration.TASK.NAME. `engine.uncertainty` has the formulas that fit and use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import WeightsError, listed, shown
from ..model.head import HeadConfig

ARRAYS_OF: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "classify": (("temperature", "lac", "aps", "classes", "confidences"), ("bias",)),
    "tag": (("temperature",), ("bias",)),
    "rank": (("temperature",), ("bias", "gaps")),
    "answer": (("losses", "impossible"), ()),
    "score": (("temperature",), ()),
}
"""The methods that can be calibrated, with the arrays that a calibration must have, and those that it may have."""
ARRAYS: dict[str, tuple[str, str]] = {
    "temperature": ("float32", "1"), "bias": ("float32", "K"), "lac": ("float32", "n"), "aps": ("float32", "n"),
    "classes": ("uint16", "n"), "confidences": ("float32", "n"), "gaps": ("float32", "n"), "losses": ("float32", "n"),
    "impossible": ("uint8", "1")}
"""The dtype and the length of each array: 1, K outputs of the head, or n labelled texts, queries or questions."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one method of a model."""

    task: str
    """One of `ARRAYS_OF`."""
    arrays: Mapping[str, np.ndarray]
    """The arrays by name, with the dtypes and lengths in `ARRAYS`:

    temperature     [1]: logits are divided by it
    bias            [K]: then added to the logits of each class
    lac, aps        [n]: the conformal score of the right class of each labelled text that no temperature was fitted to
    classes         [n]: the number of the right class of each of these texts
    confidences     [n]: the calibrated probability of the best class of each of these texts
    gaps            [n]: for each labelled query, the logit of its first document minus that of its first relevant one
    losses          [n]: for each labelled question, 1 - the score of its right answer; infinity if it was not found
    impossible      [1]: 1 if "no answer" was right for some questions, so that it is one of the answers, otherwise 0
    """

    def __repr__(self) -> str:
        """Return the task, the temperature, and the shapes of the other arrays."""
        sizes = ", ".join(f"{name} {list(array.shape)}" for name, array in self.arrays.items() if array.size > 1)
        fitted = f", temperature {self.temperature:.4g}" if "temperature" in self.arrays else ""
        return f"<Calibration: {self.task}{fitted}{', ' * bool(sizes)}{sizes}>"

    @property
    def temperature(self) -> float:
        """Return the number by which logits are divided; 1 if it has none."""
        return float(self.arrays["temperature"][0]) if "temperature" in self.arrays else 1.0

    @property
    def bias(self) -> np.ndarray | None:
        """Return the numbers that are added to the logits of the classes after the division; None for no bias."""
        return self.arrays.get("bias")

    def checked(self, outputs: Mapping[str, int], source: str) -> Calibration:
        """Return the calibration with contiguous arrays; raises `WeightsError` unless it fits the model.

        outputs: the number of outputs of the model for each task that it has. source: the beginning of the message.
        """
        if not isinstance(self.task, str) or self.task not in ARRAYS_OF or not isinstance(self.arrays, Mapping):
            raise WeightsError(f"{source}: a calibration is for one of {', '.join(ARRAYS_OF)}, and has arrays by name, "
                               f"not {shown(self.task)} and {shown(self.arrays)}")
        where = f"{source}: the calibration of {self.task}"
        if self.task not in outputs:
            raise WeightsError(f"{where} belongs to another model: this one has {listed(outputs) or 'no heads'}")
        needed, optional = ARRAYS_OF[self.task]
        names = [*needed, *(name for name in optional if name in self.arrays)]
        if set(names) != self.arrays.keys():
            raise WeightsError(f"{where} must have the arrays {listed(needed)}"
                               f"{' and perhaps ' * bool(optional)}{listed(optional)}, not {listed(self.arrays)}")
        lengths = {"1": 1, "K": outputs[self.task], "n": self._count(names)}
        for name in names:
            self._check_array(name, lengths[ARRAYS[name][1]], where)
        if "classes" in self.arrays and self.arrays["classes"].max() >= outputs[self.task]:
            raise WeightsError(f"{where} has texts of the class {self.arrays['classes'].max()}, and the head has "
                               f"{outputs[self.task]} classes")
        arrays = {name: np.require(self.arrays[name], requirements=["C", "A"]) for name in names}
        same = all(arrays[name] is self.arrays[name] for name in names)
        return self if same else replace(self, arrays=arrays)

    def _count(self, names: list[str]) -> int:
        """Return n, the number of labelled texts, by the first array of that length; -1 without such an array."""
        return next((array.size for name in names if ARRAYS[name][1] == "n"
                     and isinstance(array := self.arrays[name], np.ndarray)), -1)

    def _check_array(self, name: str, length: int, where: str) -> None:
        """Raise `WeightsError` unless an array has its dtype, this length and possible numbers. where: names it."""
        array, dtype = self.arrays[name], ARRAYS[name][0]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (length,) or not length:
            described = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
            raise WeightsError(f"{where}: {name} is {described}, expected {dtype} [{length if length > 0 else 'n'}]")
        may_be_infinite = name == "losses"      # the loss of an answer that was not found
        if np.isnan(array).any() or (not may_be_infinite and not np.isfinite(array).all()):
            raise WeightsError(f"{where}: {name} holds NaN or infinity")
        if name == "temperature" and not array[0] > 0:
            raise WeightsError(f"{where}: the temperature must be above 0, not {array[0]:g}")


def outputs_of(heads: Sequence[HeadConfig], vocab_size: int = 0) -> dict[str, int]:
    """Return, for each task that can be calibrated, the number of outputs.

    heads: of an encoder. vocab_size: of a decoder; 0 for an encoder. A classifier with one output ranks pairs, and so
    can a decoder. A classifier whose outputs are numbers, or labels of which a text may have several, is left out.
    """
    if vocab_size:
        return {"score": vocab_size, "rank": 1}
    outputs = {head.task: head.outputs for head in heads
               if head.task != "classify" or head.outputs == 1 or head.function == "softmax"}
    counts = {task: outputs[task] for task in ARRAYS_OF if task in outputs}
    if counts.get("classify") == 1:
        counts["rank"] = counts.pop("classify")
    return counts


def check_calibrations(calibrations: Any, outputs: Mapping[str, int], source: str) -> tuple[Calibration, ...]:
    """Return the calibrations of a part of a model, checked; raises `WeightsError` for anything else."""
    if not isinstance(calibrations, tuple) or not all(isinstance(one, Calibration) for one in calibrations):
        raise WeightsError(f"{source}: calibrations must be a tuple of Calibration, not {shown(calibrations)}")
    tasks = [one.task for one in calibrations]
    if len(set(map(str, tasks))) < len(tasks):
        raise WeightsError(f"{source}: two calibrations are for one task: {listed(map(str, tasks))}")
    return tuple(one.checked(outputs, source) for one in calibrations)
