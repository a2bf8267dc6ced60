"""Input layers ("stems"), which turn images and audio into token vectors: patches, and convolutions of frames.

Every product is `ops.linear`, whose rows do not depend on one another, so that images may share a product without a
change of their bits; each recording has its own products. `waveform.py` has the input layer of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ..base.arguments import as_array
from ..base.errors import InputError, WeightsError, shown
from ..model.positions import resize_matrix
from .modules import LinearOps
from .waveform import PART_BYTES, StemOps, Waveform, make_waveform

RESIZES = ("none", "bicubic", "antialias")
"""Ways to resize the table of positions for an image of another size: not at all, or by bicubic interpolation."""


FIRST_TOKENS = 2
"""The most tokens before the registers and the patches: the class token and the distillation token."""


@dataclass(frozen=True, eq=False)
class CutImage:
    """An image cut into patches of p x p pixels."""

    patches: np.ndarray
    """float32 [patches, C * p * p]."""
    positions: np.ndarray
    """float32 [F + patches, D]: the positions to add to the first tokens and to the patches."""


@dataclass(frozen=True, eq=False)
class Patches:
    """Square patches of an image, each through one linear map, after a class token. Dosovitskiy et al. (2010.11929)."""

    weight: np.ndarray
    """float32 [D, C, p, p]: the map of a patch of p x p pixels."""
    bias: np.ndarray
    """float32 [D]."""
    positions: np.ndarray
    """float32 [F + n * n, D]: added to the first tokens and to the patches, row by row from the top left."""
    first: np.ndarray | None = None
    """float32 [F, D]: the class token, and perhaps the distillation token; None for a model with neither, and F = 0."""
    registers: np.ndarray | None = None
    """float32 [R, D]: tokens between the first tokens and the patches, without positions; None for none."""
    resize: str = "none"
    """One of `RESIZES`; "none" refuses images of another size than n * p."""

    kind: ClassVar[str] = "patches"
    given: ClassVar[str] = "pixel_values"
    """The argument of `Engine.forward` with the inputs."""
    expected: ClassVar[str] = "floats [C,H,W]"
    """The form of one input, for messages and documents."""

    def cut(self, image: np.ndarray) -> CutImage:
        """Return the patches of an image [C, H, W], row by row; raises `InputError` for another shape.

        Pixels on the right and at the bottom that fill no patch are left out.
        """
        C, p, _ = self.weight.shape[1:]
        rows, columns = image.shape[1] // p, image.shape[2] // p
        if image.shape[0] != C or not rows or not columns:
            raise InputError(f"an image must be [{C}, H, W] with H and W of at least {p}, not {list(image.shape)}")
        positions = self._positions(rows, columns, image.shape)
        cut = image[:, : rows * p, : columns * p].reshape(C, rows, p, columns, p).transpose(1, 3, 0, 2, 4)
        return CutImage(np.ascontiguousarray(cut).reshape(rows * columns, -1), positions)

    def embed(self, cuts: Iterable[CutImage], ops: LinearOps) -> list[np.ndarray]:
        """Return the token vectors of images: float32 [F + R + patches, D] each.

        One product has the patches of several images, about `PART_BYTES` of them, because `ops` packs the weights for
        each product anew.
        """
        embedded: list[np.ndarray] = []
        part: list[CutImage] = []
        size = 0
        for cut in cuts:
            part.append(cut)
            size += cut.patches.nbytes
            if size >= PART_BYTES:
                embedded += self._embed_part(part, ops)
                part, size = [], 0
        return embedded + self._embed_part(part, ops)

    def _embed_part(self, part: list[CutImage], ops: LinearOps) -> list[np.ndarray]:
        """Return the token vectors of some images, float32 [F + R + patches, D] each, with one product for all."""
        if not part:
            return []
        F, D = self.first_count, self.weight.shape[0]
        rows = part[0].patches if len(part) == 1 else np.concatenate([cut.patches for cut in part])
        mapped = ops.linear(rows, self.weight.reshape(D, -1), self.bias, activation=None, residual=None)
        no_tokens = np.zeros((0, D), np.float32)
        first, registers = (no_tokens if tokens is None else tokens for tokens in (self.first, self.registers))
        images = np.split(mapped, np.cumsum([len(cut.patches) for cut in part])[:-1])
        return [np.concatenate([first + cut.positions[:F], registers, patches + cut.positions[F:]])
                for cut, patches in zip(part, images, strict=True)]

    @property
    def first_count(self) -> int:
        """The number of first tokens, F."""
        return 0 if self.first is None else len(self.first)

    def _positions(self, rows: int, columns: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the positions [F + rows * columns, D] of an image of this shape, cut into rows x columns patches.

        Raises `InputError` for another size than the model's if its positions are not resized.
        """
        F, p = self.first_count, self.weight.shape[2]
        n = math.isqrt(len(self.positions) - F)     # patches on a side of the images of the training
        if (shape[1], shape[2]) == (n * p, n * p) or (self.resize != "none" and rows == columns == n):
            return self.positions
        if self.resize == "none":
            raise InputError(f"an image must be [{shape[0]}, {n * p}, {n * p}] for this model, not {list(shape)}; "
                             "resize it before")
        down, across = (resize_matrix(n, size, antialias=self.resize == "antialias") for size in (rows, columns))
        grid = self.positions[F:].reshape(n, n, -1).astype(np.float64)
        patches = np.einsum("in,jm,nmd->ijd", down, across, grid).reshape(rows * columns, -1)
        return np.concatenate([self.positions[:F], patches.astype(np.float32)])


