"""The kernels; the .pxi file of the same name in cython_cpu/kernels explains each."""
