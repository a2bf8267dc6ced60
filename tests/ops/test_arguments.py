"""Test that wrong arguments give one error with the expected and the given value; valid ones may be empty or odd."""

import numpy as np
import pytest

import engine
from engine import BackendUnavailable, InputError, UnsupportedError, ops

Q, K, V = (np.zeros((2, heads, n, d), np.float32) for heads, n, d in ((4, 5, 8), (2, 7, 8), (2, 7, 6)))
X = np.zeros((2, 5, 8), np.float32)
W = np.zeros((3, 8), np.float32)
MAPS = {"query.weight": W[:2], "key.weight": W[:2], "value.weight": W[:2], "output.weight": W[:, :2]}
LAYER = {
    **{f"attention.{name}": np.zeros((8, 8), np.float32) for name in MAPS},
    **{f"{name}.norm.weight": np.ones(8, np.float32) for name in ("attention", "ffn")},
    "ffn.up.weight": W,
    "ffn.down.weight": W.T,
}

WRONG_ATTENTION = {
    "q must be a NumPy array, not list": {"q": Q.tolist()},
    "q must be float32, not float16; convert it with q.astype(np.float32)": {"q": Q.astype(np.float16)},
    "q must be float32, not >f4": {"q": Q.astype(">f4")},
    "v must be float32, as q is, not float64": {"v": V.astype(np.float64)},
    "q must have the shape [B,H,T,d] with H at least 1 and d at least 1, not [4, 5, 8]": {"q": Q[0]},
    "k must have the shape [B,G,S,d] with B=2 and d=8 and G at least 1, not [2, 2, 7, 6]": {"k": V},
    "v must have the shape [B,G,S,e] with B=2 and G=2 and S=7, not [2, 2, 6, 6]": {"v": V[:, :, 1:]},
    "G at least 1": {"k": K[:, :0], "v": V[:, :0]},
    "d at least 1": {"q": Q[..., :0], "k": K[..., :0]},
    "the 2 heads of k and v must divide the 3 heads of q": {"q": Q[:, :3]},
    "scale must be a finite number, not nan": {"scale": np.nan},
    "scale must be a finite number, not 'big'": {"scale": "big"},
    "softcap must be a finite number of at least 0, not -1": {"softcap": -1},
    "window must be None or (left, right)": {"window": 3},
    "attention has no argument attn_mask; it is called mask if it is bool": {"attn_mask": np.ones((5, 7), bool)},
    "attention has no argument dropout_p; there is no dropout": {"dropout_p": 0.1},
    "attention has no argument causl (did you mean causal?); it has q, k, v, scale,": {"causl": True},
    "where a query may look at a key, not MaskedArray": {"mask": np.ma.ones((5, 7), bool)},
    "bias must be a plain array, not a MaskedArray": {"bias": np.ma.zeros((5, 7), np.float32)},
    "window[1] must be an int of at least 0, not -1": {"window": (None, -1)},
    "window[0] must be an int of at least 0, not 0.5": {"window": (0.5, None)},
    "mask must be a bool array, True where a query may look at a key, not int64": {"mask": np.ones((5, 7), np.int64)},
    "not list; convert it with np.asarray(mask, bool)": {"mask": [[True] * 7] * 5},
    "mask must broadcast to [B,H,T,S], here [2, 4, 5, 7], and [2, 7] does not": {"mask": np.ones((2, 7), bool)},
    "is passed as bias[:, None, None]": {"bias": np.zeros((2, 7), np.float32)},
    "[1, 1, 1, 1, 1] does not": {"bias": np.zeros((1, 1, 1, 1, 1), np.float32)},
    "bias must be float32, as q is, not float64": {"bias": np.zeros((5, 7))},
    "kv_lengths must be an int, or integers [B] with B=2, not int64 [1]": {"kv_lengths": [3]},
    "kv_lengths must be an int, or integers [B] with B=2, not bool [2]": {"kv_lengths": [True, False]},
    "kv_lengths must be from 0 to 7; it is 8 for sequence 1": {"kv_lengths": [7, 8]},
    "kv_lengths must be from 0 to 7; it is -1 for sequence 0": {"kv_lengths": -1},
    "q_offset must be an int, or integers [B] with B=2, not float64 []": {"q_offset": 1.5},
    "q_offset must be an int, or integers [B] with B=2, not object []": {"q_offset": 2**70},
    "q_offset must be from -2147483648": {"q_offset": 2**40},
    "score_mod must be a function": {"score_mod": 3},
    "threads must be None or an int of at least 1, not 0": {"threads": 0},
    "threads must be None or an int of at least 1, not <int without a short form>": {"threads": -(10**5000)},
    "causal must be True or False, not array([ True,  True])": {"causal": np.ones(2, bool)},
    "q_offset must be an int, or integers [B] with B=2, not [[1], [1, 2]]": {"q_offset": [[1], [1, 2]]},
    "backend must be None or the name of a backend, not 3": {"backend": 3},
}

