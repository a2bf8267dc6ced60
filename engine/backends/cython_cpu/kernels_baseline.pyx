# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
include "kernels.pxi"
