"""Mistakes in the kernels that Numba compiles. Each is compiled anew, because the cache depends on the sources."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="numba-norm-tail",
        what="The last numbers of a row that is no whole number of vectors are left out of its mean.",
        file="engine/backends/numba_cpu/kernels/lanes.py",
        right="    return v_add(sum, v_loadn(x + i, min(n, VL)))",
        wrong="    return v_add(sum, v_loadn(x + i, min(n // VL * VL, VL)))",
        tests="tests/backends/kernels/test_rowwise.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_rowwise.py::test_layer_norm",
            "tests/backends/kernels/test_rowwise.py::test_layer_norm_of_a_constant_row_is_its_bias",
        ),
    ),
    Mistake(
        name="numba-interleaved-angles",
        what="Neighbours are rotated by the angles of every second pair.",
        file="engine/backends/numba_cpu/kernels/rotary.py",
        right="rotate_neighbours(x + 2 * i, cos + i, sin + i, out + 2 * i, n)",
        wrong="rotate_neighbours(x + 2 * i, cos + i // 2, sin + i // 2, out + 2 * i, n)",
        tests="tests/backends/kernels/test_rotary.py -k numba",
        caught_by=("tests/backends/kernels/test_rotary.py::test_every_width",),
    ),
    Mistake(
        name="numba-empty-softmax",
        what="A row of -inf becomes NaN, and not zeros.",
        file="engine/backends/numba_cpu/kernels/softmax.py",
        right="scale = v_set1(np.float32(1.0) / total if total != 0 else np.float32(0.0))",
        wrong="scale = v_set1(np.float32(1.0) / total)",
        tests="tests/backends/kernels/test_softmax.py -k numba",
        caught_by=("tests/backends/kernels/test_softmax.py::test_a_row_of_minus_infinity_gives_zeros",),
    ),
    Mistake(
        name="numba-gelu-tanh",
        what="Two digits of the constant of the tanh form of GELU are swapped.",
        file="engine/backends/numba_cpu/kernels/elementwise.py",
        right="cubic = v_fma(v_mul(v_mul(x, x), x), v_set1(0.044715), x)",
        wrong="cubic = v_fma(v_mul(v_mul(x, x), x), v_set1(0.044751), x)",
        tests="tests/backends/kernels/test_rowwise.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_rowwise.py::test_activation_is_within_an_ulp_of_its_argument",
            "tests/backends/kernels/test_rowwise.py::test_activation_at_every_width",
        ),
    ),
    Mistake(
        name="numba-band-upper-edge",
        what="A query sees one key behind its window.",
        file="engine/backends/numba_cpu/kernels/scores.py",
        right="x = v_select(v_less(v_set1(key - np.float32(call.high)), query), x, hidden)",
        wrong="x = v_select(v_less(v_set1(key - np.float32(call.high) - ONE), query), x, hidden)",
        tests="tests/backends/kernels/test_attention_options.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_attention_options.py::test_band",
            "tests/backends/kernels/test_attention_options.py::test_bias_and_mask_of_any_strides",
        ),
    ),
    Mistake(
        name="numba-lowest-of-a-row",
        what="The range of a row in int8 begins at the largest of the lanes' smallest numbers.",
        file="engine/backends/numba_cpu/kernels/int8.py",
        right="lowest = -v_largest(v_sub(v_set1(0.0), least))",
        wrong="lowest = v_largest(least)",
        tests="tests/backends/kernels/test_int8.py -k numba",
        caught_by=("tests/backends/kernels/test_int8.py::test_codes_of_every_width",),
    ),
    Mistake(
        name="numba-bias-of-every-slice",
        what="The bias of a linear map is added in the last slice of the depth alone, over what was in its place.",
        file="engine/backends/numba_cpu/kernels/linear.py",
        right="bias = y.bias + p * NR if s == 0 else null()",
        wrong="bias = y.bias + p * NR if final else null()",
        tests="tests/backends/kernels/test_linear.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_linear.py::test_around_every_slice_of_the_depth",
            "tests/backends/kernels/test_linear.py::test_a_residual_is_added_once_to_several_slices",
        ),
    ),
    Mistake(
        name="numba-context-of-older-keys",
        what="The context of older ranges is not corrected for a new maximum.",
        file="engine/backends/numba_cpu/kernels/ranges.py",
        right="v_fma(v_load(context + k), new, v_mul(v_load(total + k), old))",
        wrong="v_fma(v_load(context + k), new, v_load(total + k))",
        tests="tests/backends/kernels/test_cached_attention.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_cached_attention.py::test_around_every_block_of_keys",
            "tests/backends/kernels/test_cached_attention.py::test_bias_and_softcap",
        ),
    ),
    Mistake(
        name="numba-factor-of-the-embeddings",
        what="The embeddings of a decoder are not multiplied by their factor.",
        file="engine/backends/numba_cpu/kernels/embed.py",
        right="x = v_mul(v_set1(table.factor), entries(storage, table, row, row * D + i, n))",
        wrong="x = entries(storage, table, row, row * D + i, n)",
        tests="tests/families/test_vectors.py -k 'gemma_new and numba'",
        caught_by=("tests/families/test_vectors.py::test_a_ragged_batch_and_each_alone",),
    ),
    Mistake(
        name="numba-hidden-in-entropy",
        what="The entropy of attention lacks the term of the weights themselves.",
        file="engine/backends/numba_cpu/kernels/weigh.py",
        right="nats = ZERO if empty else natural_logarithm(total) - b.context[i] * LN_2 / total",
        wrong="nats = ZERO if empty else natural_logarithm(total)",
        tests="tests/backends/kernels/test_weigh.py -k numba",
        caught_by=(
            "tests/backends/kernels/test_weigh.py::test_every_head_width",
            "tests/backends/kernels/test_weigh.py::test_around_every_block_of_queries",
        ),
    ),
    Mistake(
        name="numba-kernels-for-tests",
        what="Compiled kernels that are there for tests, in plain C, stand beside Numba's.",
        file="engine/backends/numba_cpu/compiled.py",
        right="[name for name in isa.fastest_first() if name not in isa.FOR_TESTS]",
        wrong="[name for name in isa.fastest_first() if name]",
        tests="tests/backends/numba_cpu/test_compiled.py -k fastest_set",
        caught_by=("tests/backends/numba_cpu/test_compiled.py::test_the_fastest_set_with_these_vectors",),
    ),
    Mistake(
        name="numba-beside-unfused-kernels",
        what="Compiled kernels that round twice stand beside Numba's, which have portable bits.",
        file="engine/backends/numba_cpu/compiled.py",
        right="    if kernels.fused != FUSED:",
        wrong="    if kernels.fused and not FUSED:",
        tests="tests/backends/numba_cpu/test_compiled.py -k same_rounding",
        caught_by=("tests/backends/numba_cpu/test_compiled.py::test_portable_bits_need_the_same_rounding",),
    ),
)
