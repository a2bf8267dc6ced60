"""Mistakes in the single operations of engine.ops, and in the reference."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="softmax-axis",
        what="The result of a softmax over another axis than the last one is turned back the wrong way.",
        file="engine/ops/rowwise.py",
        right="np.moveaxis(ops.softmax(_rows(moved)).reshape(moved.shape), -1, axis)",
        wrong="np.moveaxis(ops.softmax(_rows(moved)).reshape(moved.shape), axis, -1)",
        tests="tests/ops/test_every_backend.py",
        caught_by=("tests/ops/test_every_backend.py::test_softmax_over_an_axis",),
    ),
    Mistake(
        name="offset-of-the-bias",
        what="The offset of the queries moves T5's bias to the other side.",
        file="engine/ops/positions.py",
        right='first = 1 - T - integer("query_offset"',
        wrong='first = 1 - T + integer("query_offset"',
        tests="tests/ops/test_golden.py",
        caught_by=("tests/ops/test_golden.py::test_t5_buckets", "tests/ops/test_golden.py::test_t5_bias"),
    ),
    Mistake(
        name="own-key-hidden",
        what="A causal query does not see the key at its own position.",
        file="engine/ops/attention.py",
        right="high = np.full(B, UNBOUNDED) if right is None else offset + right + 1",
        wrong="high = np.full(B, UNBOUNDED) if right is None else offset + right",
        tests="tests/ops/test_golden.py tests/ops/test_definition.py",
        caught_by=("tests/ops/test_golden.py::test_torch_attention", "tests/ops/test_golden.py::test_onnx_attention"),
    ),
    Mistake(
        name="reference-epsilon",
        what="The reference adds the epsilon of LayerNorm to the standard deviation, and not to the variance.",
        file="engine/backends/reference/formulas.py",
        right="normed = centred / np.sqrt(variance + eps)",
        wrong="normed = centred / (np.sqrt(variance) + eps)",
        tests="tests/backends/reference/test_model_and_ops.py",
        caught_by=("tests/backends/reference/test_model_and_ops.py::test_layer_norm",),
    ),
    Mistake(
        name="residual-forgotten",
        what="Attention with its projections forgets the residual.",
        file="engine/ops/layers.py",
        right='return apply_linear(ops, joined, w["output.weight"], w["output.bias"], residual=residual)',
        wrong='return apply_linear(ops, joined, w["output.weight"], w["output.bias"])',
        tests="tests/ops/test_every_backend.py -k 'residual or multi_head'",
        caught_by=("tests/ops/test_every_backend.py::test_the_residual_of_attention_is_added",),
    ),
)
