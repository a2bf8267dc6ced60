"""Test every backend against the reference in float64, over random shapes, options and strides.

The error may be a small multiple of the error of the reference in float32, and NaN may appear only where the reference
has NaN. The reference is not compared with itself: test_definition.py and test_golden.py test it.
"""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import ops

from .problems import LAYOUTS, Problem, lay_out, problems

EPS = np.finfo(np.float32).eps
THREADS = st.sampled_from((1, 2))


def assert_as_good(backend, out, exact, naive, floor, factor=6.0):
    """Assert equal positions of NaN, and an error of at most `factor` times the error of `naive`, or `floor`."""
    assert out.dtype == np.float32
    assert out.shape == exact.shape
    np.testing.assert_array_equal(np.isnan(out), np.isnan(exact), backend)
    errors = [np.abs(np.nan_to_num(result.astype(np.float64) - exact)).max(initial=0.0) for result in (out, naive)]
    assert errors[0] <= factor * errors[1] + floor, f"{backend}: {errors[0]:.3g}, in plain float32 {errors[1]:.3g}"


def check_attention(backends, problem: Problem, threads=1, **more):
    """Check a problem on backends; `more` are additional options."""
    exact = problem.call(ops.attention, np.float64, backend="reference", **more)
    naive = problem.call(ops.attention, backend="reference", **more)
    largest = np.abs(problem.arrays["v"]).max(initial=0.0, where=np.isfinite(problem.arrays["v"]))
    # A sum of S terms in order has an error of about sqrt(S) roundings, and a weight as many as its score.
    roundings, unseen = 4 + problem.shape[3] ** 0.5 + problem.steepness(), ~problem.seen().any(axis=3)
    for backend in backends:
        out = problem.call(ops.attention, backend=backend, threads=threads, **more)
        assert_as_good(backend, out, exact, naive, EPS * largest * roundings)
        assert not out[unseen].any(), backend


@settings(max_examples=120, deadline=None)
@given(problem=problems(), threads=THREADS)
def test_attention(compiled_backends, problem, threads):
    check_attention(compiled_backends, problem, threads)


