"""Test the reference's operations against values from other sources, and its model against formulas written anew."""

import math

import numpy as np
import pytest

from engine.backends.reference import BACKEND, ReferenceBackend
from engine.backends.reference import formulas as ops
from engine.base.errors import UnsupportedError
from engine.encoding.packing import pack
from engine.model.run_config import RunConfig

from ...tools.tiny_models import random_model


def test_gelu():
    x = np.array([0.0, 1.0, -1.0, 3.0, -10.0, 40.0, -40.0])
    # x Phi(x), to 15 digits, from tables of the normal distribution
    expected = [0.0, 0.841344746068543, -0.158655253931457, 2.99595030590511, -7.61985302416052e-23, 40.0, 0.0]
    np.testing.assert_allclose(ops.gelu(x), expected, rtol=1e-14, atol=1e-300)


def test_gelu_tanh():
    np.testing.assert_allclose(
        ops.gelu_tanh(np.array([0.0, 1.0, -1.0, 30.0])), [0.0, 0.841191990608, -0.158808009392, 30.0], rtol=1e-11
    )


def test_relu():
    np.testing.assert_array_equal(ops.relu(np.array([-2.0, 0.0, 3.0])), [0.0, 0.0, 3.0])


def test_silu():
    at_1 = 1 / (1 + math.exp(-1))
    x, expected = [0.0, 1.0, -1.0, 40.0, -800.0, -np.inf], [0.0, at_1, at_1 - 1, 40.0, 0.0, 0.0]
    np.testing.assert_allclose(ops.silu(np.array(x)), expected, rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(ops.silu(np.array([-90.0], np.float32)), -90 * math.exp(-90), rtol=1e-5)  # e^90 is inf


def test_layer_norm():
    x = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    expected = np.array([[-1, 0, 1], [0, 0, 0]]) / math.sqrt(2 / 3 + 0.5)
    np.testing.assert_allclose(
        ops.layer_norm(x, np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 7.0]), 0.5), expected * [1, 2, 3] + [0, 0, 7]
    )


def test_layer_norm_far_from_zero():
    x = np.array([[1.0, 2.0, 3.0]])
    weight, bias = np.ones(3), np.zeros(3)
    np.testing.assert_allclose(ops.layer_norm(x + 2.0**26, weight, bias, 1e-12), ops.layer_norm(x, weight, bias, 1e-12))


def test_norms_without_weights():
    x = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(
        ops.layer_norm(x, None, None, 0.5), ops.layer_norm(x, np.ones(3), np.zeros(3), 0.5)
    )
    np.testing.assert_array_equal(ops.rms_norm(x, None, 0.5), ops.rms_norm(x, np.ones(3), 0.5))


def test_rms_norm():
    x = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    expected = [[1 / math.sqrt(5), 4 / math.sqrt(5), -3 / math.sqrt(5)], [0, 0, 0]]
    np.testing.assert_allclose(ops.rms_norm(x, np.array([1.0, 2.0, -1.0]), 1 / 3), expected)


def test_softmax():
    np.testing.assert_allclose(ops.softmax(np.log([[1.0, 3.0, 4.0]])), [[0.125, 0.375, 0.5]])
    np.testing.assert_allclose(ops.softmax(np.array([1000.0, 1000.0])), [0.5, 0.5])
    np.testing.assert_array_equal(ops.softmax(np.array([[-np.inf, 7.0], [-np.inf, -np.inf]])), [[0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(ops.softmax(np.array([[0.0, np.nan], [2.0, 2.0]])), [[np.nan, np.nan], [0.5, 0.5]])
    assert ops.softmax(np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.parametrize(("interleaved", "pairs"), [(True, [(0, 1), (2, 3)]), (False, [(0, 2), (1, 3)])])
def test_rotate(interleaved, pairs):
    rng = np.random.default_rng(0)
    x, angles = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 4, 2))
    out = ops.rotate(x, np.cos(angles), np.sin(angles), interleaved)
    for i, (first, second) in enumerate(pairs):
        # A pair is a complex number, rotated by multiplication with e^(i angle).
        turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles[:, None, :, i])
        np.testing.assert_allclose(out[..., first] + 1j * out[..., second], turned)
    np.testing.assert_array_equal(out[..., 4], x[..., 4])


def test_attention():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    out = ops.attention(q, k, v)
    for h in range(2):
        for t in range(5):
            weights = np.array([math.exp(q[h, t] @ k[h, s] / 2.0) for s in range(5)])
            np.testing.assert_allclose(out[h, t], weights @ v[h] / weights.sum())


def test_one_layer():
    model = random_model(num_layers=1, activation="relu", head_width=3)
    w = {name: array.astype(np.float64) for name, array in model.weights.items()}
    ids, types = np.array([7, 3, 9]), np.array([0, 1, 1])
    batch, _ = pack(model.config, ids[None], token_type_ids=types[None])

    def norm(x, name):
        centred = x - x.mean(1, keepdims=True)
        return centred / np.sqrt(x.var(1, keepdims=True) + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return np.einsum("ti,oi->to", x, w[f"layers.0.{name}.weight"]) + w[f"layers.0.{name}.bias"]

    x = norm(
        w["embeddings.word"][ids] + w["embeddings.position"][:3] + w["embeddings.token_type"][types], "embeddings.norm"
    )
    q, k, v = (linear(x, f"attention.{name}").reshape(3, 3, 3) for name in ("query", "key", "value"))
    scores = np.exp(np.einsum("thd,shd->hts", q, k) / math.sqrt(3))
    heads = np.einsum("hts,shd->thd", scores / scores.sum(2, keepdims=True), v).reshape(3, 9)
    x = norm(x + linear(heads, "attention.output"), "layers.0.attention.norm")
    x = norm(x + linear(np.maximum(linear(x, "ffn.up"), 0), "ffn.down"), "layers.0.ffn.norm")

    plan = ReferenceBackend(np.float64).prepare(model.config, model.weights, RunConfig())
    np.testing.assert_allclose(plan.forward_unrounded(batch), x, rtol=1e-10, atol=1e-12)


def test_float32_is_near_float64():
    model = random_model()
    batch, _ = pack(model.config, [[1, 2, 3], [], [4] * 16])
    exact = ReferenceBackend(np.float64).prepare(model.config, model.weights, RunConfig()).forward_unrounded(batch)
    assert exact.dtype == np.float64
    rounded = BACKEND.prepare(model.config, model.weights, RunConfig()).forward(batch)
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, atol=2e-4)


def test_other_precisions_are_refused():
    model = random_model()
    with pytest.raises(UnsupportedError, match="bfloat16"):
        BACKEND.prepare(model.config, model.weights, RunConfig(precision="bfloat16"))
