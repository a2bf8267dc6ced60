"""Mistakes in the CUDA kernels, which run in an emulator, and in what stages their batches."""

from __future__ import annotations

from functools import partial

from .mistake import Mistake

_emulated = partial(Mistake, cuda=True)

MISTAKES = (
    Mistake(
        name="cuda-added-tiles",
        what="The entries that fill up the work list of attention name the first sequence.",
        file="engine/backends/numba_cuda/bucket.py",
        right="    tiles[:] = shape.tiles, 0 ",
        wrong="    tiles[:] = 0 ",
        tests="tests/backends/test_cuda_buckets.py",
        caught_by=("tests/backends/test_cuda_buckets.py::test_stage",),
    ),
    Mistake(
        name="cuda-field-let-in",
        what="A model whose embeddings are scaled is let in, although no CUDA kernel scales them.",
        file="engine/backends/numba_cuda/support.py",
        right='Embed: _any("out", "width", "word", "position", "token_type", "layer") | {"scale": (1.0,)},',
        wrong='Embed: _any("out", "width", "word", "position", "token_type", "layer", "scale"),',
        tests="tests/backends/test_cuda.py tests/families/test_table.py",
        caught_by=("tests/backends/test_cuda.py::test_a_model_is_refused_with_all_that_does_not_run",),
    ),
    _emulated(
        name="cuda-norm-padding",
        what="The numbers of a warp behind the end of a row count in its variance.",
        file="engine/backends/numba_cuda/kernels/norm.py",
        right="            if exact or lane + 32 * i < D:\n                values[i] -= mean",
        wrong="            values[i] -= mean",
        tests="tests/backends/numba_cuda/test_rows.py",
        caught_by=(
            "tests/backends/numba_cuda/test_rows.py::test_norm",
            "tests/backends/numba_cuda/test_rows.py::test_embedding",
        ),
    ),
    _emulated(
        name="cuda-weights-of-pooling",
        what="The weighted mean divides by the sum of the weights without that of the last token.",
        file="engine/backends/numba_cuda/kernels/pooling.py",
        right="                        weights += token - start + 1",
        wrong="                        weights += token - start",
        tests="tests/backends/numba_cuda/test_rows.py",
        caught_by=("tests/backends/numba_cuda/test_rows.py::test_pooling",),
    ),
    _emulated(
        name="cuda-key-behind-the-last",
        what="A query sees the zeros behind the last key of its sequence as one more key.",
        file="engine/backends/numba_cuda/kernels/attention.py",
        right="counts[m, h] = types.uint32(length)",
        wrong="counts[m, h] = types.uint32(length + 1)",
        tests="tests/backends/numba_cuda/test_attention.py",
        caught_by=("tests/backends/numba_cuda/test_attention.py::test_attention",),
    ),
    _emulated(
        name="cuda-running-sum",
        what="The sum of the weights of older keys is not corrected for a new maximum.",
        file="engine/backends/numba_cuda/kernels/float32.py",
        right="normalizer = normalizer * shrink + weight",
        wrong="normalizer = normalizer + weight",
        tests="tests/backends/numba_cuda/test_float32.py",
        caught_by=(
            "tests/backends/numba_cuda/test_float32.py::test_attention",
            "tests/backends/numba_cuda/test_float32.py::test_attention_of_large_scores",
        ),
    ),
)
