"""Test the backend's single operations: any strides and any number of threads give the same bits."""

import numpy as np

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.native_ops import NativeOps
from engine.backends.cython_cpu import BACKEND
from engine.backends.reference.formulas import gelu
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .tools import assert_as_good, linear_in_order


def floats(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def rotate(ops, x):
    cos, sin = (np.broadcast_to(floats(i, 1, 1, 4), (1, len(x), 4)) for i in (6, 7))
    return ops.rotate(x[None, None], cos, sin, True)


OPERATIONS = {
    "layer_norm": lambda ops, x: ops.layer_norm(x, floats(1, x.shape[1]), floats(2, x.shape[1]), 1e-5),
    "rms_norm": lambda ops, x: ops.rms_norm(x, floats(1, x.shape[1]), 1e-5),
    "softmax": lambda ops, x: ops.softmax(x),
    "activate": lambda ops, x: ops.activate("silu", x),
    "gate": lambda ops, x: ops.gate("gelu", x, x[::-1]),
    "rotate": rotate,
    "linear": lambda ops, x: ops.linear(x, floats(4, 45, x.shape[1]), floats(5, 45), "relu", x[:, :45]),
}
"""Each operation on one matrix of at least 45 columns, for tests that apply to all operations."""

def odd_layouts(x):
    """Return arrays equal to x with other memory layouts."""
    M, N = x.shape
    records = np.zeros((M, N), np.dtype([("x", np.float32), ("tag", np.uint8)]))
    records["x"] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.float32, x.size, offset=1).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "columns first": np.asfortranarray(x),
        "rows reversed": x[::-1].copy()[::-1],
        "columns reversed": x[:, ::-1].copy()[:, ::-1],
        "part of a larger one": np.pad(x, ((1, 2), (3, 4)))[1 : M + 1, 3 : N + 3],
        "every second": np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2],
        "field of records": records["x"],
        "unaligned": unaligned,
        "read-only": read_only,
    }


def test_any_layout(kernels):
    for name in OPERATIONS:
        ops = NativeOps(kernels, 1)
        x = floats(0, 7, 46)
        expected = OPERATIONS[name](ops, x)
        for layout, same in odd_layouts(x).items():
            assert np.array_equal(OPERATIONS[name](ops, same), expected), (name, layout)


def test_rows_of_one_repeated(kernels):
    # The second operand of "gate" is the first one's rows in another order.
    for name in [name for name in OPERATIONS if name != "gate"]:
        ops = NativeOps(kernels, 1)
        x = floats(0, 1, 46)
        repeated = OPERATIONS[name](ops, np.broadcast_to(x, (5, 46)))
        assert np.array_equal(repeated, np.repeat(OPERATIONS[name](ops, x), 5, axis=-2))


def test_result_is_new(kernels):
    for name in OPERATIONS:
        x = floats(0, 9, 48)
        before = x.copy()
        out = OPERATIONS[name](NativeOps(kernels, 1), x)
        assert out.dtype == np.float32
        assert out.flags.c_contiguous
        assert not np.shares_memory(out, x)
        assert np.array_equal(x, before)


def test_bits_do_not_depend_on_threads(kernels):
    for name in OPERATIONS:
        x = floats(0, 1201, 230)
        alone = OPERATIONS[name](NativeOps(kernels, 1), x)
        for threads in (2, 3, 4):
            assert np.array_equal(OPERATIONS[name](NativeOps(kernels, threads), x), alone)


def test_no_rows(kernels):
    for name in OPERATIONS:
        assert OPERATIONS[name](NativeOps(kernels, 2), floats(0, 0, 46)).size == 0


EMPTY = [
    lambda ops, x: ops.layer_norm(x, None, None, 1e-5),
    lambda ops, x: ops.rms_norm(x, None, 1e-5),
    lambda ops, x: ops.softmax(x),
    lambda ops, x: ops.linear(floats(0, 3, 4), floats(1, 0, 4), None, "gelu", None),
]


def test_no_columns(kernels):
    for operation in EMPTY:
        assert operation(NativeOps(kernels, 2), np.empty((3, 0), np.float32)).shape == (3, 0)


def test_norms_without_weights(kernels):
    ops = NativeOps(kernels, 1)
    x = floats(0, 5, 37)
    ones, zeros = np.ones(37, np.float32), np.zeros(37, np.float32)
    assert np.array_equal(ops.layer_norm(x, None, None, 1e-5), ops.layer_norm(x, ones, zeros, 1e-5))
    assert np.array_equal(ops.rms_norm(x, None, 1e-5), ops.rms_norm(x, ones, 1e-5))


