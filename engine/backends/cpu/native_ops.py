"""Run single operations on NumPy arrays with one kernel table; see `engine.backends.ops_interface.Ops`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..ops_interface import AttentionCall
from ..score_mods import check_results, compiled
from .native import native
from .native.layout import ACTIVATIONS
from .native.native import Kernels, NormWeights, PackedLinear, Product


class Columns(NamedTuple):
    """A packed map for `column_maxima`, and the number N of its columns without padding."""

    map: PackedLinear
    N: int


class NativeOps:
    """The operations, on up to `threads` threads.

    Arguments are float32, and the weights of `linear` also bfloat16. An argument is copied only if the kernels cannot
    read its layout.
    """

    def __init__(self, kernels: Kernels, threads: int, portable: bool = False,
                 load: Callable[[str], Kernels] | None = None):
        """load: returns the kernels of another precision, where `kernels` has the float32 product alone; it is called
        once for each precision that `linear` needs.
        """
        self._kernels, self._threads = kernels, threads
        self._portable, self._load = portable, load
        self._products: dict[str, Product] = {}     # by precision

    def keep(self, arrays: Iterable[np.ndarray]) -> None:
        """Do nothing: arrays are read where they are."""

    def attention(self, call: AttentionCall) -> np.ndarray:
        """Return softmax(scores) v, [B,H,T,e]; a query that sees no key gets zeros."""
        B, H, T, d = call.q.shape
        S, e = call.v.shape[2:]
        out = np.empty((B, H, T, e), np.float32)
        if out.size == 0 or S == 0:
            out[:] = 0
            return out
        # Heads of width 0 have scores of 0, as heads with one column of zeros have, which the kernel can read.
        q, k = (call.q, call.k) if d else (np.zeros((*x.shape[:3], 1), np.float32) for x in (call.q, call.k))
        bias = call.bias if call.bias is None or _has_float_strides(call.bias) else call.bias.copy()
        mask = None if call.mask is None else call.mask.view(np.uint8)
        code = compiled(call.score_mod)
        native.attention(self._kernels, _unit_rows(q), _unit_rows(k), _unit_rows(call.v), out, call.scale, call.softcap,
                         call.low, call.high, call.lengths, bias, mask, code.address if code else 0,
                         code.captured if code else 0, self._threads)
        if code and code.failed:        # raises if it failed for a key that a query sees
            check_results(call, out)
        return out

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """Return activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N]. Every call packs the weights.

        weight: float32, or uint16 with the bits of bfloat16; CPUs that multiply bfloat16 then round x, too.
        """
        (M, K), N = x.shape, len(weight)
        if K == 0:      # an input of 0 in place of none, because the kernels need one
            return self.linear(np.zeros((M, 1), np.float32), np.zeros((N, 1), np.float32), bias, activation, residual)
        if activation and residual is not None:     # the kernel adds the residual before the activation
            return self.linear(x, weight, bias, activation, None) + residual
        padding = -N % self._kernels.VL
        out = np.empty((M, N + padding), np.float32)
        if out.size == 0:
            return out[:, :N]
        bias = np.zeros(N + padding, np.float32) if bias is None else _pad_last_axis(bias, padding)
        residual = None if residual is None else _pad_last_axis(residual, padding)
        precision, operands = "float32" if weight.dtype == np.float32 else "bfloat16", None
        product = self._products.get(precision) or self._product(precision)
        if product.converts:
            rows = -(-min(M, product.block) // product.strip) * product.strip      # rows of a block: whole strips
            floats = rows * product.operands_stride(K) * product.operand_bytes // 4
            operands = _aligned_floats(self._threads * floats).reshape(self._threads, floats)
        native.linear(product, _unit_rows(x), _contiguous(weight).view(np.uint8), bias,
                      ACTIVATIONS[activation] if activation else 0, residual, out,
                      _aligned_floats(product.packed_bytes(N + padding, K) // 4), operands, self._threads)
        return out[:, :N].copy() if padding else out

    def _product(self, precision: str) -> Product:
        """Return the product of a precision, and keep it for later calls."""
        kernels = self._load(precision) if self._load else self._kernels
        product = self._products[precision] = kernels.product(precision, portable=self._portable)
        return product

    def columns(self, weight: np.ndarray, bias: np.ndarray | None) -> Columns:
        """Return the map packed in panels, which take as much memory as the weight [N,K]."""
        N, K = weight.shape
        padding, product = -N % self._kernels.VL, self._kernels.fma
        bias = np.zeros(N + padding, np.float32) if bias is None else _pad_last_axis(bias, padding)
        packed = PackedLinear(product, np.zeros(product.packed_bytes(N + padding, K), np.uint8), K, bias)
        if N:
            packed.fill(_contiguous(weight))
        return Columns(packed, N)

    def column_maxima(self, parts: Sequence[np.ndarray], columns: Columns) -> np.ndarray:
        """Return the largest number of each column of part weight^T + bias, for each of B parts [T_i,K]: [B,N]."""
        out = np.empty((len(parts), columns.map.columns), np.float32)
        if out.size:
            native.column_maxima(self._kernels, columns.map, tuple(map(_unit_rows, parts)), out, self._threads)
        return out[:, : columns.N]

    def layer_norm(self, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
        """Return LayerNorm over the last axis of x [M,D]."""
        out = np.empty(x.shape, np.float32)
        native.layer_norm(self._kernels, _norm(x.shape[1], weight, bias, eps), _unit_rows(x), out, self._threads)
        return out

    def rms_norm(self, x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
        """Return RMSNorm over the last axis of x [M,D]."""
        out = np.empty(x.shape, np.float32)
        native.rms_norm(self._kernels, _norm(x.shape[1], weight, None, eps), _unit_rows(x), out, self._threads)
        return out

    def softmax(self, x: np.ndarray) -> np.ndarray:
        """Return the softmax over the last axis of x [M,N]; -inf becomes 0, also in a row of nothing but -inf."""
        out = np.empty(x.shape, np.float32)
        native.softmax(self._kernels, _unit_rows(x), out, self._threads)
        return out

    def activate(self, activation: str, x: np.ndarray) -> np.ndarray:
        """Return activation(x) for x of any shape."""
        out = np.empty(x.shape, np.float32)
        native.activate(self._kernels, ACTIVATIONS[activation], _contiguous(x).reshape(-1), out.reshape(-1),
                        gate=None, threads=self._threads)
        return out

    def gate(self, activation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return activation(x) * y, where x and y have the same shape."""
        out = np.empty(x.shape, np.float32)
        native.activate(self._kernels, ACTIVATIONS[activation], _contiguous(x).reshape(-1), out.reshape(-1),
                        gate=_contiguous(y).reshape(-1), threads=self._threads)
        return out

    def rotate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
        """Return x [B,H,T,d] with its first r columns rotated by cos, sin [B,T,r/2], whose strides may be 0."""
        out = np.empty(x.shape, np.float32)
        cos, sin = _unit_rows(cos), _unit_rows(sin)
        if cos.strides != sin.strides:
            cos, sin = _contiguous(cos), _contiguous(sin)
        native.rotate(self._kernels, _unit_rows(x), cos, sin, interleaved, out, self._threads)
        return out


