"""Finish a linear layer, on sums in tensor core registers: add the bias, apply activation, gate or residual, store.

The rows of the weights are permuted within each 16 (`PERMUTED`), so that of every two neighbouring tiles of 8 channels
a lane holds four consecutive channels. A lane stores 8 bytes of bfloat16 or 16 bytes of float32, and four lanes
together store whole sectors of 32 bytes.

With a gate, rows of the weights of the gate g and of the other map u take turns in pairs: g0, g1, u0, u1, g2, g3, u2,
u3 and so on (`interleave`). So the four channels of a lane give two results, activation(g) u, which it stores as 4
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .emulated import WARP, current, store_rows
from .inline import PtxWriter, Registers, Statement, f32, i32, i64, straight, u32
from .warp import ADD, MULTIPLY, PACK

PERMUTED = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
"""The channel, of 16, whose weights are in row i of shared memory."""


def interleave(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Return the rows of two matrices of an even number of rows, or the numbers of two vectors, in turns by pairs."""
    pairs = [part.reshape(-1, 2, *part.shape[1:]) for part in (gate, up)]
    return np.stack(pairs, axis=1).reshape(2 * len(gate), *gate.shape[1:])


def epilogue_name(activation: str, residual: bool, gate: bool, wide: bool) -> str:
    """Return the part of a kernel's name that describes its epilogue."""
    return "residual" if residual else f"{activation}{' gate' * gate}{' float32' * wide}"


def epilogues() -> Iterator[dict[str, Any]]:
    """Yield the options of every epilogue that a linear map may ask for."""
    for activation in ACTIVATIONS:
        yield from ({"activation": activation, "gate": gate, "wide": wide}
                    for gate, wide in ((False, False), (True, False), (False, True)))
    yield {"residual": True}


_BATCH = 4  # number of quads of a row whose residuals are loaded before the first one is used


def _hex(x: float) -> str:
    """Return a float32 as a PTX literal."""
    return f"0f{np.float32(x).view(np.uint32):08X}"


# Coefficients of log2(Phi(-a)), 0 <= a <= 5.5: the polynomial of degree 6 with the smallest maximum error of a Phi(-a).
_LOG2_PHI = (-1.0000052, -1.1510798, -0.45904842, -0.053178005, 0.0080011738, -0.00076105498, 3.3456985e-5)
_A = 5.5        # beyond it, a Phi(-a) is less than the error


# These functions are for the emulator; `ACTIVATIONS` has the PTX that computes the same.
def _gelu(x: np.ndarray) -> np.ndarray:
    """Return x Phi(x) = max(x, 0) - a 2^p, with p = log2(Phi(-a)) by Horner's rule."""
    a = np.minimum(np.abs(x), np.float32(_A))
    p = np.float32(_LOG2_PHI[-1])
    for coefficient in _LOG2_PHI[-2::-1]:
        p = p * a + np.float32(coefficient)
    return np.maximum(x, np.float32(0)) - a * np.exp2(p)


