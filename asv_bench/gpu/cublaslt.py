"""Call cuBLASLt by ctypes, as competitor and reference of the engine's linear layers; only this benchmark uses it.

cuBLASLt's matrices are column-major: a row-major out [N, M] is a column-major M x N matrix, w^T x, with both operands'
depth contiguous in memory, and the bias belongs to its rows. Its GELU is the tanh form, and a bias has the type of the
output (cuBLAS 13.0, cublasLtMatmul).
"""

from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

FLOAT32, BFLOAT16 = 0, 14  # cudaDataType_t
_COMPUTE_FLOAT32 = 68  # cublasComputeType_t
_TRANSPOSED = 1  # cublasOperation_t
_TRANSPOSE_A, _EPILOGUE, _BIAS = 3, 7, 8  # cublasLtMatmulDescAttributes_t
_WITH_BIAS, _WITH_BIAS_AND_GELU = 4, 36  # cublasLtEpilogue_t
_LARGEST_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
WORKSPACE = 32 << 20
"""Bytes of device memory that a GEMM may use as workspace."""


class _Heuristic(Structure):
    """The struct cublasLtMatmulHeuristicResult_t; the algorithm comes first."""

    _fields_ = (("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("status", c_int), ("waves", c_float),
                ("reserved", c_int * 4))


_ARGUMENTS = {
    "cublasLtCreate": [POINTER(c_void_p)],
    "cublasLtMatmulDescCreate": [POINTER(c_void_p), c_int, c_int],
    "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatrixLayoutCreate": [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64],
    "cublasLtMatmulPreferenceCreate": [POINTER(c_void_p)],
    "cublasLtMatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulAlgoGetHeuristic": [c_void_p] * 7 + [c_int, POINTER(_Heuristic), POINTER(c_int)],
    "cublasLtMatmul": [c_void_p] * 13 + [c_void_p, c_size_t, c_void_p],
}


def load() -> CDLL:
    """Load the library of the wheel nvidia-cublas or of the system's toolkit; raises if there is none."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    path = load_nvidia_dynamic_lib("cublasLt").abs_path
    assert path is not None
    library = CDLL(path)
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    return library


class Linear:
    """A linear layer out = x w^T + bias, or gelu_tanh of it, or + residual; it is planned once for its sizes and bias.

    N, M, K: x is bfloat16 [N, K], w bfloat16 [M, K], both row-major; M and K are multiples of 8 bias: address of [M],
    with the type of out residual: True: out is float32 and a float32 residual [N, M] is added; False: out is bfloat16
    """

    def __init__(self, library: CDLL, N: int, M: int, K: int, bias: int, *, gelu: bool = False, residual: bool = False):
        if gelu and residual:
            raise ValueError("cuBLASLt would add the residual before GELU; choose one")
        self._library, self._residual = library, residual
        self._handle = self._made("cublasLtCreate")
        self._product = self._made("cublasLtMatmulDescCreate", _COMPUTE_FLOAT32, FLOAT32)
        self._set("MatmulDesc", self._product, _TRANSPOSE_A, c_int32(_TRANSPOSED))
        self._set("MatmulDesc", self._product, _EPILOGUE, c_int32(_WITH_BIAS_AND_GELU if gelu else _WITH_BIAS))
        self._set("MatmulDesc", self._product, _BIAS, c_void_p(bias))
        self._w = self._made("cublasLtMatrixLayoutCreate", BFLOAT16, K, M, K)
        self._x = self._made("cublasLtMatrixLayoutCreate", BFLOAT16, K, N, K)
        self._out = self._made("cublasLtMatrixLayoutCreate", FLOAT32 if residual else BFLOAT16, M, N, M)
        preference = self._made("cublasLtMatmulPreferenceCreate")
        self._set("MatmulPreference", preference, _LARGEST_WORKSPACE, c_size_t(WORKSPACE))
        self._best, found = _Heuristic(), c_int()
        self._call("cublasLtMatmulAlgoGetHeuristic", self._handle, self._product, self._w, self._x, self._out,
                   self._out, preference, 1, byref(self._best), byref(found))
        if not found.value:
            raise RuntimeError(f"cuBLASLt has no way to multiply [{N}, {K}] by [{K}, {M}] with this epilogue")

    def __call__(self, x: int, w: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Queue one GEMM of matrices given by address.

        residual is ignored if the layer has none; workspace has `WORKSPACE` bytes.
        """
        alpha, beta = c_float(1), c_float(1 if self._residual else 0)
        self._call("cublasLtMatmul", self._handle, self._product, byref(alpha), w, self._w, x, self._x, byref(beta),
                   residual if self._residual else out, self._out, out, self._out, byref(self._best),
                   workspace, WORKSPACE, stream)

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with cublasStatus_t {status}")

    def _made(self, name: str, *arguments: Any) -> c_void_p:
        handle = c_void_p()
        self._call(name, byref(handle), *arguments)
        return handle

    def _set(self, kind: str, target: c_void_p, attribute: int, value: Any) -> None:
        self._call(f"cublasLt{kind}SetAttribute", target, attribute, byref(value), sizeof(value))
