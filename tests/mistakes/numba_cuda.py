"""Mistakes in the CUDA kernels, which run in an emulator, and in what stages their batches."""

from functools import partial

from .mistake import seed

_emulated = partial(seed, cuda=True)

MISTAKES = (
    seed("The entries that fill up the work list of attention name the first sequence.",
         "engine/backends/numba_cuda/bucket.py",
         "    tiles[:] = shape.tiles, 0 ",
         "    tiles[:] = 0 ",
         "tests/backends/test_cuda_buckets.py::test_stage"),
    seed("A model whose embeddings are scaled is let in, although no CUDA kernel scales them.",
         "engine/backends/numba_cuda/support.py",
         'Embed: _any("out", "width", "word", "position", "token_type", "layer") | {"scale": (1.0,)},',
         'Embed: _any("out", "width", "word", "position", "token_type", "layer", "scale"),',
         "tests/backends/test_cuda.py::test_a_model_is_refused_with_all_that_does_not_run"),
    _emulated("The numbers of a warp behind the end of a row count in its variance.",
              "engine/backends/numba_cuda/kernels/norm.py",
              "            if exact or lane + 32 * i < D:\n                values[i] -= mean",
              "            values[i] -= mean",
              "tests/backends/numba_cuda/test_rows.py::test_norm",
              "tests/backends/numba_cuda/test_rows.py::test_embedding"),
    _emulated("The weighted mean divides by the sum of the weights without that of the last token.",
              "engine/backends/numba_cuda/kernels/pooling.py",
              "                        weights += token - start + 1",
              "                        weights += token - start",
              "tests/backends/numba_cuda/test_rows.py::test_pooling"),
    _emulated("A query sees the zeros behind the last key of its sequence as one more key.",
              "engine/backends/numba_cuda/kernels/attention.py",
              "counts[m, h] = types.uint32(length)",
              "counts[m, h] = types.uint32(length + 1)",
              "tests/backends/numba_cuda/test_attention.py::test_attention"),
    _emulated("The sum of the weights of older keys is not corrected for a new maximum.",
              "engine/backends/numba_cuda/kernels/float32.py",
              "normalizer = normalizer * shrink + weight",
              "normalizer = normalizer + weight",
              "tests/backends/numba_cuda/test_float32.py::test_attention",
              "tests/backends/numba_cuda/test_float32.py::test_attention_of_large_scores"),
)
