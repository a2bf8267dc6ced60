"""Run single operations on a GPU: attention and linear maps in bfloat16 on tensor cores, all others in float32.

A call takes NumPy arrays, which are uploaded and whose result is downloaded, or arrays that lie on the GPU, whose
result stays there. Arrays of one call are of one kind and one dtype, as `engine.ops.arguments` checks. Off the tensor
cores, numbers in bfloat16 are widened to float32, which is exact, and the result alone is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError
from ...weights.bfloat16 import from_bfloat16
from ..ops_interface import AttentionCall
from .device import Device, recent_integers
from .kernels import attention, float32, linear, operations
from .kernels.strided_attention import per_lane, strided_attention_kernel
from .products import RECENT, BFloat16Products, HopperProducts, ScoreRule
from .score_function import score_function
from .shared_array import STORED, SharedArray
from .weights import DeviceAffine

_linear, _column_maxima = cache(float32.linear_kernel), cache(operations.column_maxima_kernel)
_norm, _softmax, _rotation = (cache(operations.unpadded_norm_kernel), cache(operations.softmax_kernel),
                              cache(operations.rotation_kernel))
_activation, _widen, _round, _sum = (cache(operations.activation_kernel), cache(operations.widen_kernel),
                                     cache(operations.round_kernel), cache(operations.sum_kernel))
_attention = lru_cache(128)(strided_attention_kernel)       # not without limit: each score function has its own

LAID_OUT_ROWS = 1024
"""From this number of rows on, weights are laid out for `wgmma`, which takes as long as reading and writing them."""
MOST_TENSOR_ROWS = 65_535 * linear.LARGE.rows
"""The most rows of a linear map on tensor cores: those of the second axis of a grid."""
LARGEST_GRID = 2**31 - 1
"""Blocks of a grid along its first axis."""


class CudaOps:
    """See `engine.backends.ops_interface.Ops`. Calls of several threads take turns on the device."""

    def __init__(self, device: Device):
        self.device = device
        self._kept: dict[tuple[int, int], tuple[np.ndarray, list[Any]]] = {}
        """By `_place`: an array of `keep`, and a list with its copy on the device once it has been used."""
        self._integers = recent_integers(device, RECENT)

    @cached_property
    def _products(self) -> BFloat16Products:
        """The kernels in bfloat16 with `mma.sync`, which read weights as they are."""
        return BFloat16Products(self.device)

    @cached_property
    def _hopper(self) -> HopperProducts | None:
        """The kernels in bfloat16 with `wgmma`, or None where they do not run."""
        return HopperProducts(self.device, most_maps=RECENT) if self.device.capability == (9, 0) else None

    def keep(self, arrays: Iterable[np.ndarray]) -> None:
        """See `Ops.keep`: each is uploaded at its first use, and stays on the device."""
        for array in arrays:
            if array.size:
                self._kept.setdefault(_place(array), (array, []))

    def attention(self, call: AttentionCall) -> Any:
        """Return softmax(scores) v, [B,H,T,e]; a query that sees no key gets zeros."""
        if _suits_tensor_cores(call):
            return self._tensor_attention(call)
        score = None if call.score_mod is None else score_function(call, self.device.capability)
        B, H, T, d = call.q.shape
        e, strided = call.v.shape[3], (call.q, call.k, call.v, call.bias, call.mask)
        with self._call(call.q) as at:
            # Heads of width 0 have no numbers.
            numbers = [at.dummy if x is None or not x.size else at.view(x) for x in (call.q, call.k, call.v, call.bias)]
            mask = self.device.allocate((1,), np.uint8) if call.mask is None else at.view(call.mask)
            strides = [step for x in strided for step in ([0] * 4 if x is None else _strides(x))]
            layout = at.upload(np.array([H, call.k.shape[1], T, d, e, call.bias is not None, call.mask is not None,
                                         call.softcap != 0, *strides], np.int64))
            bands = at.upload(np.array([call.low, call.high, call.lengths], np.int64))
            out = at.allocate(B * H * T * e)
            further = [] if score is None else [at.upload(x) if x.ndim else x[()] for x in score.arrays]
            kernel = _attention(per_lane(max(d, e)), *([] if score is None else [score.function, score.types]))
            self._launch(kernel, operations.row_grid(B * H * T), *numbers, mask, bands, layout,
                         np.float32(call.scale), np.float32(call.softcap), out, *further)
            return at.result(out, (B, H, T, e))

    def _tensor_attention(self, call: AttentionCall) -> Any:
        """Compute `attention` on tensor cores, for a call that suits them."""
        (B, H, T, d), (G, S) = call.q.shape, call.k.shape[1:3]
        left, right = (int(np.clip(side, -attention.UNBOUNDED, attention.UNBOUNDED))
                       for side in (-call.low[0], call.high[0] - 1))
        with self._call(call.q) as at:
            arrays: tuple[Any, ...] = call.q, call.k, call.v
            q, k, v = (at.operand(x, d) for x in arrays)
            out = self.device.allocate((B * H * T, d), np.uint16)
            limits = self._integers(*call.lengths.tolist()).reshape(B, 1)
            products = self._hopper or self._products
            products.separate_attention(q, k, v, out, (H, G, T, S), limits,
                                        ScoreRule(call.scale, (left, right), call.softcap))
            return at.rounded(out, (B, H, T, d))

    def linear(self, x: Any, weight: Any, bias: Any, activation: str | None, residual: Any) -> Any:
        """Return activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N].

        weight: float32, or NumPy's uint16 with the bits of bfloat16; x stays as it is.
        """
        (M, K), N = x.shape, len(weight)
        if M == 0 or N == 0:
            return np.empty((M, N), np.float32)
        if isinstance(x, SharedArray) and x.dtype == "bfloat16" and K % 8 == 0 == N % 8 and M <= MOST_TENSOR_ROWS:
            return self._tensor_linear(x, weight, bias, activation, residual)
        with self._call(x) as at:
            # A map without inputs is one with an input of 0.
            operands = [at.matrix(a) if K else at.zeros((len(a), 1)) for a in (x, weight)]
            out = at.allocate(M * N).reshape(M, N)
            addend = at.dummy.reshape(1, 1) if residual is None else at.matrix(residual)
            self._launch(_linear(activation, residual is not None), float32.linear_grid(M, N), *operands,
                         at.zeros((N,)) if bias is None else at.view(bias), addend, out)
            return at.result(out, (M, N))

    def _tensor_linear(self, x: Any, weight: Any, bias: Any, activation: str | None, residual: Any) -> Any:
        """Compute `linear` on tensor cores, for arrays in bfloat16 on the GPU and sizes that are multiples of 8."""
        (M, K), N = x.shape, len(weight)
        with self._call(x) as at:
            operand, products = at.operand(weight, K), self._products
            if self._hopper and M >= LAID_OUT_ROWS:
                operand, products = self._hopper.lay_out(operand), self._hopper
            affine = DeviceAffine(operand, at.zeros((N,)) if bias is None else at.view(bias))
            out = self.device.allocate((M, N), np.uint16 if residual is None else np.float32)
            products.linear(at.operand(x, K), affine, out, activation)
            if residual is not None:
                sums, out = out.reshape(M * N), self.device.allocate((M * N,), np.uint16)
                self._launch(_sum(), operations.number_grid(M * N), sums, at.operand(residual, N).reshape(M * N), out)
            return at.rounded(out, (M, N))

    def columns(self, weight: np.ndarray, bias: np.ndarray | None) -> DeviceAffine:
        """Return a map on the device, in the form that `column_maxima` reads."""
        with self._call(weight) as at:
            return DeviceAffine(at.matrix(weight) if weight.size else at.zeros((len(weight), max(1, weight.shape[1]))),
                                at.zeros((max(1, len(weight)),)) if bias is None else at.view(bias))

    def column_maxima(self, parts: Sequence[np.ndarray], columns: DeviceAffine) -> np.ndarray:
        """Return the largest number of each column of part weight^T + bias, for each of B parts [T_i,K]: [B,N]."""
        N, K = columns.weight.shape
        starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        if not len(parts) or not N:
            return np.empty((len(parts), N), np.float32)
        with self._call(parts[0]) as at:
            rows = np.concatenate(parts) if starts[-1] else np.zeros((1, K), np.float32)
            out = at.allocate(len(parts) * N).reshape(len(parts), N)
            self._launch(_column_maxima(), operations.column_maxima_grid(len(parts), N), at.matrix(rows),
                         columns.weight, columns.bias, at.upload(starts.astype(np.int32)), out)
            return np.asarray(at.result(out, (len(parts), N)))

    def layer_norm(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        """Return LayerNorm over the last axis of x [M,D]."""
        return self._norm(x, weight, bias, eps, rms=False)

    def rms_norm(self, x: Any, weight: Any, eps: float) -> Any:
        """Return RMSNorm over the last axis of x [M,D]."""
        return self._norm(x, weight, None, eps, rms=True)

    def _norm(self, x: Any, weight: Any, bias: Any, eps: float, *, rms: bool) -> Any:
        """Compute `rms_norm` or `layer_norm`."""
        kernel = _norm(rms=rms, weighted=weight is not None, biased=bias is not None)

        def launch(at: _Call, rows: Any, out: Any) -> None:
            affine = [at.dummy if numbers is None else at.view(numbers) for numbers in (weight, bias)]
            self._launch(kernel, operations.row_grid(len(rows)), rows, *affine, np.float32(eps), out)

        return self._of_rows(x, launch)

    def softmax(self, x: Any) -> Any:
        """Return the softmax over the last axis of x [M,N]; -inf becomes 0, also in a row of nothing but -inf."""
        def launch(at: _Call, rows: Any, out: Any) -> None:
            self._launch(_softmax(), operations.row_grid(len(rows)), rows, out)

        return self._of_rows(x, launch)

    def _of_rows(self, x: Any, launch: Callable[[_Call, Any, Any], None]) -> Any:
        """Return the result [M,D] of a kernel that maps rows x [M,D] to rows; launch: (call, rows, out) queues it."""
        if not x.size:
            return np.empty(x.shape, np.float32)
        with self._call(x) as at:
            out = at.allocate(x.size).reshape(*x.shape)
            launch(at, at.matrix(x), out)
            return at.result(out, x.shape)

    def activate(self, activation: str, x: Any) -> Any:
        """Return activation(x) for x of any shape."""
        return self._of_numbers(_activation(activation), x, None)

    def gate(self, activation: str, x: Any, y: Any) -> Any:
        """Return activation(x) * y, where x and y have the same shape."""
        return self._of_numbers(_activation(activation, gated=True), x, y)

    def _of_numbers(self, kernel: Any, x: Any, y: Any) -> Any:
        """Return the result of a kernel that maps each number of x, and of y unless it is None, to a number."""
        if not x.size:
            return np.empty(x.shape, np.float32)
        with self._call(x) as at:
            out = at.allocate(x.size)
            self._launch(kernel, operations.number_grid(x.size), at.flat(x), at.dummy if y is None else at.flat(y), out)
            return at.result(out, x.shape)

    def rotate(self, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
        """Return x [B,H,T,d] with its first r columns rotated by cos, sin [B,T,r/2], whose strides may be 0."""
        B, H, T, d = x.shape
        batched = B > 1 and _strides(cos)[0] != 0
        with self._call(x) as at:
            tables = [at.matrix(_tables(table, batched)) for table in (cos, sin)]
            out = at.allocate(x.size).reshape(B * H * T, d)
            self._launch(_rotation(interleaved), operations.number_grid(x.size), at.flat(x).reshape(B * H * T, d),
                         *tables, np.int32(H), np.int32(T), np.int32(batched), out)
            return at.result(out, x.shape)

    def _launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
        """Queue a kernel; raises `UnsupportedError` for a grid that is larger than a GPU allows."""
        if grid[0] > LARGEST_GRID or math.prod(grid[1:]) > 65535:
            raise UnsupportedError(f"the kernel {kernel.name} takes {grid} blocks for arrays of this size, and a GPU "
                                   f"has at most {LARGEST_GRID} x 65535; pass fewer rows at a time")
        self.device.launch(kernel, grid, *arguments)

    @contextmanager
    def _call(self, first: Any) -> Iterator[_Call]:
        """Take the turn of the device for one call; first: its first array, which says where the others lie."""
        with self.device.turn:
            self.device.activate()
            yield _Call(self.device, first, self._kept)


class _Call:
    """Brings the arrays of one call to the device, and its result to where the arguments lie."""

    def __init__(self, device: Device, first: Any, kept: dict[tuple[int, int], tuple[np.ndarray, list[Any]]]):
        """first: the first argument, which says where all of them and the result lie. kept: `CudaOps._kept`."""
        self._device, self._kept = device, kept
        self._stays = first.dtype if isinstance(first, SharedArray) else None
        """The dtype of the result that stays on the device; None for a result in the memory of the host."""

    @property
    def dummy(self) -> Any:
        """An argument of float32 that a kernel does not use."""
        return self._device.allocate((1,), np.float32)

    def allocate(self, count: int) -> Any:
        """Return a new float32 array [count]."""
        return self._device.allocate((count,), np.float32)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Return zeros in float32."""
        return self.upload(np.zeros(shape, np.float32))

    def upload(self, array: np.ndarray) -> Any:
        """Return a copy on the device of an array of the host."""
        return self._device.upload(array)

    def view(self, x: Any) -> Any:
        """Return the flat array in float32, or uint8 for a mask, in which an array lies with its `_strides`."""
        if not isinstance(x, SharedArray):
            return self._uploaded(_stored_numbers(x))
        if x.dtype != "bfloat16":
            return x.flat
        wide = self.allocate(x.flat.shape[0])
        self._device.launch(_widen(), operations.number_grid(x.flat.shape[0]), x.flat, wide)
        return wide

    def flat(self, x: Any) -> Any:
        """Return all numbers of an array in order, float32 [n]."""
        return self.view(x.contiguous() if isinstance(x, SharedArray) else np.ascontiguousarray(x))

    def matrix(self, x: Any) -> Any:
        """Return an array [M,D] on the device, in float32."""
        return self.flat(x).reshape(*x.shape)

    def operand(self, x: SharedArray, width: int) -> Any:
        """Return the rows [n,width] of an array in bfloat16, at an address that is a multiple of 16."""
        flat = x.contiguous().flat
        if self._device.pointer(flat) % 16:
            flat, given = self._device.allocate((x.size,), flat.dtype), flat
            self._device.copy(flat, given)
        return flat.reshape(x.size // width, width)

    def rounded(self, out: Any, shape: tuple[int, ...]) -> SharedArray:
        """Return a finished result in bfloat16, which stays on the device."""
        self._device.wait()
        return SharedArray(self._device, out.reshape(math.prod(shape)), shape, "bfloat16")

    def result(self, flat: Any, shape: tuple[int, ...]) -> Any:
        """Return a finished result where the arguments of the call lie."""
        count = math.prod(shape)
        flat = flat.reshape(count)
        if self._stays is None:
            return self._device.download(flat).reshape(shape)
        if self._stays == "bfloat16":
            rounded = self._device.allocate((count,), STORED["bfloat16"])
            self._device.launch(_round(), operations.number_grid(count), flat, rounded)
            return self.rounded(rounded, shape)
        self._device.wait()
        return SharedArray(self._device, flat, shape, self._stays)

    def _uploaded(self, flat: np.ndarray) -> Any:
        """Return a copy on the device, which stays there for an array that is kept; bfloat16 becomes float32."""
        _, copies = self._kept.get(_place(flat), (flat, []))
        if not copies:
            copies.append(self.upload(from_bfloat16(flat) if flat.dtype == np.uint16 else flat))
        return copies[0]


def _suits_tensor_cores(call: AttentionCall) -> bool:
    """Return whether the kernels in bfloat16 compute a call: see docs/ops.md."""
    arrays: tuple[Any, ...] = call.q, call.k, call.v
    q, k, v = arrays
    cap = call.softcap / call.scale if call.scale > 0 else 0.0      # as the kernels take it, in float32
    return (isinstance(q, SharedArray) and q.dtype == "bfloat16" and 1e-30 < call.scale < 1e30
            and (call.softcap == 0 or 1e-30 < cap < 1e30)
            and call.bias is None and call.mask is None and call.score_mod is None
            and q.shape[3] == v.shape[3] and q.shape[3] in attention.WIDTHS
            and len(set(call.low.tolist())) == len(set(call.high.tolist())) == 1
            and max(q.size // q.shape[3], k.size // k.shape[3]) < 2**31
            and max(q.shape[2], k.shape[2]) <= attention.UNBOUNDED)


def _place(array: np.ndarray) -> tuple[int, int]:
    """Return the address and the bytes of an array, a key that is unique as long as the array exists."""
    return array.ctypes.data, array.nbytes


def _stored_numbers(x: np.ndarray) -> np.ndarray:
    """Return the numbers of a strided array that are uploaded, in order: each number that a broadcast repeats, once."""
    own = x[tuple(slice(0, 1) if step == 0 else slice(None) for step in x.strides)]
    numbers = np.ascontiguousarray(own).reshape(-1)
    return numbers.view(np.uint8) if x.dtype == bool else numbers       # the kernels read a mask as bytes


def _strides(x: Any) -> list[int]:
    """Return the strides, in elements, with which the flat array of `_Call.view` is read."""
    if isinstance(x, SharedArray):
        return list(x.strides)
    strides, step = [], 1
    for n, bytes_apart in zip(reversed(x.shape), reversed(x.strides), strict=True):
        strides.append(step if bytes_apart else 0)
        step *= n if bytes_apart else 1
    return strides[::-1]


def _tables(table: Any, batched: bool) -> Any:
    """Return cosines or sines [B,T,r/2] as rows: of each sequence, or those of the first one for all."""
    if not batched:
        table = table.view((1, *table.shape[1:]), table.strides) if isinstance(table, SharedArray) else table[:1]
    return table.reshape(-1, table.shape[2])
