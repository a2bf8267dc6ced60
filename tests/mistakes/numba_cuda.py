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
    _emulated("The zeros behind a row count in its variance.",
              "engine/backends/numba_cuda/kernels/norm.py",
              "if first + 4 * threads * i + e < D:",
              "if True:",
              "tests/backends/numba_cuda/test_rows.py::test_norm"),
    _emulated("A norm of all heads together divides by the width of one head.",
              "engine/backends/numba_cuda/kernels/heads.py",
              "np.float32(own * d) + eps",
              "np.float32(d) + eps",
              "tests/backends/numba_cuda/test_rows.py::test_heads"),
    _emulated("The activation of a gate is that of the other map.",
              "engine/backends/numba_cuda/ptx/epilogue.py",
              "activated = values[:results]        # the gate's channels come first",
              "activated = values[-results:]",
              "tests/backends/numba_cuda/test_linear.py::test_a_gate"),
    _emulated("The sum of a tensor core is rounded, not cut.",
              "engine/backends/numba_cuda/ptx/tensor_cores.py",
              "_cut(total, spare)",
              "_cut(total + (1 << spare >> 1), spare)",
              "tests/backends/numba_cuda/test_tensor_cores.py::test_the_sums_of_a_gpu"),
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
