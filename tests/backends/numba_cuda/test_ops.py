"""Test `engine.ops` with backend="cuda" on the emulated device, against the reference."""

import functools
import math

import numpy as np
import pytest

from engine import InputError, UnsupportedError, ops
from engine.backends.numba_cuda.ops import CudaOps
from engine.backends.numba_cuda.shared_array import SharedArray
from engine.backends.reference.ops import ReferenceOps
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.emulated_device import EmulatedDevice
from ...tools.gpu_arrays import DlpackArray, InterfaceArray

B, H, G, T, S, d, e = 2, 4, 2, 3, 5, 6, 7
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape, np.float32)


q, k, v = normal(B, H, T, d), normal(B, G, S, d), normal(B, G, S, e)
x, weight, bias = normal(17, 20), normal(5, 20), normal(5)
mask = rng.random((B, 1, T, S)) > 0.3
up, gate, down = normal(9, 20), normal(9, 20), normal(5, 9)


def farther_is_worse(score, b, h, q_index, kv_index, slopes, first=1):
    return score - slopes[h] * abs(q_index - kv_index) if kv_index != first else -math.inf


SLOPES = functools.partial(farther_is_worse, slopes=np.arange(4.0))
LAYER = {f"attention.{name}.weight": normal(8, 8) for name in ("query", "key", "value", "output")}
LAYER |= {"ffn.up.weight": normal(4, 8), "ffn.gate.weight": normal(4, 8), "ffn.down.weight": normal(8, 4),
          "attention.norm.weight": normal(8), "ffn.norm.weight": normal(8), "attention.key.bias": normal(8)}
CALLS = {
    "attention": lambda a, **on: ops.attention(*map(a, (q, k, v)), **on),
    "all options": lambda a, **on: ops.attention(*map(a, (q, k, v)), causal=True, q_offset=[1, 2], softcap=5.0,
                                                 scale=0.7, bias=a(normal_bias), mask=a(mask), **on),
    "window": lambda a, **on: ops.attention(*map(a, (q, k, v)), window=(1, 0), kv_lengths=[5, 2], **on),
    "score_mod": lambda a, **on: ops.attention(*map(a, (q, k, v)), score_mod=SLOPES, **on),
    "one head of many columns": lambda a, **on: ops.attention(*map(a, (wide, wide, wide)), **on),
    "linear": lambda a, **on: ops.linear(*map(a, (x, weight, bias)), activation="gelu", residual=a(residual), **on),
    "ffn": lambda a, **on: ops.ffn(*map(a, (x, up, down)), gate=a(gate), activation="silu", **on),
    "layer_norm": lambda a, **on: ops.layer_norm(a(x), a(up[0]), a(gate[0]), **on),
    "rms_norm": lambda a, **on: ops.rms_norm(a(x), **on),
    "softmax": lambda a, **on: ops.softmax(a(q), axis=1, **on),
    "gelu": lambda a, **on: ops.gelu(a(q), approximate="tanh", **on),
    "relu": lambda a, **on: ops.relu(a(q), **on),
    "rotary": lambda a, **on: ops.rotary(a(q), width=4, **on),
    "rotary of a table": lambda a, **on: ops.rotary(a(q), cos=a(angles), sin=a(angles), interleaved=True, **on),
    "multi_head_attention": lambda a, **on: ops.multi_head_attention(
        a(x[None, :4, :8]), {name: a(LAYER[f"attention.{name}"]) for name in PROJECTIONS}, num_heads=2, **on),
    "encoder_layer": lambda a, **on: ops.encoder_layer(
        a(x[None, :4, :8]), {name: a(array) for name, array in LAYER.items()}, num_heads=2, **on),
}
PROJECTIONS = [f"{name}.weight" for name in ("query", "key", "value", "output")]
normal_bias, wide, residual, angles = normal(H, T, S), normal(1, 1, 2, 70), normal(17, 5), normal(B, T, 3)


@pytest.mark.parametrize("name", CALLS)
def test_operations(name, emulated):
    """NumPy arrays, and arrays of both kinds on the GPU, with the same bits; bfloat16 within its rounding."""
    call = CALLS[name]
    expected = call(np.asarray, backend="reference")
    found = call(np.asarray, backend="cuda")
    assert type(found) is np.ndarray
    assert found.shape == expected.shape
    close(found, expected, 1e-5)
    shared = call(on_gpu, backend="cuda")
    assert isinstance(shared, SharedArray)
    assert shared.dtype == "float32"
    assert np.array_equal(shared.numpy(), found)
    rounded = call(rounded_on_gpu, backend="cuda")
    assert rounded.dtype == "bfloat16"
    close(rounded.numpy(), call(rounded_on_host, backend="reference"), 2e-2)