WRONG_CALLS = {
    "x must have the shape [...,D] with D at least 1, not [2, 0]": lambda on: ops.layer_norm(np.zeros((2, 0)), **on),
    "weight must have the shape [D] with D=8, not [3]": lambda on: ops.layer_norm(X, W[:, 0], **on),
    "bias must have the shape [D] with D=8, not [1, 8]": lambda on: ops.layer_norm(X, None, W[:1], **on),
    "eps must be a finite number of at least 0, not -1": lambda on: ops.rms_norm(X, eps=-1, **on),
    "axis must be an int from -2 to 1, not 2": lambda on: ops.softmax(np.ones((3, 4), np.float32), axis=2, **on),
    "axis must be an int from -2 to 1, not None": lambda on: ops.softmax(np.ones((3, 4), np.float32), axis=None, **on),
    "axis is given twice, the second time by its other name dim": lambda on: ops.softmax(X, dim=-1, axis=-1, **on),
    "x must have the shape [...,N], not []": lambda on: ops.softmax(np.array(1.0, np.float32), **on),
    "approximate must be 'none' or 'tanh', not True": lambda on: ops.gelu(X, approximate=True, **on),
    "x must be a NumPy array, not float": lambda on: ops.silu(1.0, **on),
    "x must be float32, not int64": lambda on: ops.relu(np.arange(3), **on),
    "weight must have the shape [N,K] with K=8, not [8, 3]": lambda on: ops.linear(X, W.T, **on),
    "bias must have the shape [N] with N=3, not [8]": lambda on: ops.linear(X, W, W[0], **on),
    "residual must have the shape [...,N] with ...=2,5 and N=3, not [2, 5, 8]":
        lambda on: ops.linear(X, W, residual=X, **on),
    "...=nothing and N=3": lambda on: ops.linear(X[0, 0], W, residual=X, **on),
    "activation must be one of gelu, gelu_tanh, relu, silu, not 'swish'":
        lambda on: ops.linear(X, W, activation="swish", **on),
    "down must have the shape [O,F] with F=3, not [3, 8]": lambda on: ops.ffn(X, W, W, **on),
    "gate must have the shape [F,D] with F=3 and D=8": lambda on: ops.ffn(X, W, W.T, gate=W.T, **on),
    "activation must be one of": lambda on: ops.ffn(X, W, W.T, activation=None, **on),
    "width must be even and at most d=8, not 3": lambda on: ops.rotary(Q, width=3, **on),
    "width must be even and at most d=8, not 10": lambda on: ops.rotary(Q, width=10, **on),
    "at most d=7, not 7; it is d": lambda on: ops.rotary(Q[..., 1:], **on),
    "base must be a finite number of at least 1, not 0": lambda on: ops.rotary(Q, base=0, **on),
    "positions must have the shape [5] or [2, 5], not [4]": lambda on: ops.rotary(Q, positions=range(4), **on),
    "positions must be numbers": lambda on: ops.rotary(Q, positions=["a"] * 5, **on),
    "cos and sin go together; cos came alone": lambda on: ops.rotary(Q, cos=Q[0, 0], **on),
    "pass either cos and sin, or positions": lambda on: ops.rotary(Q, cos=Q[0, 0], sin=Q[0, 0], width=2, **on),
    "from 1 to d/2 = 4 columns, one for each pair, not 8": lambda on: ops.rotary(Q, cos=Q[0, 0], sin=Q[0, 0], **on),
    "sin must have the shape [5, 2] or [2, 5, 2], not [5, 3]":
        lambda on: ops.rotary(Q, cos=Q[0, 0, :, :2], sin=Q[0, 0, :, :3], **on),
    "approximate must be 'none' or 'tanh', not array([1., 1.])": lambda on: ops.gelu(X, approximate=np.ones(2), **on),
    "relu, silu, not array([1., 1.])": lambda on: ops.linear(X, W, activation=np.ones(2), **on),
    "norm must be 'layer_norm' or 'rms_norm', not array([1., 1.])":
        lambda on: ops.encoder_layer(X, LAYER, num_heads=2, norm=np.ones(2), **on),
    "pre_norm must be True or False": lambda on: ops.encoder_layer(X, LAYER, num_heads=2, pre_norm=np.ones(2), **on),
    "axis must be an int from -3 to 2, not 10": lambda on: ops.softmax(X, axis=10**400, **on),
    "interleaved must be True or False": lambda on: ops.rotary(Q, interleaved=np.ones(2), **on),
    "positions must be numbers [T] or [B,T], not [[1], [1, 2]]":
        lambda on: ops.rotary(Q, positions=[[1], [1, 2]], **on),
    "bidirectional must be True or False":
        lambda on: ops.relative_position_bias(X[0, :4], 5, bidirectional=np.ones(2)),
    "T must be at most 1,048,576, not 1099511627776": lambda on: ops.relative_position_bias(X[0, :4], 2**40),
    "S must be at most 1,048,576": lambda on: ops.relative_position_bias(X[0, :4], 5, 2**21),
    "max_distance must be at most": lambda on: ops.relative_position_bias(X[0, :4], 5, max_distance=10**400),
    "query_offset must be at most": lambda on: ops.relative_position_bias(X[0, :4], 5, query_offset=2**63),
    "num_heads must be an int of at least 1, not 0": lambda on: ops.alibi_slopes(0),
    "table must have an even number of 4 or more rows, not 3": lambda on: ops.relative_position_bias(W, 5),
    "table must have 2 or more rows, not 1": lambda on: ops.relative_position_bias(W[:1], 5, bidirectional=False),
    "max_distance must be an int of at least 2, not 1":
        lambda on: ops.relative_position_bias(X[0, :4], 5, max_distance=1),
    "T must be an int of at least 0, not -1": lambda on: ops.relative_position_bias(X[0, :4], -1),
    "weights must be a mapping": lambda on: ops.multi_head_attention(X, list(MAPS), num_heads=1, **on),
    "weights lack key.weight, lack value.weight, have an unknown 'k'": lambda on: ops.multi_head_attention(
        X, {"query.weight": W, "output.weight": W, "k": W}, num_heads=1, **on),
    "key.weight must have the shape [G*d,M] with M=4, not [2, 8]":
        lambda on: ops.multi_head_attention(X, MAPS, X[..., :4], num_heads=1, **on),
    "residual must have the shape [B,T,O] with B=2 and T=5 and O=3":
        lambda on: ops.multi_head_attention(X, MAPS, num_heads=1, residual=X, **on),
    "num_kv_heads=2 must divide num_heads=3":
        lambda on: ops.multi_head_attention(X, MAPS, num_heads=3, num_kv_heads=2, **on),
    "query.weight must have a multiple of num_heads=3 rows, not 2":
        lambda on: ops.multi_head_attention(X, MAPS, num_heads=3, **on),
    "query.weight rows, 2, and key.weight rows, 2, must be 2 and 1 heads of one width":
        lambda on: ops.multi_head_attention(X, MAPS, num_heads=2, num_kv_heads=1, **on),
    "output.weight columns, 3, and value.weight rows, 2":
        lambda on: ops.multi_head_attention(X, MAPS | {"output.weight": W[:, :3]}, num_heads=1, **on),
    "norm must be 'layer_norm' or 'rms_norm', not 'batch'":
        lambda on: ops.encoder_layer(X, LAYER, num_heads=2, norm="batch", **on),
    "have an unknown 'ffn.norm.bias'": lambda on: ops.encoder_layer(
        X, LAYER | {"ffn.norm.bias": W[0]}, num_heads=2, norm="rms_norm", **on),
    "ffn.norm.weight must have the shape [D] with D=8, not [3]":
        lambda on: ops.encoder_layer(X, LAYER | {"ffn.norm.weight": W[:, 0]}, num_heads=2, **on),
    "weights have ffn.gate.bias without ffn.gate.weight":
        lambda on: ops.encoder_layer(X, LAYER | {"ffn.gate.bias": W[:, 0]}, num_heads=2, **on),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG_ATTENTION)