def test_weights_of_any_stride(kernels):
    ops = NativeOps(kernels, 1)
    x, weights, w = floats(0, 5, 37), floats(1, 37, 2), floats(2, 37, 20)
    weight, bias = weights.T
    assert np.array_equal(ops.layer_norm(x, weight, bias, 1e-5), ops.layer_norm(x, weight.copy(), bias.copy(), 1e-5))
    assert np.array_equal(ops.linear(x, w.T, None, None, None), ops.linear(x, w.T.copy(), None, None, None))


def test_elementwise_of_any_shape(kernels):
    for shape in [(), (1,), (3, 0, 2), (2, 3, 4, 5)]:
        ops = NativeOps(kernels, 1)
        x, y = np.full(shape, 3, np.float32), np.full(shape, 5, np.float32)
        assert np.array_equal(ops.activate("relu", x), x)
        assert np.array_equal(ops.gate("relu", x, y), x * y)


def test_angles_of_different_strides(kernels):
    ops = NativeOps(kernels, 1)
    x, cos, sin = floats(0, 2, 3, 5, 16), floats(1, 2, 5, 8), np.broadcast_to(floats(2, 1, 5, 8), (2, 5, 8))
    assert np.array_equal(ops.rotate(x, cos, sin, False), ops.rotate(x, cos, sin.copy(), False))


def test_linear(kernels):
    """Threads share the columns up to 64 rows, and the rows above that; the residual is added last."""
    for M in [1, 63, 64, 65, 130]:
        for N, K in ((1, 1), (45, 37), (kernels.NR, 20), (3 * kernels.NR + 1, 70)):
            x, weight, bias, residual = floats(0, M, K), floats(1, N, K), floats(2, N), floats(3, M, N)
            out = NativeOps(kernels, 2).linear(x, weight, bias, "gelu", residual)
            exact = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
            naive = linear_in_order(x, weight, bias)
            operand = np.abs(exact) + np.abs(residual)
            assert_as_good(out, gelu(exact) + residual, gelu(naive) + residual, operand=operand)


def test_linear_without_the_rest(kernels):
    ops = NativeOps(kernels, 1)
    x, weight, zeros = floats(0, 6, 33), floats(1, 21, 33), np.zeros((6, 21), np.float32)
    assert np.array_equal(ops.linear(x, weight, None, None, None), ops.linear(x, weight, zeros[0], None, zeros))


def test_an_empty_sum_is_zero(kernels):
    bias, residual = floats(0, 21), floats(1, 3, 21)
    empty = np.empty((3, 0), np.float32), np.empty((21, 0), np.float32)
    out = NativeOps(kernels, 1).linear(*empty, bias, None, residual)
    assert np.array_equal(out, bias + residual)


def test_rows_of_linear_do_not_depend_on_their_neighbours(kernels):
    for N, K in [(190, 210), (45, 1300)]:
        x, weight, bias = floats(0, 300, K), floats(1, N, K), floats(2, N)
        together = NativeOps(kernels, 4).linear(x, weight, bias, "gelu_tanh", None)
        for M in (1, 2, 64, 65, 299):
            assert np.array_equal(NativeOps(kernels, 3).linear(x[:M], weight, bias, "gelu_tanh", None), together[:M])


def test_linear_in_bfloat16(kernels):
    """Weights, and rows where a CPU has such products, are in bfloat16; rows do not depend on one another."""
    rounds = kernels.product("bfloat16").operand_bytes == 2
    for N, K in ((1, 1), (45, 37), (kernels.NR, 20), (3 * kernels.NR + 1, 70), (48, 1300)):
        x, weight, bias, residual = floats(0, 130, K), floats(1, N, K), floats(2, N), floats(3, 130, N)
        bits = to_bfloat16(weight)
        together = NativeOps(kernels, 4).linear(x, bits, bias, "gelu", residual)
        rows = from_bfloat16(to_bfloat16(x)) if rounds else x
        exact = rows.astype(np.float64) @ from_bfloat16(bits).T.astype(np.float64) + bias
        assert np.abs(together - gelu(exact) - residual).max() < 2e-6 * K + 1e-5
        for M in (1, 2, 63, 64, 65, 129):
            alone = NativeOps(kernels, 3).linear(x[:M], bits, bias, "gelu", residual[:M])
            assert np.array_equal(alone, together[:M])


def test_the_backend_offers_them():
    x = floats(0, 4, 9)
    ops = BACKEND.ops(2)
    for activation in ACTIVATIONS:
        assert np.array_equal(ops.gate(activation, x, np.ones_like(x)), ops.activate(activation, x))