def _norm(D: int, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> NormWeights:
    """Return the weight and the bias [D] of a norm; ones and zeros stand for None."""
    return NormWeights(np.ones(D, np.float32) if weight is None else _contiguous(weight),
                       np.zeros(D, np.float32) if bias is None else _contiguous(bias), eps)


def _aligned_floats(n: int) -> np.ndarray:
    """Return memory for n floats that begins at a cache line, an address that is a multiple of 64 bytes."""
    memory = np.empty(n + 15, np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + n]


def _contiguous(x: np.ndarray) -> np.ndarray:
    """Return x, or a copy of it unless it is C-contiguous and aligned."""
    return x if x.flags.c_contiguous and x.flags.aligned else x.copy()


def _has_float_strides(x: np.ndarray) -> bool:
    """Return whether all strides of x are whole floats, in which kernels count."""
    return x.flags.aligned and not any(stride % 4 for stride in x.strides)


def _pad_last_axis(x: np.ndarray, padding: int) -> np.ndarray:
    """Return x with `padding` zeros after the end of its last axis."""
    return _contiguous(np.concatenate([x, np.zeros((*x.shape[:-1], padding), np.float32)], axis=-1) if padding else x)


def _unit_rows(x: np.ndarray) -> np.ndarray:
    """Return x, or a copy of it unless its strides are whole floats and the last stride is one float."""
    return x if x.strides[-1] == 4 and _has_float_strides(x) else x.copy()