def test_wrong_attention(message):
    arguments = {"q": Q, "k": K, "v": V, "backend": "reference", **WRONG_ATTENTION[message]}
    with pytest.raises(InputError) as error:
        ops.attention(**arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_wrong_calls(message):
    with pytest.raises(InputError) as error:
        WRONG_CALLS[message]({"backend": "reference"})
    assert message in str(error.value)


def test_names_of_torch():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(array.shape).astype(np.float32) for array in (Q, K, V))
    found = ops.attention(q, k, v, is_causal=True, attn_mask=None, dropout_p=0.0, enable_gqa=True, backend="reference")
    np.testing.assert_array_equal(found, ops.attention(q, k, v, causal=True, backend="reference"))
    np.testing.assert_array_equal(ops.softmax(q, dim=1), ops.softmax(q, axis=1))


def test_float64_is_for_the_reference():
    x = X.astype(np.float64)
    assert ops.softmax(x, backend="reference").dtype == np.float64
    for backend in (None, "auto", "cython"):
        with pytest.raises(UnsupportedError, match="float64, which x is, works with backend='reference' only"):
            ops.softmax(x, backend=backend)


def test_an_unknown_backend():
    with pytest.raises(BackendUnavailable, match="no backend is called 'gpu'"):
        ops.softmax(X, backend="gpu")