@settings(max_examples=8, deadline=None)
@given(problem=problems(longest=700, widest=40), threads=THREADS)
def test_attention_of_long_sequences(compiled_backends, problem, threads):
    check_attention(compiled_backends, problem, threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_query_of_a_long_sequence_has_its_own_bias_and_mask(backend, threads):
    """Threads share the queries of a head by 64 or by 256."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 300, 8), np.float32) for _ in range(3))
    bias, mask = rng.standard_normal((2, 300, 300), np.float32), rng.random((300, 300)) < 0.5
    out = ops.attention(q, k, v, bias=bias, mask=mask, backend=backend, threads=threads)
    exact = ops.attention(*(x.astype(np.float64) for x in (q, k, v)), bias=bias.astype(np.float64), mask=mask,
                          backend="reference")
    assert np.abs(out - exact).max() <= 32 * EPS * np.abs(v).max()


def relative(score, b, h, q_index, kv_index, slopes):
    return score - slopes[h] * abs(q_index - kv_index) + b


def some_hidden(score, b, h, q_index, kv_index):
    return score if (q_index + kv_index) % 3 else -np.inf


@settings(max_examples=15, deadline=None)
@given(problem=problems(longest=40, widest=20), which=st.booleans())
def test_score_mod(compiled_backends, problem, which):
    pytest.importorskip("numba", reason="a score_mod is compiled by Numba")
    slopes = ops.alibi_slopes(problem.shape[1])
    score_mod = functools.partial(relative, slopes=slopes) if which else some_hidden
    check_attention(compiled_backends, problem, score_mod=score_mod)


class Draw:
    """Draws arrays with numbers from a seed and strides of any kind."""

    def __init__(self, data):
        self.data = data
        self.rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def __call__(self, *shape, scale=1.0):
        array = self.rng.standard_normal(shape, np.float32) * np.float32(scale)
        return lay_out(array, self.data.draw(st.sampled_from(LAYOUTS[:4])), self.rng)

    def size(self, most=70, least=1):
        return self.data.draw(st.integers(least, most))

    def leading(self):
        """Draw the axes before the last."""
        return self.data.draw(st.lists(st.integers(0, 9), max_size=3))

    def maybe(self, *shape):
        return self(*shape) if self.data.draw(st.booleans()) else None

    def one_of(self, *values):
        return self.data.draw(st.sampled_from(values))


def as_float64(value):
    if isinstance(value, dict):
        return {name: as_float64(own) for name, own in value.items()}
    return value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value


def in_sizes(function, *arguments, activation=None, **options):
    """Return the result for the absolute values of all numbers: the size of the sums that the function rounds."""
    sizes = [np.abs(array) for array in arguments]
    options = {name: None if array is None else np.abs(array) for name, array in options.items()}
    return function(*sizes, **options, activation=activation and "relu", backend="reference")


def check(backends, function, *arguments, roundings=4.0, operand=None, **options):
    """Check a function; `roundings` of the largest result, or of the given operand of the last step, are allowed."""
    exact = function(*map(as_float64, arguments), **as_float64(options), backend="reference")
    naive = function(*arguments, **options, backend="reference")
    operand = exact if operand is None else operand
    floor = roundings * EPS * np.abs(np.nan_to_num(operand)).max(initial=0.0)
    for backend in backends:
        assert_as_good(backend, function(*arguments, **options, backend=backend), exact, naive, floor)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_norms(compiled_backends, data):
    draw = Draw(data)
    D = draw.size()
    x = draw(*draw.leading(), D, scale=draw.one_of(1e-3, 1.0, 1e4)) + np.float32(draw.one_of(0, 10))
    eps = draw.one_of(1e-12, 1e-5, 0.1)
    # The mean has errors of roundings of x, which matter more the smaller the deviations from the mean are.
    deviation = np.sqrt(x.var(axis=-1, dtype=np.float64) + eps)
    roundings = 4 + 4 * (np.abs(x).max(axis=-1) / deviation).max(initial=0.0)
    weight, bias = draw.maybe(D), draw.maybe(D)
    operand = np.array([1.0, *(() if weight is None else weight), *(() if bias is None else bias)])
    check(compiled_backends, ops.layer_norm, x, weight, bias, eps=eps, roundings=roundings, operand=operand)
    check(compiled_backends, ops.rms_norm, x, draw.maybe(D), eps=eps)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_softmax(compiled_backends, data):
    draw = Draw(data)
    x = draw(*draw.leading(), draw.size(600, 0), scale=draw.one_of(1e-30, 1.0, 1e4)).copy()
    x[draw.rng.random(x.shape) < draw.one_of(0, 0.5, 1)] = -np.inf
    if x.size and draw.one_of(False, True):
        x.flat[draw.rng.integers(x.size)] = np.nan
    check(compiled_backends, ops.softmax, x)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, np.int64(1)])
def test_softmax_over_an_axis(backend, axis):
    x = np.random.default_rng(0).standard_normal((3, 4, 5), np.float32)
    out = ops.softmax(x, axis=axis, backend=backend)
    weights = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out, weights / weights.sum(axis=axis, keepdims=True), rtol=2e-6)
    assert out.flags.c_contiguous
    assert ops.softmax(x[:0], axis=axis, backend=backend).shape == (0, 4, 5)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_activations(compiled_backends, data):
    draw = Draw(data)
    x = draw(*draw.leading(), draw.size(300, 0), scale=draw.one_of(1e-20, 1.0, 10.0, 1e4))
    for function in (ops.gelu, functools.partial(ops.gelu, approximate="tanh"), ops.relu, ops.silu):
        check(compiled_backends, function, x, roundings=2.0, operand=x)


def test_activation_of_a_single_number(backend):
    for function in (ops.gelu, ops.relu, ops.silu):
        out = function(np.array(2.0, np.float32), backend=backend)
        assert isinstance(out, np.ndarray)
        assert out.shape == ()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_linear(compiled_backends, data):
    draw = Draw(data)
    leading, K, N = draw.leading(), draw.size(200), draw.size(200, 0)
    activation = draw.one_of(None, "gelu", "gelu_tanh", "relu", "silu")
    options = {"activation": activation, "bias": draw.maybe(N), "residual": draw.maybe(*leading, N)}
    arrays = draw(*leading, K), draw(N, K)
    check(compiled_backends, ops.linear, *arrays, operand=in_sizes(ops.linear, *arrays, **options), **options)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_ffn(compiled_backends, data):
    draw = Draw(data)
    leading, D, F, out = draw.leading(), draw.size(), draw.size(), draw.size(70, 0)
    options = {"up_bias": draw.maybe(F), "down_bias": draw.maybe(out), "residual": draw.maybe(*leading, out)}
    if draw.one_of(False, True):
        options |= {"gate": draw(F, D), "gate_bias": draw.maybe(F)}
    options["activation"] = draw.one_of("gelu", "gelu_tanh", "relu", "silu")
    arrays = draw(*leading, D), draw(F, D), draw(out, F)
    check(compiled_backends, ops.ffn, *arrays, operand=in_sizes(ops.ffn, *arrays, **options), **options)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rotary(compiled_backends, data):
    draw = Draw(data)
    B, H, T, d = draw.size(3), draw.size(3), draw.size(20, 0), draw.size(40, 2)
    x, interleaved, width = draw(B, H, T, d), draw.one_of(False, True), 2 * draw.size(d // 2)
    # cos and sin are given, since tables made from positions would be rounded to each precision.
    cos, sin = (draw(*draw.one_of((T,), (B, T), (1, T)), width // 2) for _ in range(2))
    check(compiled_backends, ops.rotary, x, cos=cos, sin=sin, interleaved=interleaved)
    check(compiled_backends, ops.rotary, x, positions=np.arange(T) % 3 * 0.5, width=width, interleaved=interleaved)


def draw_projections(draw, D, M, H, G):
    d, e = draw.size(20), draw.size(20)
    shapes = {"query": (H * d, D), "key": (G * d, M), "value": (G * e, M), "output": (D, H * e)}
    weights = {f"{name}.weight": draw(*shape, scale=shape[1] ** -0.5) for name, shape in shapes.items()}
    return weights | {f"{name}.bias": draw(shape[0]) for name, shape in shapes.items() if draw.one_of(False, True)}


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_multi_head_attention(compiled_backends, data):
    draw = Draw(data)
    B, T, S, D, G = draw.size(3), draw.size(30, 0), draw.size(30, 0), draw.size(40), draw.size(3)
    H = G * draw.size(3)
    memory = draw.maybe(B, S, draw.size(40))
    weights = draw_projections(draw, D, D if memory is None else memory.shape[2], H, G)
    options = {"residual": draw.maybe(B, T, D), "causal": draw.one_of(False, True), "num_heads": H, "num_kv_heads": G}
    check(compiled_backends, ops.multi_head_attention, draw(B, T, D), weights, memory, **options)


def test_the_residual_of_attention_is_added(backend):
    draw = np.random.default_rng(0).standard_normal
    x, residual = draw((2, 3, 8), np.float32), draw((2, 3, 8), np.float32)
    weights = {f"{name}.weight": draw((8, 8), np.float32) for name in ("query", "key", "value", "output")}
    without = ops.multi_head_attention(x, weights, num_heads=2, backend=backend)
    added = ops.multi_head_attention(x, weights, num_heads=2, residual=residual, backend=backend)
    np.testing.assert_allclose(added, without + residual, rtol=1e-5, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_encoder_layer(compiled_backends, data):
    draw = Draw(data)
    B, T, D, F, H = draw.size(3, 0), draw.size(30, 0), draw.size(40, 2), draw.size(), draw.size(3)
    weights = {f"attention.{name}": array for name, array in draw_projections(draw, D, D, H, H).items()}
    weights |= {"ffn.up.weight": draw(F, D), "ffn.down.weight": draw(D, F), "ffn.up.bias": draw(F)}
    weights |= {f"{name}.norm.weight": draw(D) for name in ("attention", "ffn")}
    norm = draw.one_of("layer_norm", "rms_norm")
    if norm == "layer_norm":
        weights["attention.norm.bias"] = draw(D)
    if draw.one_of(False, True):
        weights["ffn.gate.weight"] = draw(F, D)
    options = {"activation": draw.one_of("gelu", "relu", "silu"), "pre_norm": draw.one_of(False, True), "norm": norm}
    # With a small eps, the norms would magnify the roundings of what comes before them.
    options |= {"num_heads": H, "kv_lengths": draw.rng.integers(0, T + 1, B), "eps": 0.1}
    check(compiled_backends, ops.encoder_layer, draw(B, T, D), weights, roundings=16, **options)
