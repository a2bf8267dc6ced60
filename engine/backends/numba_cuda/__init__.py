"""The CUDA backend: kernels in Python, compiled by numba-cuda, tensor cores reached through inline PTX."""