@pytest.mark.parametrize("shape", [(0, 2, 3, 5), (2, 2, 0, 5), (2, 2, 3, 0), (2, 2, 0, 0)], ids=str)
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": (1, 1), "q_offset": 4, "kv_lengths": 0}], ids=len)
def test_empty_attention(backend, shape, options):
    B, H, T, S = shape
    q, k, v = (np.ones((B, H, n, width), np.float32) for n, width in ((T, 4), (S, 4), (S, 6)))
    mask, bias = np.ones(shape, bool), np.zeros(shape, np.float32)
    out = ops.attention(q, k, v, mask=mask, bias=bias, backend=backend, **options)
    np.testing.assert_array_equal(out, np.zeros((B, H, T, 6), np.float32))


def test_values_of_no_width(backend):
    assert ops.attention(Q, K, V[..., :0], backend=backend).shape == (2, 4, 5, 0)


def test_fields_of_packed_records(backend):
    records = np.zeros((3, 4), np.dtype([("flag", "u1"), ("x", "<f4")]))
    records["x"] = np.arange(12).reshape(3, 4) - 5
    assert not records["x"].flags.aligned
    np.testing.assert_array_equal(ops.relu(records["x"], backend=backend), np.maximum(records["x"], 0))


def test_arguments_are_left_alone(backend):
    x = np.random.default_rng(0).standard_normal((4, 6), np.float32)
    before = x.copy()
    for out in (ops.relu(x, backend=backend), ops.softmax(x, backend=backend), ops.rms_norm(x, backend=backend),
                ops.layer_norm(x, backend=backend), ops.linear(x, x, residual=x[:, :4], backend=backend),
                ops.rotary(x[None, None], backend=backend)):  # fmt: skip
        assert not np.shares_memory(out, x)
        out[:] = 7
    np.testing.assert_array_equal(x, before)


def test_relative_position_bias_takes_little_memory():
    bias = ops.relative_position_bias(np.ones((32, 12), np.float32), 32768)
    assert bias.shape == (1, 12, 32768, 32768)
    assert bias.base is not None
    assert ops.relative_position_bias(np.ones((32, 12), np.float32), 0, 5).shape == (1, 12, 0, 5)


