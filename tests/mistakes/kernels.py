"""Mistakes in the kernels: .pxi and .h files that are compiled for one instruction set.

Most are tried on the portable kernels, which any machine compiles in a few seconds; some concern only the tile shapes
of AVX-512 (wide) or AMX's tiles (amxemulated).
"""

from __future__ import annotations

from functools import partial

from .mistake import Mistake

_portable = partial(Mistake, build=("kernels_portable",), isa="portable")
_wide = partial(Mistake, build=("kernels_wide",), isa="wide")
_tiles = partial(Mistake, build=("kernels_amxemulated",), isa="amxemulated")

MISTAKES = (
    _portable(
        name="norm-tail-lanes",
        what="The lanes behind the end of a row count in the variance of LayerNorm.",
        file="engine/backends/cython_cpu/kernels/norm.pxi",
        right="centred = v_keep(v_sub(v_loadn(x + whole, tail), mean), tail)",
        wrong="centred = v_sub(v_loadn(x + whole, tail), mean)",
        tests="tests/backends/kernels/test_rowwise.py -k portable",
        caught_by=("tests/backends/kernels/test_rowwise.py::test_layer_norm",),
    ),
    _portable(
        name="rms-epsilon-outside",
        what="The epsilon of RMSNorm is added behind the root.",
        file="engine/backends/cython_cpu/kernels/norm.pxi",
        right="            squares = v_fma(value, value, squares)\n"
              "        scale = v_set1(1.0 / sqrtf(v_sum(squares) / norm.D + norm.eps))",
        wrong="            squares = v_fma(value, value, squares)\n"
              "        scale = v_set1(1.0 / (sqrtf(v_sum(squares) / norm.D) + norm.eps))",
        tests="tests/backends/kernels/test_rowwise.py tests/backends/kernels/test_operations.py -k portable",
        caught_by=("tests/backends/kernels/test_rowwise.py::test_rms_norm",),
    ),
    _portable(
        name="rope-second-half",
        what="The second half of each head is not rotated.",
        file="engine/backends/cython_cpu/kernels/rotary.pxi",
        right="    v_storen(out + half, turned_y(a, b, c, s), n)",
        wrong="    v_storen(out + half, b, n)",
        tests="tests/backends/kernels/test_rotary.py -k portable",
        caught_by=("tests/backends/kernels/test_rotary.py::test_every_width",),
    ),
    _portable(
        name="softmax-tail",
        what="The lanes behind the end of a row count as zeros in the maximum and the sum of a softmax.",
        file="engine/backends/cython_cpu/kernels/softmax.pxi",
        right="v_set1(<float>n)), v_loadn(x, n), v_set1(-INFINITY))",
        wrong="v_set1(<float>n)), v_loadn(x, n), v_set1(0.0))",
        tests="tests/backends/kernels/test_softmax.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_softmax.py::test_every_width",
            "tests/backends/kernels/test_softmax.py::test_large_numbers_and_large_differences",
        ),
    ),
    _portable(
        name="embedding-scale-of-row-0",
        what="All rows of an int8 table are widened with the scale of its first row.",
        file="engine/backends/cython_cpu/kernels/embed.pxi",
        right="cdef vf scale = v_set1(table.scale[row] if storage == INT8 else 1)",
        wrong="cdef vf scale = v_set1(table.scale[0] if storage == INT8 else 1)",
        tests="tests/weights/test_embedding_tables.py",
        caught_by=(
            "tests/weights/test_embedding_tables.py::test_the_bits_of_float32_tables",
            "tests/weights/test_embedding_tables.py::test_on_every_backend",
        ),
    ),
    _portable(
        name="gelu-digits",
        what="Two digits of a coefficient of GELU's polynomial are swapped.",
        file="engine/backends/cython_cpu/kernels/elementwise.pxi",
        right="pair(<float>-4.5920473e-1, <float>-5.2485343e-2, t)",
        wrong="pair(<float>-4.5920743e-1, <float>-5.2485343e-2, t)",
        tests="tests/backends/kernels/test_rowwise.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_rowwise.py::test_activation_is_within_an_ulp_of_its_argument",
            "tests/backends/kernels/test_rowwise.py::test_activation_at_every_width",
        ),
    ),
    _portable(
        name="band-lower-edge",
        what="A query sees one key before its window.",
        file="engine/backends/cython_cpu/kernels/scores.pxi",
        right="x = v_select(v_less(v_set1(key - call.low), query), hidden, x)",
        wrong="x = v_select(v_less(v_set1(key - call.low + 1), query), hidden, x)",
        tests="tests/backends/kernels/test_attention_options.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_attention_options.py::test_band",
            "tests/backends/kernels/test_attention_options.py::test_bias_and_mask_of_any_strides",
        ),
    ),
    _portable(
        name="mask-forgotten",
        what="The mask is forgotten where the scores are changed as well.",
        file="engine/backends/cython_cpu/kernels/scores.pxi",
        right="                    if call.mask != NULL:\n                        x = v_select(visible[r], x, hidden)",
        wrong="                    if call.mask != NULL and not change:\n"
              "                        x = v_select(visible[r], x, hidden)",
        tests="tests/backends/kernels/test_attention_options.py -k portable",
        caught_by=("tests/backends/kernels/test_attention_options.py::test_bias_and_mask_of_any_strides",),
    ),
    _portable(
        name="context-stays-fresh",
        what="The context of a block of queries begins anew behind keys of which some are hidden.",
        file="engine/backends/cython_cpu/kernels/attention.pxi",
        right="        add_seen_values(call, s, b, keys)\n    b.fresh = False",
        wrong="        add_seen_values(call, s, b, keys)\n    b.fresh = b.fresh and not plain",
        tests="tests/backends/kernels/test_attention_options.py tests/backends/kernels/test_attention.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_attention_options.py::test_band",
            "tests/backends/kernels/test_attention_options.py::test_softcap",
        ),
    ),
    _portable(
        name="maximum-begins-at-zero",
        what="The running maximum of attention begins at 0, so that very negative scores vanish.",
        file="engine/backends/cython_cpu/kernels/attention.pxi",
        right="v_store(b.maximum + j * VL, v_set1(-3.0e38))      # a finite number, because -inf - -inf is NaN",
        wrong="v_store(b.maximum + j * VL, v_set1(0.0))",
        tests="tests/backends/kernels/test_attention.py tests/backends/kernels/test_attention_options.py -k portable",
        caught_by=("tests/backends/kernels/test_attention.py::test_scores_far_below_zero",),
    ),
    _portable(
        name="weights-of-older-keys",
        what="The sum of the weights of older ranges is not corrected for a new maximum.",
        file="engine/backends/cython_cpu/kernels/ranges.pxi",
        right="v_fma(v_set1(range_sum), new, v_mul(v_set1(sum[0]), old))",
        wrong="v_fma(v_set1(range_sum), new, v_set1(sum[0]))",
        tests="tests/backends/kernels/test_cached_attention.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_cached_attention.py::test_around_every_block_of_keys",
            "tests/backends/kernels/test_cached_attention.py::test_bias_and_softcap",
        ),
    ),
    _portable(
        name="residual-of-every-slice",
        what="The residual is added once for each slice of the depth.",
        file="engine/backends/cython_cpu/kernels/linear.pxi",
        right="t.residual = residual + row * out.stride if final and residual != NULL else NULL",
        wrong="t.residual = residual + row * out.stride if residual != NULL else NULL",
        tests="tests/backends/kernels/test_linear.py tests/backends/kernels/test_bfloat16.py -k portable",
        caught_by=("tests/backends/kernels/test_linear.py::test_a_residual_is_added_once_to_several_slices",),
    ),
    _portable(
        name="odd-depth-of-pairs",
        what="The last step of an odd depth is left out of products in bfloat16.",
        file="engine/backends/cython_cpu/kernels/tile.pxi",
        right="        if pairs and t.depth % 2:",
        wrong="        if pairs and t.depth % 4 == 1:",
        tests="tests/backends/kernels/test_bfloat16.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_bfloat16.py::test_around_every_slice_of_the_depth",
            "tests/backends/kernels/test_bfloat16.py::test_a_row_does_not_depend_on_its_neighbours",
        ),
    ),
    _portable(
        name="tile-steps",
        what="The loop over the depth leaves out its last step if their number is no multiple of four.",
        file="engine/backends/cython_cpu/kernels/depth.pxi",
        right="    for k in range(steps % STEPS):",
        wrong="    for k in range(max(0, steps % STEPS - 1)):",
        tests="tests/backends/kernels/test_linear.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_linear.py::test_every_tile_height",
            "tests/backends/kernels/test_linear.py::test_around_every_slice_of_the_depth",
        ),
    ),
    _portable(
        name="int8-nan",
        what="A row with NaN or infinity gets codes as any other row.",
        file="engine/backends/cython_cpu/kernels/int8.pxi",
        right="        ranges[row].step = step + v_sum(probe)",
        wrong="        ranges[row].step = step",
        tests="tests/backends/kernels/test_int8.py -k portable",
        caught_by=("tests/backends/kernels/test_int8.py::test_what_is_not_finite_fills_its_row",),
    ),
    _portable(
        name="int8-zero-point",
        what="The products of int8 forget what the code 0 stands for.",
        file="engine/backends/cython_cpu/kernels/int8.pxi",
        right="return v_fma(v_fma(v_set1(row.step), total, v_mul(v_set1(row.low), sums)), scale, bias)",
        wrong="return v_fma(v_mul(v_set1(row.step), total), scale, bias)",
        tests="tests/backends/kernels/test_int8.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_int8.py::test_every_height",
            "tests/backends/kernels/test_int8.py::test_around_every_panel",
        ),
    ),
    _portable(
        name="codes-cut-off",
        what="Activations are cut off to codes, and not rounded.",
        file="engine/backends/cython_cpu/simd/portable.h",
        right="        float rounded = rintf(x[lane]);",
        wrong="        float rounded = floorf(x[lane]);",
        tests="tests/backends/kernels/test_int8.py -k portable",
        caught_by=("tests/backends/kernels/test_int8.py::test_codes_of_every_width",),
    ),
    _portable(
        name="maximum-of-nan",
        what="The maximum of a number and NaN is the number, also where NaN is the second operand.",
        file="engine/backends/cython_cpu/simd/portable.h",
        right="INLINE vf v_max(vf a, vf b) { return v_select(v_less(b, a), a, b); }",
        wrong="INLINE vf v_max(vf a, vf b) { return v_select(v_less(a, b), b, a); }",
        tests="tests/backends/kernels/test_rowwise.py tests/backends/kernels/test_softmax.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_rowwise.py::test_activation_passes_nan_and_infinity",
            "tests/backends/kernels/test_softmax.py::test_nan_fills_its_row_and_no_other",
        ),
    ),
    _portable(
        name="rows-of-far-distances",
        what="A key as far behind a query as the limit gets the row of a nearer key.",
        file="engine/backends/cython_cpu/kernels/relative.pxi",
        right="max(-relative.limit, min(relative.limit, distance))]",
        wrong="max(1 - relative.limit, min(relative.limit, distance))]",
        tests="tests/backends/kernels/test_relative.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_relative.py::test_distances_with_and_without_rows_of_their_own",
            "tests/backends/kernels/test_relative.py::test_around_every_block",
        ),
    ),
    _portable(
        name="entropy-in-bits",
        what="A part of the entropy of attention is in bits, and not in nats.",
        file="engine/backends/cython_cpu/kernels/weigh.pxi",
        right="nats = logf(total) - b.context[i] * <float>M_LN2 / total if total != 0 else 0",
        wrong="nats = logf(total) - b.context[i] / total if total != 0 else 0",
        tests="tests/backends/kernels/test_weigh.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_weigh.py::test_every_head_width",
            "tests/backends/kernels/test_weigh.py::test_around_every_block_of_queries",
        ),
    ),
    _portable(
        name="log-sum-beyond-the-row",
        what="The logarithm of the sum of exponentials counts parts behind the last one of a row.",
        file="engine/backends/cython_cpu/kernels/choose.pxi",
        right="            n = <int>min(parts - i, <Py_ssize_t>VL)\n            total = v_fma(",
        wrong="            n = <int>min(parts, <Py_ssize_t>VL)\n            total = v_fma(",
        tests="tests/backends/kernels/test_choose.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_choose.py::test_every_k",
            "tests/backends/kernels/test_choose.py::test_every_width_of_a_part",
        ),
    ),
    _wide(
        name="bfloat16-half-up",
        what="The emulated instruction rounds a float in the middle of two bfloat16 numbers up.",
        file="engine/backends/cython_cpu/simd/portable.h",
        right="(bits + 0x7fff + (bits >> 16 & 1)) >> 16",
        wrong="(bits + 0x8000) >> 16",
        tests="tests/backends/kernels/test_bfloat16.py -k wide",
        caught_by=("tests/backends/kernels/test_bfloat16.py::test_rounded_half_to_even_or_not_at_all",),
    ),
    _wide(
        name="value-of-an-odd-key",
        what="The value of the last of an odd number of keys is left out.",
        file="engine/backends/cython_cpu/kernels/attention_bfloat16.pxi",
        right="t.depth, t.a_stride, t.b_stride, t.out_stride = (count + 1) // 2 * 2, 2 * W, 2 * e, e",
        wrong="t.depth, t.a_stride, t.b_stride, t.out_stride = count // 2 * 2, 2 * W, 2 * e, e",
        tests="tests/backends/kernels/test_attention_bfloat16.py -k wide",
        caught_by=(
            "tests/backends/kernels/test_attention_bfloat16.py::test_every_number_of_queries",
            "tests/backends/kernels/test_attention_bfloat16.py::test_every_number_of_keys",
        ),
    ),
    _tiles(
        name="keys-of-the-group-before",
        what="With more than 512 keys, later groups of queries read the last block of keys of the group before.",
        file="engine/backends/cython_cpu/kernels/attention_rows.pxi",
        right="            if b.group == 0 or call.S > MOST_KEYS:",
        wrong="            if b.group == 0:",
        tests="tests/backends/kernels/test_attention_rows.py -k amxemulated",
        caught_by=("tests/backends/kernels/test_attention_rows.py::test_a_query_has_the_same_bits_at_every_place",),
    ),
    _tiles(
        name="bias-of-the-second-tile",
        what="The second tile of columns gets the bias of the first one where results become operands.",
        file="engine/backends/cython_cpu/kernels/tiles.pxi",
        right="        high = v_load(w.y.bias + block.column + VL)",
        wrong="        high = v_load(w.y.bias + block.column)",
        tests="tests/backends/kernels/test_written_operands.py tests/backends/kernels/test_tiles.py -k amxemulated",
        caught_by=("tests/backends/kernels/test_written_operands.py::test_results_become_operands",),
    ),
    _tiles(
        name="flush-of-denormals",
        what="The emulated tiles keep denormal operands, which AMX takes for zeros.",
        file="engine/backends/cython_cpu/simd/tiles.h",
        right="even = t_fma(t_flush(v_set1(first)), t_flush((vf)(weights << 16)), even);",
        wrong="even = t_fma(v_set1(first), (vf)(weights << 16), even);",
        tests="tests/backends/kernels/test_tiles.py -k amxemulated",
        caught_by=("tests/backends/kernels/test_tiles.py::test_the_ends_of_the_range",),
    ),
)