def close(found, expected, tolerance):
    assert np.abs(found - expected).max() <= tolerance * max(1, np.abs(expected).max())


def on_gpu(array):
    return (InterfaceArray if array.dtype == np.float32 else DlpackArray)(np.ascontiguousarray(array))


def rounded_on_gpu(array):
    return DlpackArray(array if array.dtype == bool else to_bfloat16(array))


def rounded_on_host(array):
    return array if array.dtype == bool else from_bfloat16(to_bfloat16(array))


@pytest.fixture
def launched(emulated, monkeypatch):
    """Return the names of the kernels that the emulated device has launched."""
    names, launch = [], emulated.launch
    monkeypatch.setattr(emulated, "launch", lambda kernel, *rest: (names.append(kernel.name), launch(kernel, *rest)))
    return names


TENSOR_ATTENTION = {        # capability, width, queries, keys, options
    "a prefix": ((8, 0), 32, 3, 5, {"causal": True, "q_offset": 2, "kv_lengths": [5, 3]}),
    "two tiles": ((8, 0), 64, 70, 66, {"window": (9, 1), "softcap": 2.0}),
    "two tiles of Hopper": ((9, 0), 64, 130, 131, {"causal": True}),
    "no key, and a cap": ((9, 0), 128, 3, 5, {"kv_lengths": [0, 4], "softcap": 2.0, "scale": 0.5}),
}


