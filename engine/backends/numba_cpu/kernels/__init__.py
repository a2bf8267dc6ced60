"""Kernels in Python for Numba; the .pxi file of the same name in cython_cpu/kernels explains the method of each."""
