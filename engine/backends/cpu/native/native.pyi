"""Types of the compiled module native.pyx; docstrings are there."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ....base.stop import Stop

Array = np.ndarray[Any, np.dtype[Any]]

ARCHITECTURE: str
OF_ARCHITECTURE: dict[str, tuple[str, ...]]

def refusal(isa: str) -> str | None: ...
def made_by_amd() -> bool: ...
def struct_sizes() -> dict[str, int]: ...

def product_name(precision: str, decodes: bool, portable: bool = False) -> str: ...
def padded_stride(width: int) -> int: ...

class Kernels:
    isa: str
    VL: int
    NR: int
    MR: int
    fused: bool
    def __init__(self, capsule: object) -> None: ...
    def product(self, precision: str, decodes: bool = False, portable: bool = False) -> Product: ...
    @property
    def fma(self) -> Product: ...
    def layer_norm(self, weights: NormWeights, x: Array, out: Array) -> None: ...
    def activate(self, activation: int, x: Array) -> None: ...
    def weigh(
        self,
        q: Array,
        k: Array,
        weights: Array | None,
        entropy: Array | None,
        scale: float,
        scratch: Array,
        low: int = ...,
        high: int = ...,
        softcap: float = 0.0,
        bias: Array | None = None,
        mask: Array | None = None,
    ) -> None: ...
    def cached_attention(
        self,
        q: Array,
        cells: Array,
        keys: int,
        values: int,
        storage: int,
        out: Array,
        S: int,
        scale: float,
        scratch: Array,
        low: int = ...,
        high: int = ...,
        softcap: float = 0.0,
        bias: Array | None = None,
        sums: Array | None = None,
        range: int = 0,
    ) -> None: ...
    def fold_ranges(self, sums: Array, out: Array) -> None: ...
    def cached_attention_scratch(self, d: int, e: int) -> int: ...
    def choose(self, logits: Array, id: int, values: Array, ids: Array, sums: Array | None = None) -> None: ...
    def log_sum_exp(self, maximum: Array, sum: Array, out: Array) -> None: ...
    def column_maxima(
        self, map: PackedLinear, a: Array, maximum: Array, panel: int = 0, last: int = -1
    ) -> None: ...
    def read(self, x: Array, threads: int = 1) -> float: ...

class Product:
    kernels: Kernels
    precision: str
    portable: bool
    name: str
    exists: bool
    lanes: int
    depth_step: int
    needs_bound: bool
    operand_bytes: int
    instruction: str
    strip: int
    block: int
    shared: int
    bundle: int
    code_zero: int
    converts: bool
    operands_depth: int
    approximates: bool
    attends_rows: bool
    hidden_columns: int
    fresh_depth: int
    attends_in_float32: bool
    def __init__(self, kernels: Kernels, precision: str, decodes: bool = False, portable: bool = False) -> None: ...
    def packed_bytes(self, columns: int, K: int, format: str | None = None) -> int: ...
    def row_bytes(self, K: int, format: str | None = None) -> int: ...
    def convert(self, x: Array, operands: Array, ranges: Array | None = None, first: int = 0) -> None: ...
    def multiply(
        self,
        map: PackedLinear,
        operands: Array,
        out: Array,
        residual: Array | None = None,
        ranges: Array | None = None,
        width: int = 0,
        block: int = 0,
        lines: tuple[int, int] = (0, 0),
        sums: Array | None = None,
    ) -> None: ...
    def multiply_to_operands(self, map: PackedLinear, operands: Array, to: Array, M: int) -> None: ...
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
        relative: RelativeWeights | None = None,
        query: int = 0,
    ) -> None: ...
    def attention_scratch(self, d: int, e: int, columns: int = 0) -> int: ...
    def attend_rows(self, q: Array, k: Array, v: Array, out: Array, scale: float) -> None: ...
    def operands_stride(self, width: int) -> int: ...
    def rounds(self, n: int, threads: int = 1) -> float: ...

class PackedLinear:
    product: Product
    format: str
    def __init__(
        self, product: Product, panels: Array, K: int, bias: Array, scale: Array | None = None, activation: int = 0,
        sums: Array | None = None, offset_scale: Array | None = None, format: str | None = None,
    ) -> None: ...
    def fill(self, w: Array, column: int = 0) -> None: ...
    @property
    def columns(self) -> int: ...
    @property
    def arrays(self) -> tuple[Array, Array | None, Array | None, Array | None]: ...

class TableWeights:
    def __init__(self, rows: Array, storage: int, scale: Array | None, factor: float = 1.0) -> None: ...

class NormWeights:
    def __init__(self, weight: Array, bias: Array, eps: float) -> None: ...

class RelativeWeights:
    columns: int
    def __init__(self, keys: Array | None, queries: Array | None, row: Array, rows: int) -> None: ...

class Executor:
    threads: int
    def __init__(
        self,
        product: Product,
        buffers: list[tuple[bool, int, int, int, bool, int]],
        count: int,
        *,
        token_floats: int,
        block_floats: int,
        picked_floats: int,
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
        needs_barrier: bool,
    ) -> None: ...
    def norm(
        self,
        x: int,
        out: int,
        weights: NormWeights,
        *,
        residual: int,
        operands: int,
        rms: bool,
        stored: bool,
        needs_barrier: bool,
    ) -> None: ...
    def convert(self, x: int, operands: int, width: int, *, needs_barrier: bool) -> None: ...
    def multiply(
        self,
        x: int,
        out: int,
        map: PackedLinear,
        *,
        residual: int,
        operands: int,
        approximate: bool,
        gated: bool,
        first_hidden: int = 0,
        last_hidden: int = 0,
        needs_barrier: bool,
    ) -> None: ...
    def heads(
        self,
        x: int,
        norm: NormWeights | None,
        cos: Array | None,
        sin: Array | None,
        d: int,
        interleaved: bool,
        *,
        needs_barrier: bool,
    ) -> None: ...
    def attend(
        self,
        q: int,
        k: int,
        v: int,
        out: int,
        d: int,
        scale: float,
        softcap: float,
        low: int,
        high: int,
        bias: Array | None,
        relative: RelativeWeights | None,
        observed: Array,
        longest: int,
        *,
        needs_barrier: bool,
    ) -> None: ...
    def attend_state(
        self,
        q: int,
        k: int,
        v: int,
        out: int,
        source: int,
        layer: int,
        key_heads: int,
        d: int,
        scale: float,
        softcap: float,
        low: int,
        high: int,
        bias: Array | None,
        storage: int,
        *,
        needs_barrier: bool,
    ) -> None: ...
    def store(self, x: int, width: int, array: int, *, needs_barrier: bool) -> None: ...
    def pick(self, x: int, out: int, width: int, *, needs_barrier: bool) -> None: ...
    def scale(self, x: int, out: int, width: int, factor: float, *, needs_barrier: bool) -> None: ...
    def logits(self, x: int, map: PackedLinear, width: int, *, needs_barrier: bool) -> None: ...
    def start(self) -> None: ...
    def workspace_bytes(self, tokens: int, picked: int = 0) -> int: ...
    def forward(
        self,
        sequences: Array,
        groups: Array,
        bundles: bool,
        ids: Array | None,
        embeds: Array | None,
        position_ids: Array | None,
        type_ids: Array | None,
        arrays: list[Array],
        weight_offsets: Array | None = None,
        stop: Stop | None = None,
        state: tuple[Array, int, Array] | None = None,
        picked: Array | None = None,
        best: tuple[Array, Array, Array] | None = None,
        results: Array | None = None,
        keys: Array | None = None,
    ) -> None: ...

def cell_bytes(storage: int, width: int) -> int: ...
def write_cells(storage: int, rows: Array, d: int, cells: Array, run: int) -> None: ...
def read_keys(storage: int, cells: Array, run: int, head: int, rows: Array) -> None: ...
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
    product: Product,
    x: Array,
    weight: Array,
    bias: Array,
    activation: int,
    residual: Array | None,
    out: Array,
    panels: Array,
    operands: Array | None = None,
    threads: int = 1,
) -> None: ...
def column_maxima(
    kernels: Kernels, map: PackedLinear, parts: Sequence[Array], out: Array, threads: int = 1
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

class TurnLock:
    waiting: int
    @property
    def held(self) -> bool: ...
    def take(self, stop: Stop | None = None) -> AbstractContextManager[bool]: ...
    def take_if_free(self) -> AbstractContextManager[bool]: ...
    def free(self) -> None: ...