@pytest.mark.parametrize("name", TENSOR_ATTENTION)
def test_attention_on_tensor_cores(name, emulated, launched):
    """It reads heads where they lie, with fewer heads of keys, and never what lies behind a sequence's keys."""
    emulated.capability, width, queries, keys, options = TENSOR_ATTENTION[name]
    heads = 4 if queries < 64 else 2
    arrays = [normal(2, n, rows, width) for n, rows in ((heads, queries), (heads // 2, keys), (heads // 2, keys))]
    bits = list(map(to_bfloat16, arrays))
    for array in bits[1:]:
        for b, limit in enumerate(options.get("kv_lengths", [])):
            array[b, :, limit:] = 0x7FC0        # NaN
    found = ops.attention(*map(DlpackArray, bits), backend="cuda", **options)
    way = "wgmma apart" if emulated.capability == (9, 0) else "apart"
    tile = 128 if queries > 64 and "softcap" not in options else 64
    assert launched == [f"attention {way} d={width} rows={tile}{' capped' * ('softcap' in options)}"]
    assert found.dtype == "bfloat16"
    close(found.numpy(), ops.attention(*map(rounded_on_host, arrays), backend="reference", **options), 1e-2)


@pytest.mark.parametrize(("rows", "capability", "kernels"), [
    (9, (9, 0), ["linear few 16 silu"]), (130, (9, 0), ["linear 128x128 silu"]),
    (1024, (9, 0), ["lay out", "linear wgmma 128x256 silu"])])
def test_linear_on_tensor_cores(rows, capability, kernels, emulated, launched):
    emulated.capability = capability
    a, w, b = normal(rows, 40), normal(24, 40), normal(24)
    found = ops.linear(*map(rounded_on_gpu, (a, w, b)), activation="silu", backend="cuda")
    assert [name for name in launched if name != "widen"] == kernels      # widen: the bias
    close(found.numpy(), ops.linear(*map(rounded_on_host, (a, w, b)), activation="silu", backend="reference"), 5e-3)


def test_operands_at_odd_addresses_are_copied(emulated):
    a, w, addend = normal(3, 16), normal(8, 16), normal(3, 8)
    memory = np.zeros(2 * 9 * 16, np.uint16)
    first = next(i for i in range(8) if (memory.ctypes.data + 2 * i) % 16 == 2)
    weights = memory[first:first + 128].reshape(8, 16)
    weights[:] = to_bfloat16(w)
    found = ops.linear(rounded_on_gpu(a), DlpackArray(weights), residual=rounded_on_gpu(addend), backend="cuda")
    expected = ops.linear(*map(rounded_on_host, (a, w)), residual=rounded_on_host(addend), backend="reference")
    close(found.numpy(), expected, 5e-3)


@pytest.mark.parametrize("options", [{"q_offset": [0, 1], "causal": True}, {"scale": -1.0},
                                     {"mask": np.ones((3, 5), bool)}])
def test_attention_in_bfloat16_off_the_tensor_cores(options, launched):
    arrays = [normal(2, 2, rows, 32) for rows in (3, 5, 5)]
    on_device = {name: rounded_on_gpu(x) if name == "mask" else x for name, x in options.items()}
    found = ops.attention(*map(rounded_on_gpu, arrays), backend="cuda", **on_device)
    assert "strided attention 1" in launched
    close(found.numpy(), ops.attention(*map(rounded_on_host, arrays), backend="reference", **options), 1e-2)


def test_what_a_query_sees(emulated):
    """NaN in a hidden value stays hidden; a query that sees no key gets zeros; a score of -inf hides."""
    values = v.copy()
    values[:, :, 4] = np.nan
    hidden = np.zeros((T, S), bool)
    hidden[1:, :4] = True
    for options in ({"mask": hidden}, {"bias": np.where(hidden, np.float32(0), np.float32(-np.inf))}):
        found = ops.attention(q, k, values, backend="cuda", **options)
        close(found, ops.attention(q, k, values, backend="reference", **options), 1e-5)
        assert not found[:, :, 0].any()
    seen = ops.attention(q, k, values, backend="cuda")
    assert np.isnan(seen).all()


def test_softmax_of_infinities_and_nan(emulated):
    rows = np.array([[-np.inf, 1, 2], [-np.inf] * 3, [np.nan, 1, 2]], np.float32)
    found = ops.softmax(rows, backend="cuda")
    assert np.allclose(found, ops.softmax(rows, backend="reference"), equal_nan=True)
    assert not found[1].any()


def test_column_maxima_keep_nan():
    parts = [x[:3], x[:0], x]
    weights = np.where(np.arange(5)[:, None] == 2, np.float32(np.nan), weight)
    with np.errstate(invalid="ignore"):
        found = (cuda := CudaOps(EmulatedDevice())).column_maxima(parts, cuda.columns(weights, bias))
    assert np.allclose(found, ReferenceOps().column_maxima(parts, (weights, bias)), equal_nan=True, atol=1e-5)
    assert np.isneginf(found[1]).all()


def test_no_numbers(emulated):
    """NumPy arrays without elements give what they do on other backends; no kernel is launched."""
    emulated.launch = None
    for call in (lambda backend: ops.linear(x[:0], weight, backend=backend),
                 lambda backend: ops.softmax(q[:, :0], backend=backend),
                 lambda backend: ops.attention(q, k[:, :, :0], v[:, :, :0], backend=backend)):
        assert np.array_equal(call("cuda"), call("reference"))


def test_arrays_that_are_kept_are_uploaded_once():
    device = EmulatedDevice()
    uploads, copy = [], device.copy
    device.copy = lambda target, source: uploads.append(source.size) or copy(target, source)
    cuda = CudaOps(device)
    cuda.keep([weight])
    first = cuda.linear(x[:2], weight, None, None, None)
    assert uploads.count(weight.size) == 1
    assert np.array_equal(cuda.linear(x[:2], weight, None, None, None), first)
    assert uploads.count(weight.size) == 1
    cuda.linear(x[:2], weight.copy(), None, None, None)
    assert uploads.count(weight.size) == 2


def complain(score, b, h, q_index, kv_index):
    return score + open("file")


@pytest.mark.parametrize(("score_mod", "error", "told"), [
    (complain, UnsupportedError, "score_mod complain cannot be compiled for a GPU: "),
    (lambda score, b, h, q_index, kv_index: score > 0, InputError, "must return a number, not bool; .* the score -inf"),
    (functools.partial(farther_is_worse, slopes=np.arange(3.0)), InputError,
     "failed at b=0, h=3, .*IndexError: index 3 is out of bounds"),
    (functools.partial(farther_is_worse, slopes="steep"), InputError, "slopes to be a number or .* array, got str"),
    (max, InputError, "expected a plain function"),
])
def test_score_functions_that_no_gpu_runs(score_mod, error, told, emulated):
    with pytest.raises(error, match=told):
        ops.attention(q, k, v, score_mod=score_mod, backend="cuda")
    assert ops.attention(q, k, v, score_mod=SLOPES, backend="cuda").shape == (B, H, T, e)


DOUBLE = np.ones((2, 3))
REFUSED = {
    "NumPy after the GPU": (lambda: ops.linear(on_gpu(x), weight, backend="cuda"),
                            "weight must lie on the GPU, as x does, and it is a ndarray on the host"),
    "the GPU after NumPy": (lambda: ops.linear(x, on_gpu(weight), backend="cuda"),
                            "weight must be a NumPy array, as x is, and it lies on the GPU"),
    "a mask of NumPy": (lambda: ops.attention(*map(on_gpu, (q, k, v)), mask=mask, backend="cuda"),
                        "mask must lie on the GPU, as q does"),
    "a mask on the GPU": (lambda: ops.attention(q, k, v, mask=on_gpu(mask), backend="cuda"),
                          "mask must be a NumPy array, as q is"),
    "another backend": (lambda: ops.gelu(on_gpu(q), backend="reference"), "x lies on a GPU, which backend="),
    "no backend": (lambda: ops.gelu(on_gpu(q)), "x lies on a GPU, which backend='cuda' alone reads; pass"),
    "two dtypes": (lambda: ops.linear(on_gpu(x), rounded_on_gpu(weight), backend="cuda"),
                   "weight must be float32, as x is, not bfloat16"),
    "float16": (lambda: ops.gelu(InterfaceArray(q.astype(np.float16)), backend="cuda"),
                r"x must be float32 or bfloat16 on the GPU, not float16; convert it .* with x.float\(\)"),
    "integers": (lambda: ops.gelu(InterfaceArray(np.arange(3)), backend="cuda"), "x must be float32 .*, not int64"),
    "float64": (lambda: ops.gelu(InterfaceArray(DOUBLE), backend="cuda"), "x must be float32 .*, not float64"),
    "a float mask": (lambda: ops.attention(*map(on_gpu, (q, k, v)), mask=on_gpu(normal_bias), backend="cuda"),
                     "mask must be bool on the GPU, not float32"),
    "strides": (lambda: ops.attention(on_gpu(q), InterfaceArray(k.transpose(0, 1, 3, 2)), on_gpu(v), backend="cuda"),
                r"k must be contiguous on the GPU, and its strides are .*k.contiguous\(\)"),
    "strides of DLPack": (lambda: ops.gelu(DlpackArray(x[:, ::2]), backend="cuda"), r"strides are \[20, 2\] elements"),
    "zero size": (lambda: ops.gelu(InterfaceArray(q[:0]), backend="cuda"), r"x has no elements, by its shape \[0, 4"),
    "another GPU": (lambda: ops.gelu(DlpackArray(q, gpu=3), backend="cuda"),
                    "x lies on GPU 3, and the backend cuda computes on GPU 0"),
    "a gradient": (lambda: ops.gelu(DlpackArray(q, error=BufferError("it has\n a gradient")), backend="cuda"),
                   "x cannot be read on the GPU: it has a gradient"),
    "a mask of its own": (lambda: ops.gelu(InterfaceArray(q, mask=1), backend="cuda"), "x must be a plain array"),
    "another rank": (lambda: ops.attention(on_gpu(x), on_gpu(k), on_gpu(v), backend="cuda"),
                     r"q must have the shape \[B,H,T,d\].*not \[17, 20\]"),
    "a bias of another width": (lambda: ops.attention(*map(on_gpu, (q, k, v)), bias=on_gpu(normal(H, T, S + 1)),
                                                      backend="cuda"),
                                r"bias must broadcast to \[B,H,T,S\], here \[2, 4, 3, 5\], and \[4, 3, 6\] does not"),
    "a bias of another size": (lambda: ops.linear(*map(on_gpu, (x, weight, bias[1:])), backend="cuda"),
                               r"bias must have the shape \[N\].*not \[4\]"),
    "T5's table": (lambda: ops.relative_position_bias(on_gpu(x), 3), "table must be a NumPy array, and it lies on"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arrays_that_are_refused(name, emulated):
    call, told = REFUSED[name]
    with pytest.raises(InputError, match=told):
        call()


def test_memory_of_no_gpu_and_of_another_one(emulated):
    emulated.memory = {q.ctypes.data: None, k.ctypes.data: 1}
    with pytest.raises(InputError, match=r"x names the address 0x.*, at which no GPU has memory of this process"):
        ops.gelu(InterfaceArray(q), backend="cuda")
    with pytest.raises(InputError, match="x lies on GPU 1"):
        ops.gelu(InterfaceArray(k), backend="cuda")


def test_the_stream_of_an_array_is_waited_for(emulated):
    """DLPack gets the stream that will read the array; the stream of the array interface is waited for."""
    waited = []
    emulated.wait_for = waited.append
    given = DlpackArray(q)
    ops.gelu(given, backend="cuda")
    assert given.stream == emulated.stream
    ops.gelu(InterfaceArray(q, stream=5), backend="cuda")
    ops.gelu(InterfaceArray(q, stream=None), backend="cuda")
    assert waited == [5, None]
