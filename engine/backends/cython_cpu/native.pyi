"""Types of the compiled module native.pyx; docstrings are there."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

def supports(isa: str) -> bool: ...
def struct_sizes() -> dict[str, int]: ...

class Kernels:
    isa: str
    VL: int
    NR: int
    MR: int
    DOT: int
    def __init__(self, capsule: object) -> None: ...
    def linear(
        self, map: PackedLinear, a: Array, out: Array, residual: Array | None = None, width: int = 0, block: int = 0
    ) -> None: ...
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        out: Array,
        scale: float,
        scratch: Array,
        low: int = ...,
        high: int = ...,
        softcap: float = 0.0,
        bias: Array | None = None,
        mask: Array | None = None,
        score_mod: int = 0,
        captured: int = 0,
    ) -> None: ...
    def attention_scratch(self, d: int, e: int) -> int: ...
    def attention_bfloat16(self, q: Array, k: Array, v: Array, out: Array, scale: float, scratch: Array) -> None: ...
    def attention_bfloat16_scratch(self, d: int, e: int) -> int: ...
    def layer_norm(self, weights: NormWeights, x: Array, out: Array) -> None: ...
    def activate(self, activation: int, x: Array) -> None: ...
    def quantize(self, x: Array, codes: Array, ranges: Array) -> None: ...
    def linear_int8(
        self,
        map: PackedInt8,
        codes: Array,
        ranges: Array,
        out: Array,
        residual: Array | None = None,
        width: int = 0,
        block: int = 0,
    ) -> None: ...
    operand_bytes: int
    def to_operands(self, x: Array, operands: Array) -> None: ...
    def linear_bfloat16(
        self,
        map: PackedBFloat16,
        operands: Array,
        out: Array,
        residual: Array | None = None,
        width: int = 0,
        block: int = 0,
    ) -> None: ...
    def pair_rounds(self, n: int, threads: int = 1) -> float: ...
    def dot_rounds(self, n: int, threads: int = 1) -> float: ...
    def fma_rounds(self, n: int, threads: int = 1) -> float: ...
    def read(self, x: Array, threads: int = 1) -> float: ...

class PackedLinear:
    def __init__(self, kernels: Kernels, panels: Array, bias: Array, activation: int = 0) -> None: ...
    def fill(self, w: Array, column: int = 0) -> None: ...

class PackedBFloat16:
    def __init__(self, kernels: Kernels, panels: Array, K: int, bias: Array, activation: int = 0) -> None: ...
    def fill(self, w: Array, column: int = 0) -> None: ...

class PackedInt8:
    def __init__(
        self, kernels: Kernels, panels: Array, K: int, scale: Array, bias: Array, sums: Array, activation: int = 0
    ) -> None: ...
    def fill(self, w: Array, column: int = 0) -> None: ...

class TableWeights:
    def __init__(self, rows: Array, storage: int, scale: Array | None) -> None: ...

class NormWeights:
    def __init__(self, weight: Array, bias: Array, eps: float) -> None: ...

class Encoder:
    threads: int
    def __init__(
        self,
        kernels: Kernels,
        layers: list[tuple[Any, ...]],
        word: TableWeights | None,
        position: TableWeights | None,
        type: TableWeights | None,
        embedding_norm: NormWeights | None,
        *,
        D: int,
        H: int,
        d: int,
        threads: int,
        allocate: Callable[[int], Array],
    ) -> None: ...
    def workspace_bytes(self, tokens: int) -> int: ...
    def forward(
        self,
        sequences: Array,
        groups: Array,
        bundles: bool,
        ids: Array | None,
        embeds: Array | None,
        position_ids: Array,
        type_ids: Array,
        out: Array,
    ) -> None: ...

def layer_norm(kernels: Kernels, weights: NormWeights, x: Array, out: Array, threads: int = 1) -> None: ...
def rms_norm(kernels: Kernels, weights: NormWeights, x: Array, out: Array, threads: int = 1) -> None: ...
def softmax(kernels: Kernels, x: Array, out: Array, threads: int = 1) -> None: ...
def activate(
    kernels: Kernels, activation: int, x: Array, out: Array, gate: Array | None = None, threads: int = 1
) -> None: ...
def rotate(
    kernels: Kernels, x: Array, cos: Array, sin: Array, interleaved: bool, out: Array, threads: int = 1
) -> None: ...
def linear(
    kernels: Kernels,
    x: Array,
    weight: Array,
    bias: Array,
    activation: int,
    residual: Array | None,
    out: Array,
    panels: Array,
    threads: int = 1,
) -> None: ...
def attention(
    kernels: Kernels,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    scale: float,
    softcap: float,
    low: Array,
    high: Array,
    lengths: Array,
    bias: Array | None,
    mask: Array | None,
    score_mod: int,
    captured: int,
    threads: int,
) -> None: ...
