"""The input layer of wav2vec 2.0 and HuBERT, from samples to token vectors: convolutions, a map, and positions.

    samples [n] -> convolutions, each with GELU [T, C] -> norm, map [T, D] -> + GELU(positional convolution) [T, D]

A row of a convolution's product is a window of its input. With channels last, a window lies in one piece in memory, so
that windows are views, and no array of all windows is made. The first convolution of 30 s has 96,000 rows of 512
numbers; the layers are therefore computed in parts of time. Baevski et al. (arXiv 2006.11477), section 2; Hsu et al.
(2106.07447).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from ..base.errors import InputError, WeightsError, shown
from ..base.stop import NEVER, Stop
from ..model.config import ACTIVATIONS
from ..model.precision import FORMATS
from .bfloat16 import to_bfloat16
from .modules import ModuleOps

NORMS = ("group", "layer")
"""The norms of the convolutions: "group", of the first one alone, normalizes each channel over the whole recording;
"layer", of every one, normalizes each row."""
PART_BYTES = 2**25
"""About how many bytes the arrays of the largest convolution may take for one part of time."""
_NORM_EPS = 1e-5
"""The default of torch.nn.GroupNorm and LayerNorm, which the norms of the convolutions have."""


class StemOps(ModuleOps, Protocol):
    """The operations that a backend provides for this input layer. `linear` takes weights in bfloat16, too."""

    def activate(self, activation: str, x: np.ndarray) -> np.ndarray:
        """Return activation(x) for x of any shape."""


@dataclass(frozen=True, eq=False)
class Waveform:
    """Convolutions of samples, a linear map, and a grouped convolution of the result, which is added to it.

    arrays, float32, but for weights in bfloat16 (uint16) where `in_precision` made them; l counts convolutions from 0:
        conv_l.weight       [C_l, k_l, C_(l-1)], where C_(-1) is 1;  conv_l.bias [C_l], or no bias
        conv_norm_l.weight  [C_l], and .bias [C_l]: of l = 0 alone for the norm "group"
        norm.weight         [C], and .bias [C]: of the rows after the last convolution; or no norm
        projection.weight   [D, C], and .bias [D]
        positions.weight    [D, K, D / groups], and .bias [D]
    """

    arrays: Mapping[str, np.ndarray]
    strides: tuple[int, ...]
    """The stride of each convolution."""
    norm: str
    """One of `NORMS`."""
    eps: float
    """The epsilon of the norm after the last convolution."""
    activation: str = "gelu"

    kind: ClassVar[str] = "waveform"
    given: ClassVar[str] = "input_values"
    """The argument of `Engine.forward` with the inputs."""
    expected: ClassVar[str] = "floats [n]"
    """The form of one input, for messages and documents."""

    @property
    def weight(self) -> np.ndarray:
        """The linear map to the token vectors, [D, C]."""
        return self.arrays["projection.weight"]

    @property
    def step(self) -> int:
        """The samples from one token to the next."""
        return math.prod(self.strides)

    @property
    def reach(self) -> int:
        """The number of samples from which one token is computed."""
        return self._samples_for(1)

    def tokens(self, samples: int) -> int:
        """Return how many tokens a recording of this number of samples has."""
        count = samples
        for kernel, stride in zip(self._kernels, self.strides, strict=True):
            count = max(0, count - kernel + stride) // stride
        return count

    @property
    def _kernels(self) -> list[int]:
        """The width of the kernel of each convolution, in rows of its input."""
        return [self.arrays[f"conv_{i}.weight"].shape[1] for i in range(len(self.strides))]

    def _samples_for(self, tokens: int) -> int:
        """Return from how many samples this number of consecutive tokens is computed."""
        count = tokens
        for kernel, stride in zip(self._kernels[::-1], self.strides[::-1], strict=True):
            count = (count - 1) * stride + kernel
        return count

    def in_precision(self, precision: str) -> Waveform:
        """Return the input layer for a model whose layers run in this precision.

        Its weights become bfloat16 unless the layers have float32, except for the weights of the first convolution,
        which reads the samples themselves, and of the norms.
        """
        if FORMATS[precision].stored == "float32":
            return self
        float32_names = {"conv_0.weight", "norm.weight", *(f"conv_norm_{i}.weight" for i in range(len(self.strides)))}
        arrays = {name: to_bfloat16(array) if name.endswith(".weight") and name not in float32_names else array
                  for name, array in self.arrays.items()}
        return replace(self, arrays=arrays)

    def embed(self, samples: np.ndarray, ops: StemOps, stop: Stop = NEVER) -> np.ndarray:
        """Return the token vectors of samples [n]: float32 [T, D]; raises `InputError` for less than one token.

        stop: is asked between parts, and raises an error to end the work early.
        """
        count = self.tokens(len(samples))
        if not count:
            raise InputError(f"a recording must have at least {self.reach} samples for this model, which are one "
                             f"token, and not {len(samples)}")
        first = self._fold_norm_into_first(samples)     # before the parts: its norm is over the whole recording
        x = np.empty((count, self.weight.shape[0]), np.float32)
        part = self._tokens_of_part()
        for start in range(0, count, part):
            stop.check()
            end = min(start + part, count)
            begin = start * self.step
            rows = self._convolve(samples[begin : begin + self._samples_for(end - start), None], first, ops)
            x[start:end] = self._project(rows, ops)
        stop.check()
        return self._with_positions(x, ops)

    def _tokens_of_part(self) -> int:
        """Return how many tokens are computed together, so that the arrays of the largest layer fit `PART_BYTES`."""
        rows, most = self.step, 1       # most: numbers of a layer's result for each token
        for i, stride in enumerate(self.strides):
            rows //= stride         # the rows of this layer for each token
            most = max(most, rows * len(self.arrays[f"conv_{i}.weight"]))
        arrays = 3      # the input and the result of a layer, or the three results of a layer with a norm
        return max(1, PART_BYTES // (4 * arrays * most))

    def _fold_norm_into_first(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the weight [C, k, 1] and the bias [C] of the first convolution, with its norm over all windows.

        The result of channel c is w_c x_t + b_c, so its mean is w_c m + b_c and its variance w_c S w_c, where m and S
        are the mean and the covariance of the windows x_t of k samples. The norm is then a scale and a shift of w_c.
        """
        weight, bias = self.arrays["conv_0.weight"], self.arrays.get("conv_0.bias")
        if self.norm != "group":
            return weight, bias
        kernel = weight.shape[1]
        windows = _windows(np.ascontiguousarray(samples, np.float64)[:, None], kernel, self.strides[0])
        columns = [np.ascontiguousarray(windows[:, i]) for i in range(kernel)]
        means = [column.mean() for column in columns]
        w = weight[:, :, 0].astype(np.float64)
        mean, variance = np.zeros(len(w)), np.zeros(len(w))
        for i in range(kernel):
            mean += w[:, i] * means[i]
            for j in range(i, kernel):
                covariance = ((columns[i] - means[i]) * (columns[j] - means[j])).mean()
                variance += w[:, i] * w[:, j] * (covariance if i == j else 2 * covariance)
        scale = self.arrays["conv_norm_0.weight"] / np.sqrt(np.maximum(variance, 0) + _NORM_EPS)
        shift = self.arrays["conv_norm_0.bias"] - mean * scale      # a bias of the convolution is in the mean, too
        return (w * scale[:, None]).astype(np.float32)[:, :, None], shift.astype(np.float32)

    def _convolve(self, x: np.ndarray, first: tuple[np.ndarray, np.ndarray | None], ops: StemOps) -> np.ndarray:
        """Return the rows [t, C] after the last convolution for samples x [n, 1].

        first: weight and bias of the first convolution, into which `_fold_norm_into_first` has folded the norm over the
        whole recording. The weights of each convolution are [channels, kernel, channels of its input].
        """
        for i, stride in enumerate(self.strides):
            weight, bias = first if i == 0 else (self.arrays[f"conv_{i}.weight"], self.arrays.get(f"conv_{i}.bias"))
            rows = _windows(np.ascontiguousarray(x), weight.shape[1], stride)
            has_norm = self.norm == "layer"
            x = ops.linear(rows, weight.reshape(len(weight), -1), bias,
                           activation=None if has_norm else self.activation, residual=None)
            if has_norm:
                x = ops.layer_norm(x, self.arrays[f"conv_norm_{i}.weight"], self.arrays[f"conv_norm_{i}.bias"],
                                   _NORM_EPS)
                x = ops.activate(self.activation, x)
        return x

    def _project(self, rows: np.ndarray, ops: StemOps) -> np.ndarray:
        """Return rows [t, C] of the last convolution as token vectors [t, D], after a norm if the model has one."""
        if "norm.weight" in self.arrays:
            rows = ops.layer_norm(rows, self.arrays["norm.weight"], self.arrays["norm.bias"], self.eps)
        return ops.linear(rows, self.weight, self.arrays["projection.bias"], activation=None, residual=None)

    def _with_positions(self, x: np.ndarray, ops: StemOps) -> np.ndarray:
        """Return x [T, D] + activation(grouped convolution of x, padded with zeros at both ends)."""
        weight, bias = self.arrays["positions.weight"], self.arrays["positions.bias"]
        (D, kernel, width), before = weight.shape, weight.shape[1] // 2     # width: of a group; before: zeros in front
        padded = np.zeros((len(x) + kernel - 1, width), np.float32)
        result = np.empty_like(x)
        for start in range(0, D, width):
            group = slice(start, start + width)
            padded[before : before + len(x)] = x[:, group]
            result[:, group] = ops.linear(_windows(padded, kernel, 1), weight[group].reshape(width, -1), bias[group],
                                          activation=self.activation, residual=np.ascontiguousarray(x[:, group]))
        return result

    def document(self) -> dict[str, Any]:
        """Return the settings, without the arrays, as a plain dictionary for a file; `make_waveform` reads it."""
        return {"kind": self.kind, "strides": list(self.strides), "norm": self.norm, "eps": self.eps,
                "activation": self.activation}


