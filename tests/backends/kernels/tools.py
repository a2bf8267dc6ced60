"""Provide the tools of the kernel tests: arrays with guards around them, and the bound on errors."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from engine.backends import numba_cpu
from engine.backends.cpu.native.layout import CELL
from engine.backends.cpu.native.native import Kernels, PackedLinear, Product
from engine.backends.cython_cpu import isa
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .table import FAR, function, ready, stride, struct

PROVIDERS = (*isa.INSTRUCTION_SETS, "numba")
"""Names of the kernel tables: one per instruction set, and the one that Numba compiles."""


def why_not(name: str) -> str | None:
    """Return why this kernel table is not available here, or None if it is."""
    return numba_cpu.BACKEND.unavailable() if name == "numba" else isa.why_not(name)


@cache
def _own() -> Any:
    """Return Numba's table without the kernels of other tables, which take the places of some of its own with AMX."""
    from engine.backends.numba_cpu.table import KernelTable

    own = KernelTable(None)
    for precision in ("float32", "bfloat16", "int8"):
        own.fill(precision, decoding=precision == "int8", portable=False)
        own.fill(precision, decoding=False, portable=True)
    return own


def load(name: str) -> Kernels:
    """Return the kernel table of that name; Numba's has the kernels alone that Numba compiles."""
    return _own().kernels if name == "numba" else isa.load(name)


def available() -> list[str]:
    """Return the names of the kernel tables that run here."""
    return [name for name in PROVIDERS if why_not(name) is None]


def turn(kernels: Kernels, *others: int) -> int:
    """Return a number that is another one for each kernel table, and for the next of each other number.

    A test that chooses by it runs each of its cases on some tables, and each pair of a table and a case of one kind.
    """
    return available().index(kernels.isa) + sum(others)


def compiled() -> list[str]:
    """Return the names of those that are compiled ahead of time, which have the products of weights in blocks."""
    return [name for name in available() if name != "numba"]


def _compiled(has: Callable[[Product], Any]) -> list[str]:
    """Return the compiled kernel tables that run here and whose product of bfloat16 has something.

    Numba's kernels have none of what tests ask for. Compiling them to ask would make every collection of tests slow.
    """
    return [name for name in compiled() if has(load(name).product("bfloat16"))]


ATTENDING_IN_BFLOAT16 = _compiled(lambda product: not product.attends_in_float32)
WITH_TILES = [name for name in ("amx", "amxemulated") if why_not(name) is None]
"""The names of the kernel tables that multiply on tiles, real or emulated, and run here."""

WRITING_OPERANDS = _compiled(lambda product: product.operands_depth)
ATTENDING_ROWS = _compiled(lambda product: product.attends_rows)


def fixture_of(names: list[str]) -> Any:
    """Return a fixture that gives each of these kernel tables."""
    return pytest.fixture(params=names)(lambda request: load(request.param))


WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 44, 64, 100, 768)
"""Row lengths around the length of every vector."""

GUARD = np.float32(-7.0e33)


def guarded(rows: int, columns: int, stride: int | None = None) -> np.ndarray:
    """Return an array [rows, columns] of NaN inside a buffer of guard values, which `assert_guards` checks."""
    stride = stride or columns + 3
    buffer = np.full((rows + 2) * stride + 64, GUARD)
    view = np.lib.stride_tricks.as_strided(buffer[stride + 1 :], (rows, columns), (4 * stride, 4))
    view[:] = np.nan
    return view


def guarded_copy(x: np.ndarray | None, columns: int | None = None) -> np.ndarray | None:
    """Return a copy of x in an array of `guarded`, with zeros behind its own columns; None if x is None.

    columns: of the copy; None for those of x.
    """
    if x is None:
        return None
    view = guarded(len(x), columns or x.shape[1])
    view[:] = np.pad(x, ((0, 0), (0, view.shape[1] - x.shape[1])))
    return view


