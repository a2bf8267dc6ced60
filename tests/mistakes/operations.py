"""Mistakes in the single operations of engine.ops, and in the reference."""

from .mistake import seed

MISTAKES = (
    seed("The result of a softmax over another axis than the last one is turned back the wrong way.",
         "engine/ops/rowwise.py",
         "reshape(moved.shape).transpose(*inverse)",
         "reshape(moved.shape).transpose(*order)",
         "tests/ops/test_every_backend.py::test_softmax_over_an_axis"),
    seed("The offset of the queries moves T5's bias to the other side.",
         "engine/ops/positions.py",
         'first = 1 - T - integer("query_offset"',
         'first = 1 - T + integer("query_offset"',
         "tests/ops/test_golden.py::test_t5_buckets",
         "tests/ops/test_golden.py::test_t5_bias"),
    seed("A causal query does not see the key at its own position.",
         "engine/ops/attention.py",
         "high = np.full(B, UNBOUNDED) if right is None else offset + right + 1",
         "high = np.full(B, UNBOUNDED) if right is None else offset + right",
         "tests/ops/test_golden.py::test_torch_attention",
         "tests/ops/test_golden.py::test_onnx_attention"),
    seed("The reference adds the epsilon of LayerNorm to the standard deviation, and not to the variance.",
         "engine/backends/reference/formulas.py",
         "normed = centred / np.sqrt(variance + eps)",
         "normed = centred / (np.sqrt(variance) + eps)",
         "tests/backends/reference/test_model_and_ops.py::test_layer_norm"),
    seed("Attention with its projections forgets the residual.",
         "engine/ops/layers.py",
         'return apply_linear(ops, joined, w["output.weight"], w["output.bias"], residual=residual)',
         'return apply_linear(ops, joined, w["output.weight"], w["output.bias"])',
         "tests/ops/test_every_backend.py::test_the_residual_of_attention_is_added"),
)