@dataclass(frozen=True, eq=False)
class Frames:
    """Two convolutions over the frames of a spectrogram, the second of stride 2. Radford et al. (2212.04356), 2.2."""

    weight: np.ndarray
    """float32 [D, C, 3], of C frequencies."""
    bias: np.ndarray
    """float32 [D]."""
    weight2: np.ndarray
    """float32 [D, D, 3]."""
    bias2: np.ndarray
    """float32 [D]."""
    positions: np.ndarray
    """float32 [P, D]: added to the P tokens of a recording."""

    kind: ClassVar[str] = "frames"
    given: ClassVar[str] = "input_features"
    """The argument of `Engine.forward` with the inputs."""
    expected: ClassVar[str] = "floats [C,T]"
    """The form of one input, for messages and documents."""

    def embed(self, frames: np.ndarray, ops: LinearOps) -> np.ndarray:
        """Return the token vectors of a spectrogram [C, T], float32 [ceil(T / 2), D]; raises `InputError`."""
        C, P = self.weight.shape[1], len(self.positions)
        if frames.shape[0] != C or not 1 <= frames.shape[1] <= 2 * P:
            raise InputError(f"a spectrogram must be [{C}, T] with 1 to {2 * P} frames, not {list(frames.shape)}")
        x = _convolution(frames, self.weight, self.bias, ops)
        x = _convolution(np.ascontiguousarray(x.T), self.weight2, self.bias2, ops, stride=2)
        return x + self.positions[: len(x)]