def _windows(x: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """Return windows of `kernel` rows of contiguous x [n, C], every `stride` rows: a view [windows, kernel * C]."""
    n, C = x.shape
    item = x.itemsize       # not x.strides, which may be 0 along an axis of length 1
    return np.lib.stride_tricks.as_strided(x, ((n - kernel) // stride + 1, kernel * C), (stride * C * item, item))


def make_waveform(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Waveform:
    """Return the input layer of a document, made by `Waveform.document`, and its arrays by name.

    Raises `WeightsError` unless they fit one another.
    """
    strides, norm, eps, activation = (document.get(name) for name in ("strides", "norm", "eps", "activation"))
    if document.keys() != {"kind", "strides", "norm", "eps", "activation"} or not (
            isinstance(strides, list) and strides
            and all(type(stride) is int and 1 <= stride <= 2**16 for stride in strides) and norm in NORMS
            and activation in ACTIVATIONS and type(eps) is float and 0.0 <= eps < 1.0):
        raise WeightsError(f"a stem of the kind waveform must have strides, a norm of {' or '.join(NORMS)}, eps and an "
                           f"activation of {', '.join(ACTIVATIONS)}, not {shown(document)}")
    shapes = _expected_shapes(len(strides), norm, arrays)
    if missing := [name for name in shapes if name not in arrays]:
        raise WeightsError(f"the stem lacks the arrays {', '.join(missing[:20])}")
    if unknown := sorted(arrays.keys() - shapes.keys()):
        raise WeightsError(f"the stem has arrays that a stem of the kind waveform has not: {', '.join(unknown[:20])}")
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float32 or not array.size or not np.isfinite(array).all():
            raise WeightsError(f"the stem's {name} must be finite numbers, float32 {list(shape)}, not {array.dtype} "
                               f"{list(array.shape)}")
    return Waveform({name: np.ascontiguousarray(array) for name, array in arrays.items()}, tuple(strides), norm, eps,
                    activation)


def _expected_shapes(layers: int, norm: str, arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Return the shape that each array must have, by name, from the sizes of the weights.

    layers: the number of convolutions. norm: one of `NORMS`.
    """

    def sizes(name: str, axes: int) -> tuple[int, ...]:
        """Return the shape of an array with this number of axes; zeros if it is missing."""
        if (array := arrays.get(name)) is None:
            return (0,) * axes
        if array.ndim != axes:
            raise WeightsError(f"the stem's {name} must have {axes} axes, not the shape {list(array.shape)}")
        return array.shape

    shapes: dict[str, tuple[int, ...]] = {}
    channels = 1        # of the input of the next convolution; samples have one
    for i in range(layers):
        size, kernel, _ = sizes(f"conv_{i}.weight", 3)
        shapes[f"conv_{i}.weight"] = size, kernel, channels
        channels = size
        if f"conv_{i}.bias" in arrays:
            shapes[f"conv_{i}.bias"] = (size,)
        if i == 0 or norm == "layer":
            shapes |= {f"conv_norm_{i}.weight": (size,), f"conv_norm_{i}.bias": (size,)}
    if "norm.weight" in arrays or "norm.bias" in arrays:
        shapes |= {"norm.weight": (channels,), "norm.bias": (channels,)}
    width = sizes("projection.weight", 2)[0]
    _, kernel, of_group = sizes("positions.weight", 3)
    if "positions.weight" in arrays and (not of_group or width % of_group):
        raise WeightsError(f"the stem's positions.weight must be [{width}, K, a divisor of {width}], not "
                           f"{list(sizes('positions.weight', 3))}")
    return shapes | {"projection.weight": (width, channels), "projection.bias": (width,),
                     "positions.weight": (width, kernel, of_group), "positions.bias": (width,)}
