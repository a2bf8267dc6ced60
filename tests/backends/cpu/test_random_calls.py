"""Random calls of `engine.ops` and `Engine.forward` on every instruction set, made for the sanitizers (Makefile)."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import ops
from engine.model.config import ACTIVATIONS
from engine.model.precision import ROUNDED
from engine.ops import arguments

from ...ops.problems import LAYOUTS, lay_out, problems
from ...tools.encoders import engine_of
from ...tools.tiny_models import D, P, V, random_model

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
native_ops = pytest.importorskip("engine.backends.cpu.native_ops")

ISA = st.sampled_from(isa.available())
SEED = st.integers(0, 2**32 - 1)
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@contextmanager
def operations_on(name: str, threads: int):
    """Let `engine.ops` run on the kernels of this name, on as many threads as there is work for."""
    native = native_ops.NativeOps(isa.load(name), threads)
    with patch.object(arguments, "_ops", lambda *_: native):
        yield


def check(call, name, *, rtol=1e-4, atol=1e-5):
    """Compare a call on one set of kernels with the reference, and its bits on one and on four threads."""
    expected = call("reference")
    with operations_on(name, 1):
        out = call(None)
    with operations_on(name, 4):
        np.testing.assert_array_equal(call(None), out)
    np.testing.assert_allclose(out, expected, rtol=rtol, atol=atol * max(1, np.abs(expected).max(initial=0)))


@settings(max_examples=60, **RELAXED)
@given(problem=problems(longest=300, widest=70), name=ISA)
def test_attention(problem, name):
    """Scores can be so steep that float32 picks another key: places of NaN, and bits on any threads."""
    expected = problem.call(ops.attention, backend="reference")
    results = []
    for threads in (1, 4):
        with operations_on(name, threads):
            results.append(problem.call(ops.attention))
    np.testing.assert_array_equal(*results)
    assert results[0].shape == expected.shape
    np.testing.assert_array_equal(np.isnan(results[0]), np.isnan(expected))


@st.composite
def matrices(draw, *shapes):
    """Draw float arrays of any layout with numbers from a seed; a letter of a shape stands for one size."""
    rng = np.random.default_rng(draw(SEED))
    sizes = {letter: draw(st.integers(1, 200)) for letter in sorted(set("".join(shapes)))}
    return [lay_out(rng.standard_normal([sizes[letter] for letter in shape], np.float32),
                    draw(st.sampled_from([own for own in LAYOUTS if own != "broadcast"])), rng) for shape in shapes]


ACTIVATION = st.sampled_from([None, *ACTIVATIONS])


@settings(max_examples=60, **RELAXED)
@given(arrays=matrices("MK", "NK", "N", "MN"), activation=ACTIVATION, extras=st.sets(st.integers(2, 3)), name=ISA)
def test_linear(arrays, activation, extras, name):
    x, weight, bias, residual = (array if i < 2 or i in extras else None for i, array in enumerate(arrays))
    check(lambda backend: ops.linear(x, weight, bias, activation=activation, residual=residual, backend=backend), name)


@settings(max_examples=60, **RELAXED)
@given(arrays=matrices("MD", "D", "D"), which=st.integers(0, 6), name=ISA)
def test_rows_and_elements(arrays, which, name):
    x, weight, bias = arrays
    check([lambda backend: ops.layer_norm(x, weight, bias, backend=backend),
           lambda backend: ops.rms_norm(x, weight, backend=backend),
           lambda backend: ops.softmax(x, backend=backend),
           lambda backend: ops.softmax(x, axis=0, backend=backend),
           lambda backend: ops.gelu(x, backend=backend),
           lambda backend: ops.gelu(x, approximate="tanh", backend=backend),
           lambda backend: ops.silu(x, backend=backend)][which], name)  # fmt: skip


@settings(max_examples=40, **RELAXED)
@given(data=st.data(), interleaved=st.booleans(), name=ISA)
def test_rotary(data, interleaved, name):
    B, H, T, half = (data.draw(st.integers(1, most)) for most in (3, 3, 40, 40))
    rng = np.random.default_rng(data.draw(SEED))
    x = lay_out(rng.standard_normal((B, H, T, 2 * half + data.draw(st.integers(0, 3))), np.float32),
                data.draw(st.sampled_from(LAYOUTS[:4])), rng)  # fmt: skip
    positions = data.draw(st.sampled_from([None, rng.integers(-9, 500, T), rng.integers(0, 500, (B, T))]))
    check(lambda backend: ops.rotary(x, positions=positions, width=2 * half, interleaved=interleaved,
                                     backend=backend), name)  # fmt: skip


MODELS = {changes: random_model(seed=1, **dict(changes))
          for changes in ((), (("max_positions", 0), ("position_table", False), ("token_types", 0)),
                          (("gated", True), ("norm", "rms"), ("norm_bias", False), ("norm_place", "pre")))}  # fmt: skip


@st.composite
def forwards(draw, with_positions: bool):
    """Draw the arguments of `forward`: an array with any mask, a list of any lengths, ids or embeddings."""
    rng = np.random.default_rng(draw(SEED))
    B, longest = draw(st.integers(0, 6)), P if with_positions else 200
    as_list = draw(st.booleans())
    lengths = [draw(st.integers(0, longest)) for _ in range(B)] if as_list else [draw(st.integers(0, longest))] * B

    def of(make, *more):
        rows = [make((T, *more)) for T in lengths]
        return rows if as_list else np.array(rows).reshape(B, lengths[0] if B else 0, *more)

    given = {}
    if draw(st.booleans()):
        given["input_ids"] = of(lambda shape: rng.integers(0, V, shape))
    else:
        given["inputs_embeds"] = of(lambda shape: rng.standard_normal(shape, np.float32), D)
    if draw(st.booleans()):
        given["attention_mask"] = of(lambda shape: rng.integers(0, 2, shape))
    if with_positions and draw(st.booleans()):
        given["token_type_ids"] = of(lambda shape: rng.integers(0, 2, shape))
    if with_positions and draw(st.booleans()):
        given["position_ids"] = of(lambda shape: rng.integers(0, P, shape))
    return given


@settings(max_examples=80, **RELAXED)
@given(data=st.data(), changes=st.sampled_from(list(MODELS)), name=ISA, max_tokens=st.sampled_from([200, 8192]),
       precision=st.sampled_from(ROUNDED))
def test_forward(data, changes, name, max_tokens, precision):
    model, given = MODELS[changes], data.draw(forwards("token_types" not in dict(changes)))
    with patch.object(isa, "chosen", lambda: isa.load(name)):
        results = [engine_of(model, backend="cython", threads=threads, max_batch_tokens=max_tokens,
                          precision=precision).forward(**given) for threads in (1, 2)]  # fmt: skip
    expected = engine_of(model, backend="reference").forward(**given)
    for one, two, exact in zip(*results, expected, strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.shape == exact.shape
        assert np.isfinite(one).all()
        if precision == "float32":
            np.testing.assert_allclose(one, exact, rtol=1e-3, atol=1e-3)
