"""Types of the compiled module native.pyx; docstrings are there."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

def supports(isa: str) -> bool: ...
def struct_sizes() -> dict[str, int]: ...

def padded_stride(width: int) -> int: ...

class Kernels:
    isa: str
    VL: int
    NR: int
    MR: int
    def __init__(self, capsule: object) -> None: ...
    def product(self, precision: str) -> Product: ...
    def layer_norm(self, weights: NormWeights, x: Array, out: Array) -> None: ...
    def activate(self, activation: int, x: Array) -> None: ...
    def read(self, x: Array, threads: int = 1) -> float: ...

class Product:
    kernels: Kernels
    precision: str
    weight_bytes: int
    name: str
    exists: bool
    depth_step: int
    operand_bytes: int
    converts: bool
    attends_in_float32: bool
    def __init__(self, kernels: Kernels, precision: str) -> None: ...
    def convert(self, x: Array, operands: Array, ranges: Array | None = None) -> None: ...
    def multiply(
        self,
        map: PackedLinear,
        operands: Array,
        out: Array,
        residual: Array | None = None,
        ranges: Array | None = None,
        width: int = 0,
        block: int = 0,
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
    def rounds(self, n: int, threads: int = 1) -> float: ...

class PackedLinear:
    product: Product
    def __init__(
        self, product: Product, panels: Array, K: int, bias: Array, scale: Array | None = None, activation: int = 0
    ) -> None: ...
    def fill(self, w: Array, column: int = 0) -> None: ...

class TableWeights:
    def __init__(self, rows: Array, storage: int, scale: Array | None) -> None: ...

class NormWeights:
    def __init__(self, weight: Array, bias: Array, eps: float) -> None: ...

class Executor:
    threads: int
    def __init__(
        self,
        product: Product,
        buffers: list[tuple[bool, int, int, int]],
        count: int,
        *,
        token_floats: int,
        block_floats: int,
        threads: int,
        allocate: Callable[[int], Array],
    ) -> None: ...
    def embed(
        self,
        out: int,
        width: int,
        word: TableWeights | None,
        position: TableWeights | None,
        token_type: TableWeights | None,
        *,
        meets: bool,
    ) -> None: ...
    def norm(self, x: int, out: int, weights: NormWeights, *, rms: bool, stored: bool, meets: bool) -> None: ...
    def convert(self, x: int, map: PackedLinear, *, meets: bool) -> None: ...
    def multiply(self, x: int, out: int, map: PackedLinear, *, residual: int, gated: bool, meets: bool) -> None: ...
    def heads(
        self,
        x: int,
        norm: NormWeights | None,
        cos: Array | None,
        sin: Array | None,
        d: int,
        interleaved: bool,
        *,
        meets: bool,
    ) -> None: ...
    def attend(
        self, q: int, k: int, v: int, out: int, d: int, scale: float, low: int, high: int, *, meets: bool
    ) -> None: ...
    def store(self, x: int, width: int, *, meets: bool) -> None: ...
    def start(self) -> None: ...
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
        deadline: float = 0.0,
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
