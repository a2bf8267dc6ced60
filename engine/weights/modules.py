"""The modules of sentence-transformers that change vectors: of tokens before pooling, and of sentences after it.

Each module reads the vectors of one name and writes vectors under one name, usually the same. `Dropout` does nothing
when a model is used, so that no model in memory has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..base.errors import WeightsError, shown
from ..base.functions import exp, tanh

TOKENS, SENTENCE = "token_embeddings", "sentence_embedding"
"""The name of the vectors that pooling reads, and the name of the vectors that it writes, the result of `encode`."""
ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid")
"""The activations of `Dense`."""
MOST_MODULES = 16
"""Limit on the modules before pooling, and on the modules after it."""


class LinearOps(Protocol):
    """The operation that a backend provides for linear maps."""

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """Return activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N]."""


class ModuleOps(LinearOps, Protocol):
    """The operations that a backend provides for modules."""

    def layer_norm(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, eps: float) -> np.ndarray:
        """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last axis of x [M,D]."""


_ARRAYS = ("weight", "bias", "residual")
"""The fields of modules that hold arrays; all others are settings."""


class _Common:
    """The base of the modules: the methods for one without arrays that keeps the length of vectors."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of their fields, without those that are None."""
        return {name: getattr(self, name) for name in _ARRAYS if getattr(self, name, None) is not None}

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the arrays must have, by name, for vectors of `width` numbers."""
        return {}

    def width_after(self, width: int) -> int:
        """Return the length of a result, for vectors of `width` numbers."""
        return width


@dataclass(frozen=True, eq=False)
class Dense(_Common):
    """A linear map: activation(weight x + bias), plus x or residual x if `use_residual` is True."""

    weight: np.ndarray
    """float32 [out, in]."""
    bias: np.ndarray | None = None
    """float32 [out]; None for no bias."""
    activation: str = "identity"
    """One of `ACTIVATIONS`."""
    use_residual: bool = False
    residual: np.ndarray | None = None
    """float32 [out, in], the map of x that is added; None to add x itself, which then has `out` numbers."""
    source: str = SENTENCE
    target: str = SENTENCE

    def __call__(self, vectors: np.ndarray, ops: ModuleOps) -> np.ndarray:
        """Return the results for vectors [n, in]: float32 [n, out]."""
        function = _FUNCTIONS.get(self.activation)      # None for an activation that `ops.linear` applies itself
        changed = ops.linear(vectors, self.weight, self.bias, activation=None if function else self.activation,
                             residual=None)
        changed = function(changed) if function else changed
        if self.use_residual:
            changed += vectors if self.residual is None else ops.linear(vectors, self.residual, bias=None,
                                                                        activation=None, residual=None)
        return changed

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the arrays must have, by name, for vectors of `width` numbers."""
        out = np.shape(self.weight)[:1]
        residual = {"residual": (*out, width)} if self.use_residual and out != (width,) else {}
        return {"weight": (*out, width), **({} if self.bias is None else {"bias": out}), **residual}

    def width_after(self, width: int) -> int:
        """Return the length of a result, for vectors of `width` numbers."""
        return len(self.weight)


