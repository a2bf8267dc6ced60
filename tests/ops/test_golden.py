"""Test `engine.ops` against torch, transformers and ONNX; tests/golden/make/ops.py computed the values.

The tests run in float64 on the reference, so that a wrong definition cannot hide in a tolerance, and in float32 on
every backend.
"""


import numpy as np
import pytest

from engine import ops

from ..tools.paths import OPS

GOLDEN = np.load(OPS / "ops.npz")
CASES = sorted({name.partition("/")[0] for name in GOLDEN.files})


def cases(prefix):
    return [case for case in CASES if case.startswith(prefix)]


def read(case):
    """Return the values of a case by the engine's names; scalars are plain numbers."""
    ours = {"is_causal": "causal", "past": "q_offset"}
    values = {name.removeprefix(f"{case}/"): GOLDEN[name] for name in GOLDEN.files if name.startswith(f"{case}/")}
    return {ours.get(name, name): value if value.ndim else value.item() for name, value in values.items()}


def check(backend, function, values, tolerance=1e-12):
    """Compare function(values, backend) with values["out"], in each precision that the backend has."""
    expected = values.pop("out")
    for dtype in (np.float64, np.float32) if backend == "reference" else (np.float32,):
        inputs = {name: value.astype(dtype) if getattr(value, "dtype", None) in (np.float32, np.float64) else value
                  for name, value in values.items()}  # fmt: skip
        out = function(inputs, backend)
        assert out.dtype == dtype
        allowed = max(tolerance, 0 if dtype == np.float64 else 3e-6)
        np.testing.assert_allclose(out, expected, rtol=0, atol=allowed * np.abs(expected).max())


@pytest.mark.parametrize("case", cases("torch_"))
def test_torch_attention(backend, case):
    values = read(case)
    values.pop("enable_gqa", None)
    check(backend, lambda values, backend: ops.attention(**values, backend=backend), values)


@pytest.mark.parametrize("case", cases("onnx_"))
def test_onnx_attention(backend, case):
    values = read(case)
    if "kv_lengths" in values:
        values["q_offset"] = values["kv_lengths"] - values["q"].shape[2]
    check(backend, lambda values, backend: ops.attention(**values, backend=backend), values)


def test_rotary_halves(backend):
    # transformers makes its tables in float32, also for a float64 input.
    check(backend, lambda values, backend: ops.rotary(**values, backend=backend), read("rotary_halves"), 2e-4)


@pytest.mark.parametrize("given", ["tables", "positions"])
def test_rotary_interleaved(backend, given):
    values = read("rotary_interleaved")
    for name in ("cos", "sin") if given == "positions" else ("positions", "width"):
        del values[name]
    check(backend, lambda values, backend: ops.rotary(**values, interleaved=True, backend=backend), values, 1e-6)


@pytest.mark.parametrize("heads", sorted(int(name.partition("/")[2]) for name in GOLDEN.files if "alibi" in name))
def test_alibi_slopes(heads):
    slopes = ops.alibi_slopes(heads)
    assert slopes.dtype == np.float32
    np.testing.assert_allclose(slopes, GOLDEN[f"alibi/{heads}"], rtol=1e-6)


@pytest.mark.parametrize("case", cases("t5_buckets"))
def test_t5_buckets(case):
    values = read(case)
    table = np.arange(values["buckets"], dtype=np.float32)[:, None]
    options = {"bidirectional": values["bidirectional"], "max_distance": values["max_distance"]}
    # One query at position 300 sees all distances from -300 to 300.
    bias = ops.relative_position_bias(table, 1, 601, query_offset=300, **options)
    np.testing.assert_array_equal(bias[0, 0, 0], values["out"])


def test_t5_bias():
    values = read("t5_bias")
    bias = ops.relative_position_bias(values["table"], 5, 7)
    np.testing.assert_array_equal(bias, values["out"])
    np.testing.assert_array_equal(ops.relative_position_bias(values["table"], 2, 7, query_offset=3), bias[:, :, 3:5])


def test_rms_norm(backend):
    # transformers takes the mean of squares in float32, also of a float64 input.
    check(backend, lambda values, backend: ops.rms_norm(**values, backend=backend), read("rms_norm"), 1e-6)


def test_gated_mlp(backend):
    check(backend, lambda values, backend: ops.ffn(**values, activation="silu", backend=backend), read("gated_mlp"))


def test_cross_attention(backend):
    def run(values, backend):
        x, memory = values.pop("x"), values.pop("memory")
        return ops.multi_head_attention(x, values, memory, num_heads=3, backend=backend)

    check(backend, run, read("cross"))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_encoder_layer(backend, pre_norm):
    values = read("pre_norm" if pre_norm else "post_norm")
    real = (np.arange(5) < values["kv_lengths"][:, None])[..., None]
    values["out"] = values["out"] * real

    def run(values, backend):
        x, lengths = values.pop("x"), values.pop("kv_lengths")
        return real * ops.encoder_layer(
            x, values, num_heads=3, pre_norm=pre_norm, kv_lengths=lengths, backend=backend)

    check(backend, run, values)