def _convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, ops: LinearOps, stride: int = 1) -> np.ndarray:
    """Return gelu(convolution of x [C, T], padded by one zero on each side) as [ceil(T / stride), D].

    weight: [D, C, 3]. A row of the product is a window of 3 frames, [C * 3].
    """
    padded = np.pad(x, ((0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::stride].transpose(1, 0, 2)
    rows = np.ascontiguousarray(windows).reshape(windows.shape[0], -1)
    return ops.linear(rows, weight.reshape(len(weight), -1), bias, activation="gelu", residual=None)


Stem: TypeAlias = Patches | Frames | Waveform
KINDS: dict[str, type[Patches] | type[Frames] | type[Waveform]] = {
    "patches": Patches, "frames": Frames, "waveform": Waveform}
_SHAPES: dict[str, dict[str, tuple[str | int, ...]]] = {
    "patches": {"weight": ("D", "C", "p", "p"), "bias": ("D",), "first": ("F", "D"), "positions": ("P", "D"),
                "registers": ("R", "D")},
    "frames": {"weight": ("D", "C", 3), "bias": ("D",), "weight2": ("D", "D", 3), "bias2": ("D",),
               "positions": ("P", "D")},
}  # fmt: skip


def stem_arrays(stem: Stem) -> dict[str, np.ndarray]:
    """Return the arrays of a stem by name, for a file."""
    if isinstance(stem, Waveform):
        return dict(stem.arrays)
    values = {field.name: getattr(stem, field.name) for field in fields(stem)}
    return {name: array for name, array in values.items() if isinstance(array, np.ndarray)}


def stem_document(stem: Stem) -> dict[str, Any]:
    """Return the settings of a stem, without its arrays, as a plain dictionary for a file; `make_stem` reads it."""
    if isinstance(stem, Waveform):
        return stem.document()
    return {"kind": stem.kind} | ({"resize": stem.resize} if isinstance(stem, Patches) else {})


def make_stem(document: Any, arrays: Mapping[str, np.ndarray]) -> Stem:
    """Return the stem of a document, made by `stem_document`, and its arrays by name.

    Raises `WeightsError` unless they fit one another.
    """
    if isinstance(document, dict) and document.get("kind") == Waveform.kind:
        return make_waveform(document, arrays)
    kind = document.get("kind") if isinstance(document, dict) else None
    resize = document.get("resize", "none") if isinstance(document, dict) else None
    if kind not in list(_SHAPES) or document.keys() - {"kind", "resize"} or resize not in list(RESIZES) or (
            kind == "frames" and resize != "none"):
        raise WeightsError(f"a stem must be of the kind {' or '.join(KINDS)}, with resize {', '.join(RESIZES)} for "
                           f"patches, not {shown(document)}")
    shapes = _SHAPES[kind]
    missing = shapes.keys() - arrays.keys() - {"first", "registers"}
    if missing or arrays.keys() - shapes.keys():
        raise WeightsError(f"the stem must have the arrays {', '.join(shapes)}, not {', '.join(sorted(arrays)[:20])}")
    sizes: dict[str | int, int] = {}        # the size for each letter of `_SHAPES`, with which all arrays must agree
    for name, array in arrays.items():
        sizes |= dict(zip(shapes[name], array.shape, strict=False))
    for name, array in arrays.items():
        shape = tuple(sizes.get(size, 0) if isinstance(size, str) else size for size in shapes[name])
        if array.shape != shape or array.dtype != np.float32 or not array.size or not np.isfinite(array).all():
            expected = ", ".join(map(str, shapes[name]))
            raise WeightsError(f"the stem's {name} must be finite numbers, float32 [{expected}], not {array.dtype} "
                               f"{list(array.shape)}; the sizes are {shown({str(k): v for k, v in sizes.items()})}")
    if kind == "frames":
        return Frames(**arrays)
    first = sizes.get("F", 0)
    patches = sizes["P"] - first
    if first > FIRST_TOKENS or patches < 1 or math.isqrt(patches) ** 2 != patches:
        raise WeightsError(f"the stem must have at most {FIRST_TOKENS} first tokens, and positions for these and n * n "
                           f"patches, not {first} and {sizes['P']}")
    return Patches(**arrays, resize=resize)


def embed(stem: Stem, inputs: Any, ops: StemOps) -> np.ndarray | list[np.ndarray]:
    """Return the token vectors of several inputs: [B, T, D] for an array of B inputs, a list of [T, D] for a list.

    Raises `InputError` for anything but finite numbers of the stem's shape.
    """
    axes = stem.expected.count(",") + 1     # the axes of one input: 3 for [C,H,W], 2 for [C,T]
    if isinstance(inputs, (list, tuple)):
        return _embed_each(stem, (_read_numbers(stem, one, axes) for one in inputs), ops)
    embedded = _embed_each(stem, _read_numbers(stem, inputs, axes + 1), ops)
    return np.stack(embedded) if embedded else np.zeros((0, 0, stem.weight.shape[0]), np.float32)


def _embed_each(stem: Stem, inputs: Iterable[np.ndarray], ops: StemOps) -> list[np.ndarray]:
    """Return the token vectors of each input, [T, D] each; several images share products."""
    if isinstance(stem, Patches):
        return stem.embed(map(stem.cut, inputs), ops)
    return [stem.embed(one, ops) for one in inputs]


def _read_numbers(stem: Stem, value: Any, axes: int) -> np.ndarray:
    """Return a user's input, or an array of inputs, as contiguous float32.

    axes: how many the array must have. Raises `InputError` for another number of axes, and for NaN and infinity.
    """
    array = as_array(value, f"{stem.given} must be {stem.expected}")
    if array.ndim != axes or array.dtype.kind != "f":
        raise InputError(f"{stem.given} must be an array of {stem.expected} for each input, or a list of them, not "
                         f"{array.dtype} {list(array.shape)}; scale and normalise integers first")
    numbers = array.astype(np.float32)
    if not np.isfinite(numbers).all():
        raise InputError(f"{stem.given} must be finite numbers, and some are not")
    return np.ascontiguousarray(numbers)