@dataclass(frozen=True, eq=False)
class LayerNorm(_Common):
    """LayerNorm of each vector: Ba et al. 2016 (arXiv 1607.06450), equation 3."""

    weight: np.ndarray
    """float32 [D]."""
    bias: np.ndarray
    """float32 [D]."""
    eps: float = 1e-5
    source: str = SENTENCE
    target: str = SENTENCE

    def __call__(self, vectors: np.ndarray, ops: ModuleOps) -> np.ndarray:
        """Return the normed vectors: float32 [n, D]."""
        return ops.layer_norm(vectors, self.weight, self.bias, self.eps)

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the arrays must have, by name, for vectors of `width` numbers."""
        return {"weight": (width,), "bias": (width,)}


@dataclass(frozen=True, eq=False)
class Normalize(_Common):
    """Scale each vector to length 1; a vector of zeros stays unchanged."""

    source: str = SENTENCE
    target: str = SENTENCE

    def __call__(self, vectors: np.ndarray, ops: ModuleOps) -> np.ndarray:
        """Return the scaled vectors: float32 [n, D]."""
        return normalize(vectors)


Module: TypeAlias = Dense | LayerNorm | Normalize
KINDS: dict[str, type[Module]] = {"dense": Dense, "layer_norm": LayerNorm, "normalize": Normalize}
"""The modules by their names in a file."""


def run_modules(modules: Sequence[Module], vectors: np.ndarray, name: str, ops: ModuleOps | None) -> np.ndarray:
    """Return the vectors called `name` after all modules: float32 [n, D'], from vectors [n, D] of that name.

    Each result depends on its own vector alone. ops: may be None if there are no modules.
    """
    if not modules:
        return vectors
    named = {name: vectors}
    with np.errstate(over="ignore", invalid="ignore"):  # sums of finite vectors may be infinite
        for module in modules:
            assert ops is not None
            named[module.target] = module(np.ascontiguousarray(named[module.source]), ops)
    return named[name]


def widths_after(modules: Sequence[Module], width: int, name: str) -> dict[str, int]:
    """Return, by name, the length of the vectors after all modules. width, name: of the vectors before them."""
    widths = {name: width}
    for module in modules:
        widths[module.target] = module.width_after(widths[module.source])
    return widths


def ends_with_normalize(modules: Sequence[Module], name: str) -> bool:
    """Return whether the last module that writes the vectors called `name` scales them to length 1."""
    return isinstance(next((module for module in reversed(modules) if module.target == name), None), Normalize)


def check_modules(modules: Any, width: int, name: str, source: str) -> int:
    """Return the length of the vectors called `name` after the modules; raises `WeightsError` unless these fit.

    width: the length of these vectors before the modules. source: the beginning of the message.
    """
    if not isinstance(modules, tuple) or len(modules) > MOST_MODULES or not all(
            isinstance(module, (Dense, LayerNorm, Normalize)) for module in modules):
        raise WeightsError(f"{source}: modules must be a tuple of at most {MOST_MODULES} Dense, LayerNorm and "
                           f"Normalize, not {shown(modules)}")
    widths = {name: width}
    for i, module in enumerate(modules):
        label = f"{source}: {type(module).__name__} module {i}"
        if not isinstance(module.target, str) or not isinstance(module.source, str) or module.source not in widths:
            raise WeightsError(f"{label} reads {shown(module.source)} and writes {shown(module.target)}; there are "
                               f"vectors called {', '.join(widths)}")
        _check_arrays(module, widths[module.source], label)
        widths[module.target] = module.width_after(widths[module.source])
    return widths[name]


def _check_arrays(module: Module, width: int, label: str) -> None:
    """Raise `WeightsError` unless the arrays and settings of a module fit vectors of this length."""
    shapes, arrays = module.shapes(width), module.arrays
    for name in [*shapes, *(name for name in arrays if name not in shapes)]:
        array = arrays.get(name)
        if name not in shapes or not isinstance(array, np.ndarray) or array.dtype != np.float32 or (
                array.shape != shapes[name] or array.size == 0 or not np.isfinite(array).all()):
            described = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
            expected = f"finite numbers, float32 {list(shapes[name])}" if name in shapes else "left out"
            raise WeightsError(f"{label}: {name} must be {expected}, not {described}, where vectors have {width} "
                               "numbers")
    if isinstance(module, Dense):
        if module.activation not in ACTIVATIONS or type(module.use_residual) is not bool:
            raise WeightsError(f"{label}: activation must be one of {', '.join(ACTIVATIONS)}, and use_residual a bool, "
                               f"not {shown(module.activation)} and {shown(module.use_residual)}")
    elif isinstance(module, LayerNorm) and (type(module.eps) is not float or not 0.0 <= module.eps < 1.0):
        raise WeightsError(f"{label}: eps must be a number from 0 to 1, not {shown(module.eps)}")


def module_document(module: Module) -> str | dict[str, Any]:
    """Return the settings of a module, without its arrays, for a file; `make_module` reads them.

    A plain linear map is described by the name of its activation alone, as in files from before there were others.
    """
    settings = {name: getattr(module, name) for name in _SETTINGS[type(module)]}
    if isinstance(module, Dense) and settings == _PLAIN | {"activation": module.activation} and (
            module.activation in _PLAIN_ACTIVATIONS):
        return module.activation
    return {"module": next(name for name, kind in KINDS.items() if kind is type(module))} | settings


def make_module(document: Any, arrays: dict[str, np.ndarray]) -> Module:
    """Return the module of a document, made by `module_document`, and its arrays; raises `WeightsError` for others."""
    if isinstance(document, str):
        document = {"module": "dense"} | _PLAIN | {"activation": document}
    kind = KINDS.get(str(document.get("module"))) if isinstance(document, dict) else None
    if kind is None or document.keys() != {"module", *_SETTINGS[kind]} or not arrays.keys() <= _ALLOWED[kind] or (
            _NEEDED[kind] - arrays.keys()):
        raise WeightsError(f"a module must be the name of an activation, or one of {', '.join(KINDS)} with its "
                           f"settings and its arrays, not {shown(document)} with {', '.join(arrays) or 'no arrays'}")
    made: Any = kind
    return made(**arrays, **{name: document[name] for name in _SETTINGS[kind]})


def normalize(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors [..., D] to length 1; a vector of zeros stays unchanged."""
    with np.errstate(over="ignore", invalid="ignore"):  # sums of finite vectors may be infinite
        lengths = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
        return vectors / np.maximum(lengths, 1e-12)     # torch divides by at least this number, too


ROUNDING = 1e-5
"""The largest distance from 1 of the length of a float32 vector that counts as scaled to length 1."""


def shortened(vectors: np.ndarray, dimensions: int | None) -> np.ndarray:
    """Return the first dimensions of vectors [n, D], scaled to length 1; None leaves the vectors as they are.

    A vector whose length is 1 already keeps its bits, because scaling it again would change its last bits.
    """
    if dimensions is None:
        return vectors
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short.astype(np.float64), axis=-1, keepdims=True)
    return np.where(np.abs(lengths - 1) <= ROUNDING, short, normalize(short))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^-x) in float32, without overflow."""
    small = exp(-np.abs(x))     # at most 1, as e^-x overflows for very negative x
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis, [..., n]; NaN for a row with infinity."""
    with np.errstate(invalid="ignore"):     # logits from finite weights may be infinite
        e = exp(x - x.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)


_SETTINGS = {kind: [each.name for each in fields(kind) if each.name not in _ARRAYS] for kind in KINDS.values()}
_NEEDED = {kind: {each.name for each in fields(kind) if each.default is MISSING} for kind in KINDS.values()}
_ALLOWED = {kind: {each.name for each in fields(kind)} & {*_ARRAYS} for kind in KINDS.values()}
"""For each kind of module: the names of its settings, of the arrays that it must have, and of those it may have."""
_PLAIN: dict[str, Any] = {"activation": "identity", "use_residual": False, "source": SENTENCE, "target": SENTENCE}
_PLAIN_ACTIVATIONS = ("identity", "tanh")
"""The settings of a linear map that a file describes by the name of its activation, and the activations of these."""
_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"identity": lambda x: x, "tanh": tanh, "sigmoid": sigmoid}
"""The activations that NumPy computes here, because the linear map of a backend has only the others."""