def assert_guards(*views: np.ndarray) -> None:
    """Assert that nothing was written to the buffers around the views."""
    for view in views:
        buffer = view
        while buffer.base is not None:
            buffer = buffer.base
        around = buffer.copy()
        first = (view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // 4
        np.lib.stride_tricks.as_strided(around[first:], view.shape, view.strides)[...] = GUARD
        assert (around == GUARD).all(), "wrote outside its output"


def assert_as_good(out: np.ndarray, exact: np.ndarray, naive: np.ndarray, factor: float = 3.0,
                   operand: np.ndarray | None = None) -> None:
    """Assert that the error of `out` is at most `factor` times that of the plain formula in float32.

    Errors are differences from `exact` in float64. naive and exact may have more columns than out; out's come first.
    Two roundings of the largest result, or of the largest operand of the last step, are always allowed, because the
    plain formula may be exact by chance.
    """
    expected = exact[..., : out.shape[-1]]
    assert out.shape == expected.shape
    assert np.isfinite(out).all()
    error, allowed = np.abs(out - expected).max(initial=0), np.abs(naive - exact).max(initial=0)
    floor = 2 * np.finfo(np.float32).eps * np.abs(exact if operand is None else operand).max(initial=0)
    assert error <= factor * allowed + floor, f"error {error:.3g}, the plain formula's is {allowed:.3g}"


def input_groups(K: int) -> np.ndarray:
    """Return the group of each of K inputs, as 0 or 1 [K, groups]: {0, 1, 4, 5} and {2, 3, 6, 7} of every eight."""
    k = np.arange(K)
    return (k // 8 * 2 + k // 2 % 2)[:, None] == np.arange(-(-K // 8) * 2)


def _group_sums(w: np.ndarray) -> np.ndarray:
    """Return for each int8 weight, none negative, the sum of its group. float32 is exact here, and fast."""
    groups = input_groups(w.shape[1]).astype(np.float32)
    return (w.astype(np.float32) @ groups @ groups.T).astype(np.int64)


def random_int8(rng: np.random.Generator, N: int, K: int) -> np.ndarray:
    """Return int8 weights [N,K] as large as allowed: same-sign weights of a group have a sum of at most 128."""
    w = rng.integers(-127, 128, (N, K))
    sums = np.where(w > 0, _group_sums(np.maximum(w, 0)), _group_sums(np.maximum(-w, 0)))
    return np.trunc(w * np.minimum(1, 128 / np.maximum(sums, 1))).astype(np.int8)


def round_up(n: int, to: int) -> int:
    """Return the least multiple of `to` that is at least n."""
    return -(-n // to) * to


def pack(kernels: Kernels, w: np.ndarray, bias: np.ndarray, activation: int = 0, precision: str = "float32",
         scale: np.ndarray | None = None, product: Product | None = None) -> PackedLinear:
    """The map w [N,K], bias [N], packed for a product, its columns padded with zeros; scale [N] of int8 weights."""
    product = product or kernels.product(precision)
    N, K = round_up(len(w), kernels.VL), w.shape[1]
    panels = np.zeros(product.packed_bytes(N, K), np.uint8)
    bias, scale = (None if x is None else np.pad(x, (0, N - len(x))) for x in (bias, scale))
    packed = PackedLinear(product, panels, K, bias, scale, activation)
    packed.fill(to_bfloat16(w) if precision == "bfloat16" else w)
    return packed


def operand_width(product: Product, K: int) -> int:
    """Return the bytes of a row of K operands with its padding, which is to whole vectors and, in strips, to lines."""
    width = round_up(K, product.kernels.VL) * product.operand_bytes
    return round_up(width, line_of(product)) if product.strip > 1 else width


def line_of(product: Product) -> int:
    """Return the bytes of a line of operands: 64, or as many for each part of a float."""
    return product.depth_step * product.operand_bytes if product.strip > 1 else 64


def rows_of(product: Product, operands: np.ndarray) -> np.ndarray:
    """Return operands (uint8 [R, width], whole strips of whole lines) with their rows one after another."""
    lines = operands.reshape(len(operands) // product.strip, -1, line_of(product) // 64, product.strip, 64)
    return lines.transpose(0, 3, 1, 2, 4).reshape(operands.shape)


def convert(product: Product, x: np.ndarray, ranges: np.ndarray | None = None, first: int = 0,
            guard: int = 77) -> np.ndarray:
    """Return the operands of x [M,K] at rows `first` and later; `guard` fills all bytes that belong to no operand.

    Asserts that nothing else is written.
    """
    M, width, line = len(x), operand_width(product, x.shape[1]), line_of(product)
    out = np.full((round_up(first + M, product.strip) + product.strip, round_up(width, line) + line), guard, np.uint8)
    product.convert(x, out, ranges, first)
    rows = rows_of(product, out)
    assert (rows[:first] == guard).all()
    assert (rows[first + M :] == guard).all()
    if product.operand_bytes > 1:
        assert (rows[first : first + M, width:] == guard).all()
    else:       # codes in the padding of the last step may be anything
        assert (rows[first : first + M, round_up(x.shape[1], product.kernels.VL) :] == guard).all()
    return out


def operands_of(product: Product, x: np.ndarray) -> np.ndarray:
    """Return rows x as a product of floats reads them: converted if it converts, with NaN in the padding."""
    return convert(product, x, guard=0xFF) if product.converts else x


def multiply_to_operands(product: Product, map: PackedLinear, operands: np.ndarray, to: np.ndarray, M: int) -> None:
    """As `Product.multiply`, for M rows, but the results become operands of another product; see `operands_depth`."""
    kernels, strides = product.kernels, [x.shape[1] // product.operand_bytes for x in (operands, to)]
    out = struct("Output", width=map.columns, operands=to, operands_stride=strides[1])
    multiply = function(kernels, "multiply", product.precision)
    with ready(kernels, product.precision):
        multiply(map.address, operands, strides[0], None, M, None, out, 0, -(-map.columns // kernels.NR))


TINY = np.finfo(np.float32).tiny


def without_denormals(x):
    """Return x with zeros of the same sign in place of denormal numbers, as AMX's tiles take them."""
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def linear_in_order(a, w, bias):
    """Return a w^T + bias in float32, adding one product after the other.

    BLAS keeps several partial sums, which makes its error smaller by luck.
    """
    y = np.zeros((len(a), len(w)), np.float32)
    for k in range(a.shape[1]):
        y += a[:, k, None] * w[:, k]
    return y + bias


BANDS = [(-FAR, 1), (-3, 1), (-8, 9), (-64, 65), (0, 1), (-300, FAR), (200, 300), (-5, -2), (1, FAR), (FAR, 2 * FAR)]
"""Bands of attention, low and high: causal and not, narrow and wide, and outside of all keys of some queries."""


def attend(product: Product, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, stride: int | None = None,
           relative: Any = None, **options: Any) -> np.ndarray:
    """Return a product's attention of one head, [T,e]; nothing may be written beside it. stride: of the output."""
    columns = () if relative is None else (relative.columns,)
    out = guarded(len(q), v.shape[1], stride)
    scratch = guarded(1, product.attention_scratch(q.shape[1], v.shape[1], *columns))
    product.attention(q, k, v, out, scale, scratch[0], relative=relative, **options)
    assert_guards(out, scratch)
    return np.array(out)


def attention_weights(q: np.ndarray, k: np.ndarray, scale: float, dtype: Any, low: int = -FAR, high: int = FAR,
                      softcap: float = 0.0, bias: np.ndarray | None = None, mask: np.ndarray | None = None,
                      score_mod: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None,
                      ) -> np.ndarray:  # fmt: skip
    """Return the formula's weights [T,S] in a precision; zeros for keys that a query does not see, whatever they hold.

    score_mod: takes scores [T,S], the numbers of queries [T,1] and of keys [S], and returns scores.
    """
    t, s = np.arange(len(q))[:, None], np.arange(len(k))
    visible = (t + low <= s) & (s < t + high) & (True if mask is None else mask != 0)
    with np.errstate(invalid="ignore"):
        scores = q.astype(dtype) @ k.astype(dtype).T * dtype(scale)
        if softcap:
            scores = dtype(softcap) * np.tanh(scores / dtype(softcap))
        if bias is not None:
            scores = scores + bias.astype(dtype)
        if score_mod is not None:
            scores = score_mod(scores, t, s)
    scores = np.where(visible, scores, dtype(-np.inf))
    powers = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), dtype(-1e30)))
    return powers / np.maximum(powers.sum(axis=1, keepdims=True), np.finfo(dtype).tiny)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, dtype: Any, **options: Any) -> np.ndarray:
    """Return the formula's [T,e] in a precision; a value that no query sees may be NaN. options: see above."""
    weights, v = attention_weights(q, k, scale, dtype, **options), v.astype(dtype)
    return weights @ v if np.isfinite(v).all() else np.array([row[row != 0] @ v[row != 0] for row in weights])


def rounded_rows(x: np.ndarray, storage: int) -> np.ndarray:
    """Return the rows as a cache of this storage keeps them: float32, bfloat16, or int8 with a scale for each row."""
    if storage == 0:
        return x
    if storage == 1:
        return from_bfloat16(_halves(x))
    codes, scales = int8_rows(x)
    return codes * scales[:, None]


def _halves(x: np.ndarray) -> np.ndarray:
    """Return the nearest bfloat16 numbers, also of NaN and infinity."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return np.where(np.isnan(x), 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def int8_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and scales of rows, of which the largest magnitude is 127."""
    scales = np.abs(x).max(axis=1) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)
    return np.clip(np.rint(x * inverse[:, None]), -127, 127).astype(np.int8), scales


class Cells:
    """Keys [S,d] and values [S,e] in cells, in random order with gaps; other numbers are NaN, and int8 codes -128."""

    def __init__(self, rng: np.random.Generator, k: np.ndarray, v: np.ndarray, storage: int = 0, VL: int = 16):
        S, d, E, self.storage = len(k), k.shape[1], round_up(v.shape[1], VL), storage
        self.k, self.v = rounded_rows(k, storage), rounded_rows(v, storage)
        count = round_up(max(S, 1), CELL) // CELL
        keys, values = np.full((count * CELL, d + d % 2), np.nan, np.float32), np.zeros((count * CELL, E), np.float32)
        values[S:] = np.nan
        keys[:S, :d], values[:S, : v.shape[1]] = k, v
        if storage == 2:
            parts = [_int8_cells(keys[:, :d], S, True), _int8_cells(values, S, False)]
        else:
            parts = [x if storage == 0 else _halves(x) for x in (keys, values)]
            step = 1 if storage == 0 else 2
            lines = parts[0].reshape(count, CELL, -1, step).transpose(0, 2, 1, 3)
            parts[0] = lines[:, :d] if storage == 0 else lines
            parts = [np.ascontiguousarray(x).reshape(count, -1).view(np.uint8) for x in parts]
        self.keys, self.values = 8, 8 + 4 * parts[0].shape[1] + 20      # bytes in front of the keys, and of the values
        size, order = self.values + parts[1].shape[1] + 4, rng.permutation(count + 2)[:count]
        self.memory = np.full((count + 2, round_up(size, 4)), 0xFF, np.uint8)
        self.cells = self.memory.ctypes.data + order.astype(np.uintp) * np.uintp(self.memory.shape[1])
        for place, *both in zip(order, *parts, strict=True):
            for first, x in zip((self.keys, self.values), both, strict=True):
                self.memory[place, first : first + len(x)] = x

    def attend(self, kernels: Kernels, q: np.ndarray, out: np.ndarray, S: int, scale: float, scratch: np.ndarray,
               low: int = -FAR, high: int = FAR, bias: np.ndarray | None = None, **fields: Any) -> None:
        """Run cached attention of q [T,heads,d] -> out [T,heads,e] over S keys; fields: others of the call."""
        (T, heads, d), e = q.shape, out.shape[2]
        if bias is not None:        # [heads,T,S]
            fields |= {"bias": bias, "bias_head": stride(bias), "bias_t": stride(bias, 1), "bias_s": stride(bias, 2)}
        call = struct("CachedAttention", q=q, q_stride=stride(q), q_head=stride(q, 1), out=out, out_stride=stride(out),
                      out_head=stride(out, 1), T=T, heads=heads, S=S, d=d, e=e, low=low, high=high, cells=self.cells,
                      keys=self.keys, values=self.values, storage=self.storage, scale=scale, **fields)
        function(kernels, "cached_attention")(call, scratch)


def _int8_cells(x: np.ndarray, S: int, across: bool) -> np.ndarray:
    """Return the bytes of the codes and scales of cells, of which the first S rows are real."""
    codes, scales = np.full(x.shape, -128, np.int8), np.full(len(x), np.nan, np.float32)
    codes[:S], scales[:S] = int8_rows(x[:S])
    cells = codes.reshape(-1, CELL, x.shape[1])
    cells = np.ascontiguousarray(cells.swapaxes(1, 2) if across else cells)
    return np.concatenate([x.reshape(len(cells), -1).view(np.uint8) for x in (cells, scales)], axis=1)


def widths_of_panels(kernels: Kernels) -> list[int]:
    """Return numbers of columns around every edge of vectors and panels."""
    widths = {1} | {edge + step for edge in (kernels.VL, kernels.NR, 2 * kernels.NR) for step in (-1, 0, 1)}
    return sorted(widths | {kernels.NR + kernels.VL, kernels.NR + 3 * kernels.VL})