def _swish(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x / (1 + 2^y)."""
    return x * (1 / (1 + np.exp2(y)))


# The end of a PTX block: $0 = $1 / (1 + 2^y), for its register y; 0f3F800000 is 1.0.
_SWISH = "ex2.approx.ftz.f32 y, y; add.rn.f32 y, y, 0f3F800000; rcp.approx.ftz.f32 y, y; mul.rn.f32 $0, $1, y; }"

ACTIVATIONS = {
    "identity": None,
    "gelu": Statement(
        f"{{ .reg .f32 a, p; abs.f32 a, $1; min.NaN.f32 a, a, {_hex(_A)}; mov.f32 p, {_hex(_LOG2_PHI[-1])}; "
        + "".join(f"fma.rn.f32 p, p, a, {_hex(c)}; " for c in _LOG2_PHI[-2::-1])
        + "ex2.approx.ftz.f32 p, p; neg.f32 a, a; max.NaN.f32 $0, $1, 0f00000000; fma.rn.f32 $0, a, p, $0; }",
        (f32,), (f32,), _gelu),
    "gelu_tanh": Statement(     # -2.3022082 is -2 sqrt(2/pi) log2(e)
        f"{{ .reg .f32 y; mul.rn.f32 y, $1, $1; mul.rn.f32 y, y, $1; fma.rn.f32 y, y, {_hex(0.044715)}, $1; "
        f"mul.rn.f32 y, y, {_hex(-2.3022082)}; " + _SWISH,
        (f32,), (f32,), lambda x: _swish(x, (x * x * x * np.float32(0.044715) + x) * np.float32(-2.3022082))),
    "relu": Statement("max.NaN.f32 $0, $1, 0f00000000;", (f32,), (f32,), lambda x: np.maximum(x, np.float32(0))),
    # -1.442695 is -log2(e)
    "silu": Statement(f"{{ .reg .f32 y; mul.rn.f32 y, $1, {_hex(-1.442695)}; " + _SWISH,
                      (f32,), (f32,), lambda x: _swish(x, x * np.float32(-1.442695))),
}
"""The function of one float32 for each name; None for the identity.

gelu is x Phi(x) = max(x, 0) - a Phi(-a), a = |x|. Its error is at most 6.3e-7, and for x > -4 at most 5.2e-6 relative
(bfloat16 rounds by 4e-3), without the 2 ulp of ex2.approx. gelu_tanh is x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715
x^3).
"""

# Addresses: base + offset, and number * pitch + base
_SHIFT = Statement("add.s64 $0, $1, $2;", (i64,), (i64, i64), np.add)
_LINE = Statement("mad.lo.s64 $0, $1, $2, $3;", (i64,), (i64, i64, i64), lambda x, y, z: x * y + z)


def _load(address: np.ndarray, rows: np.ndarray, columns: np.ndarray, row: int, column: int) -> tuple[np.ndarray, ...]:
    """Do in Python what `_load_quad` does for the lanes of a warp, whose addresses, rows and columns are [32]."""
    quads = np.zeros((WARP, 4), np.float32)
    there = (rows > row) & (columns > column)
    if there.any():
        memory, places = current().block.places(address[there], 16)
        quads[there] = memory[places].view(np.float32)
    return tuple(quads.T)


def _store(address: np.ndarray, rows: np.ndarray, columns: np.ndarray, *values: np.ndarray, row: int,
           column: int) -> None:
    """Do in Python what `_store_values` does."""
    store_rows(address, np.stack(values, axis=1), (rows > row) & (columns > column))


def _load_quad(row: int, column: int, constant: bool = False) -> Statement:
    """Make a load (address, rows, columns) of four float32 if rows > row and columns > column, otherwise zeros.

    constant: True if the memory is never written
    """
    return Statement(f"{{ .reg .pred p; setp.gt.s32 p, $5, {row}; setp.gt.and.s32 p, $6, {column}, p; "
                     + "".join(f"mov.f32 ${i}, 0f00000000; " for i in range(4))
                     + f"@p ld.global{'.nc' * constant}.v4.f32 {{$0,$1,$2,$3}}, [$4]; }}",
                     (f32,) * 4, (i64, i32, i32),
                     partial(_load, row=row, column=column), memory=not constant)


def _store_values(row: int, column: int, kinds: tuple[Any, ...]) -> Statement:
    """Make a store (address, rows, columns, values), which writes if rows > row and columns > column.

    kinds: the types of one, two or four values of 4 bytes
    """
    values = ", ".join(f"${3 + i}" for i in range(len(kinds)))
    vector, values = (f".v{len(kinds)}", f"{{{values}}}") if len(kinds) > 1 else ("", values)
    return Statement(f"{{ .reg .pred p; setp.gt.s32 p, $1, {row}; setp.gt.and.s32 p, $2, {column}, p; "
                     f"@p st.global{vector}.b32 [$0], {values}; }}", (), (i64, i32, i32, *kinds),
                     partial(_store, row=row, column=column), memory=True)


def epilogue(row_tiles: int, row_step: int, column_tiles: int, activation: str, residual: bool, gate: bool = False,
             wide: bool = False) -> Any:
    """Return a function for kernels that finishes and stores a lane's sums.

        finish(sums, bias, residual, out, pitch, rows, columns)

    - sums: `cuda.local.array` float32 [row_tiles, column_tiles, 4], fragments of 16 or 64 rows by 8 channels
    - bias: address of the bias of the lane's first channel
    - residual, out: addresses of the lane's first row and channel, in matrices with `pitch` elements per row, which may
        be the same; residual is float32, and not read if there is none; out is float32 if `wide` or with a residual,
        otherwise bfloat16; with a gate it has one column for two channels
    - rows, columns: numbers of rows and channels from the lane's first on; others are neither read nor written
    - row_step: rows from a row tile to the next
    - activation: a name of `ACTIVATIONS`; with a residual, identity
    """
    if residual and (activation != "identity" or gate):
        raise ValueError(f"a residual needs activation 'identity' and no gate; got activation {activation!r}")
    if gate and wide:
        raise ValueError("the result of a gate is bfloat16")
    act = ACTIVATIONS[activation]
    wide = wide or residual
    size = 4 if wide else 2     # bytes of an element of `out`
    results = 2 if gate else 4  # results of four channels
    kinds = (f32,) * 4 if wide else (u32,) * (results // 2)

    def finished(write: PtxWriter, values: list[Any]) -> list[Any]:
        """Return the results of a lane's four channels, whose biases have been added, in float32."""
        activated = values[:results]        # the gate's channels come first
        if act:
            activated = [write(act, x)[0] for x in activated]
        return [write(MULTIPLY, x, y)[0] for x, y in zip(activated, values[2:], strict=True)] if gate else activated

    # Quad j is the lane's four consecutive channels of the 16 that two column tiles hold. Of each tile of 8 channels a
    # lane holds four sums: two channels of one row, then the same two channels of the row 8 below (half 0 and 1).
    def body(write: PtxWriter, sums: list[Any], bias: Any, res: Any, out: Any, pitch: Any, rows: Any,
             columns: Any) -> None:
        def address(base: Any, row: int, j: int) -> Any:
            (line,) = write(_LINE, pitch, write.constant(i64, size * row), base)
            return write(_SHIFT, line, write.constant(i64, 4 * results * size * j))[0]

        for start in range(0, column_tiles // 2, _BATCH):
            quads = range(start, min(start + _BATCH, column_tiles // 2))
            # A bias has no rows, so that its columns are checked in their place, too.
            biases = {j: write(_load_quad(16 * j, 16 * j, constant=True),
                               *write(_SHIFT, bias, write.constant(i64, 64 * j)), columns, columns) for j in quads}
            for tile in range(row_tiles):
                spots = [(half, tile * row_step + 8 * half, j) for half in range(2) for j in quads]
                addends = [write(_load_quad(row, 16 * j), address(res, row, j), rows, columns)
                       for _, row, j in spots] if residual else [None] * len(spots)
                for (half, row, j), addend in zip(spots, addends, strict=True):
                    first = 4 * (tile * column_tiles + 2 * j) + 2 * half
                    values = [sums[first], sums[first + 1], sums[first + 4], sums[first + 5]]   # of both tiles
                    values = finished(write, [write(ADD, x, y)[0] for x, y in zip(values, biases[j], strict=True)])
                    if addend:
                        values = [write(ADD, x, y)[0] for x, y in zip(values, addend, strict=True)]
                    if not wide:
                        values = [write(PACK, values[i], values[i + 1])[0] for i in range(0, results, 2)]
                    write(_store_values(row, 16 * j, kinds), address(out, row, j), rows, columns, *values)

    return straight(body, Registers(4 * row_tiles * column_tiles), i64, i64, i64, i64, i32, i32)