def test_ops_come_with_the_package():
    assert engine.ops is ops
    with pytest.raises(AttributeError, match="module 'engine' has no attribute 'opps'"):
        engine.opps  # noqa: B018


HUGE = 10**5000
"""An integer that Python refuses to print."""
FLAGS = np.array([True, False])
RAGGED = [[1], [2, 3]]

ODD_CALLS = {
    "kv_lengths must be an int, or integers [B] with B=2, not [[1]":
        lambda on: ops.attention(Q, K, V, kv_lengths=RAGGED, **on),
    "q_offset must be an int, or integers [B] with B=2, not [[1]":
        lambda on: ops.attention(Q, K, V, q_offset=RAGGED, **on),
    "positions must be numbers [T] or [B,T], not [[1]": lambda on: ops.rotary(Q, positions=RAGGED, **on),
    "kv_lengths must be an int, or integers [B] with B=2, not a MaskedArray":
        lambda on: ops.attention(Q, K, V, kv_lengths=np.ma.ones(2, int), **on),
    "positions must be numbers [T] or [B,T], not a MaskedArray":
        lambda on: ops.rotary(Q, positions=np.ma.ones(5), **on),
    "causal must be True or False, not array": lambda on: ops.attention(Q, K, V, causal=FLAGS, **on),
    "causal must be True or False, not 'no'": lambda on: ops.attention(Q, K, V, causal="no", **on),
    "interleaved must be True or False": lambda on: ops.rotary(Q, interleaved=FLAGS, **on),
    "pre_norm must be True or False": lambda on: ops.encoder_layer(X, LAYER, num_heads=2, pre_norm=FLAGS, **on),
    "bidirectional must be True or False": lambda on: ops.relative_position_bias(X[0, :4], 5, bidirectional=FLAGS),
    "norm must be 'layer_norm'": lambda on: ops.encoder_layer(X, LAYER, num_heads=2, norm=FLAGS, **on),
    "activation must be one of": lambda on: ops.linear(X, W, activation=FLAGS, **on),
    "approximate must be 'none' or 'tanh', not array": lambda on: ops.gelu(X, approximate=FLAGS, **on),
    "approximate must be 'none' or 'tanh', not <int": lambda on: ops.gelu(X, approximate=HUGE, **on),
    "axis must be an int": lambda on: ops.softmax(X, axis=HUGE, **on),
    "window must be None or": lambda on: ops.attention(Q, K, V, window=[HUGE] * 3, **on),
    "threads must be None or": lambda on: ops.softmax(X, threads=-HUGE, **on),
    "backend must be None or": lambda on: ops.softmax(X, backend=HUGE),
    "width must be even": lambda on: ops.rotary(Q, width=HUGE, **on),
    "scale must be a finite number": lambda on: ops.attention(Q, K, V, scale=10**400, **on),
    "score_mod must be a function": lambda on: ops.attention(Q, K, V, score_mod=HUGE, **on),
    "have an unknown <int": lambda on: ops.multi_head_attention(X, MAPS | {HUGE: W}, num_heads=1, **on),
    "num_heads must be at most 65,536": lambda on: ops.alibi_slopes(2**2000),
    "T must be at most 1,048,576": lambda on: ops.relative_position_bias(X[0, :4], 2**62),
    "query_offset must be at most": lambda on: ops.relative_position_bias(X[0, :4], 5, query_offset=2**70),
    "max_distance must be at most": lambda on: ops.relative_position_bias(X[0, :4], 5, max_distance=10**400),
}  # fmt: skip


@pytest.mark.parametrize("message", ODD_CALLS)
def test_arguments_that_python_itself_refuses(message):
    with pytest.raises(InputError) as error:
        ODD_CALLS[message]({"backend": "reference"})
    assert message in str(error.value)


@pytest.mark.parametrize("value", [True, 1, np.True_, np.int8(1)])
def test_flags(value):
    q = np.random.default_rng(0).standard_normal((1, 1, 3, 2), np.float32)
    expected = ops.attention(q, q, q, causal=True, backend="reference")
    np.testing.assert_array_equal(ops.attention(q, q, q, causal=value, backend="reference"), expected)
